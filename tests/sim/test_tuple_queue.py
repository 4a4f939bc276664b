"""The queue on a simulated clock: what a figure rests on, on small streams."""

import numpy as np
import pytest

from lab.sim.tuple_queue import simulate
from lab.sim.tuple_stream import CALM_TUPLES, TupleStream, seven_phases
from penstock.policy.rows.constraint import AverageLatency
from penstock.policy.rows.density import Density
from penstock.policy.rows.load_aware import BaseLine, FullKnowledge, Learning, LoadAware, StrawMan

TAU = AverageLatency(seconds=6.4e-3)
STREAM = TupleStream.draw(seed=11)


def test_a_stream_is_as_under_provisioned_as_asked():
    counted = slice(CALM_TUPLES, None)
    span = STREAM.arrived_at[-1] - STREAM.arrived_at[CALM_TUPLES - 1]

    assert span / (32_768 * STREAM.mean_seconds) == pytest.approx(0.75)
    assert np.unique(STREAM.costs_seconds).size <= 64
    assert (np.diff(STREAM.arrived_at[counted]) > 0).all()


def test_full_knowledge_holds_tau_exactly_and_drops_what_does_not_fit():
    outcome = simulate(FullKnowledge(), STREAM, TAU)

    assert 6.3e-3 < outcome.mean_waited_seconds <= 6.4e-3
    assert 0.24 < outcome.dropped < 0.27


def test_load_aware_stays_near_tau_where_the_mean_and_the_dice_do_not():
    las, straw_man, base_line = (
        simulate(policy, STREAM, TAU, seed=1).mean_waited_seconds / TAU.seconds
        for policy in (LoadAware(), StrawMan(mean_seconds=STREAM.mean_seconds), BaseLine(keep=0.75))
    )

    assert 0.5 < las < 2
    assert straw_man > 5
    assert base_line > 5


@pytest.mark.parametrize(
    ("policy", "most"),
    [
        (Density(true_costs=True), 0.65),
        (Density(learning=Learning(eps=0.002655, eager=True, sync_every_tuples=8)), 0.75),
        (Density(), 0.80),
    ],
    ids=["true costs", "64 KB", "4 x 55"],
)
def test_density_drops_far_fewer_than_full_knowledge_at_the_same_tau(policy, most):
    streams = [TupleStream.draw(seed=seed) for seed in range(6)]
    ours = [simulate(policy, stream, TAU, seed=seed) for seed, stream in enumerate(streams)]
    oracle = [simulate(FullKnowledge(), stream, TAU) for stream in streams]

    assert np.mean([outcome.dropped for outcome in ours]) <= most * np.mean([outcome.dropped for outcome in oracle])
    assert np.mean([outcome.mean_waited_seconds for outcome in ours]) <= TAU.seconds


def test_density_sheds_from_the_first_snapshot_and_load_aware_waits_until_it_is_stable():
    las, density = (simulate(policy, STREAM, TAU, seed=1) for policy in (LoadAware(), Density()))

    assert density.first_model < 1_100
    assert las.first_model > 2_000
    assert simulate(FullKnowledge(), STREAM, TAU).first_model is None


def test_the_same_seed_gives_the_same_run():
    first, second = (simulate(Density(), STREAM, TAU, seed=4) for _ in range(2))

    assert (first.weights == second.weights).all()
    assert np.array_equal(first.waited_seconds, second.waited_seconds, equal_nan=True)


def test_nothing_is_uncounted():
    outcome = simulate(LoadAware(), STREAM, TAU, seed=2)

    assert ((outcome.weights == 0) == np.isnan(outcome.waited_seconds)).all()


def test_density_weighs_survivors_so_that_counts_stay_right():
    outcome = simulate(Density(), STREAM, TAU, seed=2)

    assert outcome.weights.sum() == pytest.approx(outcome.weights.size, rel=0.05)


def test_in_phase_f_load_aware_recovers_and_straw_man_does_not():
    stream, constraint = seven_phases(seed=3), AverageLatency(seconds=0.064)
    mean_seconds = float(stream.costs_seconds[:20_000].mean())
    las, _ = simulate(LoadAware(), stream, constraint, seed=3).windows(4_000)
    straw_man, _ = simulate(StrawMan(mean_seconds=mean_seconds), stream, constraint).windows(4_000)

    in_f = slice(25, 30)
    assert las[in_f][-1] < 0.2 * las[in_f].max()
    assert straw_man[in_f][-1] == straw_man[in_f].max()
    assert straw_man[in_f][-1] > 100 * las[in_f][-1]


def test_a_full_mailbox_still_delivers():
    """An operator that is far behind sends more pairs than there is room for: the first ones must come through."""
    stream = TupleStream.draw(seed=5, under_provisioned=0.9, calm=0)

    outcome = simulate(LoadAware(learning=Learning(every_tuples=32, eager=True)), stream, TAU, seed=5)

    assert outcome.first_model is not None
    assert outcome.dropped > 0.5
