"""Which source of a query feeds the shedder, learned from counts."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.control.controller import Controller
from penstock.control.governor import Demand, Governor
from penstock.control.guidance import Guidance, foreign_units, tuples_in
from penstock.control.sources import SourceLearner
from penstock.model.batch import Batch


def taught(batches, *, resume=()):
    """A learner that has seen batches of (units by source, tuples)."""
    learner = SourceLearner(resume)
    for units, tuples in batches:
        learner.learn(units, tuples=tuples)
    return learner


# --- one source -----------------------------------------------------------------------------------


def test_with_one_source_the_ratio_follows_the_last_batches():
    assert SourceLearner().tuples_per_unit == ()
    seen = [((50,), 100), ((50,), 200), ((500,), 2_000)]
    ratios = [taught(seen[:count]).tuples_per_unit[0] for count in (1, 2, 3)]

    assert ratios == pytest.approx([2.0, 2.6, 3.02])  # 2; 2 + 0.3 * (4 - 2); 2.6 + 0.3 * (4 - 2.6)


@given(batches=st.lists(st.tuples(st.integers(1, 10**9), st.integers(1, 10**9)), min_size=1, max_size=30))
def test_with_one_source_it_is_a_fading_mean_of_ratios_whatever_comes(batches):
    mean = batches[0][1] / batches[0][0]
    for units, tuples in batches[1:]:
        mean += 0.3 * (tuples / units - mean)

    assert taught([((units,), tuples) for units, tuples in batches]).tuples_per_unit == pytest.approx((mean,))


def test_what_an_earlier_run_learned_is_where_the_next_one_begins():
    assert taught([((50,), 200)], resume=(2.0,)).tuples_per_unit == pytest.approx((2.6,))


@pytest.mark.parametrize(("units", "tuples"), [((50,), 0), ((0,), 50), ((None,), 50), ((), 50)])
def test_a_batch_that_does_not_tell_leaves_the_ratio(units, tuples):
    assert taught([((50,), 100), (units, tuples), ((50,), 100)]).tuples_per_unit == pytest.approx((2.0,))


# --- several --------------------------------------------------------------------------------------


def test_every_source_counts_until_one_moves_on_its_own():
    together = [((5_000, 5_000), 5_000)] * 10
    learner = taught(together)
    assert learner.tuples_per_unit == pytest.approx((0.5, 0.5))

    learner.learn((5_000, 500_000), tuples=5_000)
    assert learner.tuples_per_unit == pytest.approx((1.0, 0.0), abs=1e-6)
    assert foreign_units((5_000, 500_000), learner.tuples_per_unit) == 500_000


def test_a_source_known_as_foreign_stays_so_while_all_move_together_again():
    learner = taught([((5_000, 5_000), 5_000), ((5_000, 500_000), 5_000)] + [((5_000, 5_000), 5_000)] * 2_000)

    assert learner.tuples_per_unit == pytest.approx((1.0, 0.0), abs=1e-6)


@pytest.mark.parametrize("selectivity", [1.0, 0.3])
@pytest.mark.parametrize("seed", range(5))
def test_the_chance_of_arrivals_alone_tells_sources_apart(selectivity, seed):
    random = np.random.default_rng(seed)
    learner = SourceLearner()
    for _ in range(40):
        units = random.poisson([5_000, 5_000])
        learner.learn(units.tolist(), tuples=int(random.binomial(units[0], selectivity)))

    assert learner.tuples_per_unit == pytest.approx((selectivity, 0.0), abs=0.15 * selectivity)


def test_sources_that_both_feed_have_a_ratio_each_and_a_third_has_none():
    random = np.random.default_rng(7)
    learner = SourceLearner()
    for _ in range(60):
        units = random.integers(1_000, 9_000, size=3)
        learner.learn(units.tolist(), tuples=int(0.5 * units[0] + 3 * units[1]))

    assert learner.tuples_per_unit == pytest.approx((0.5, 3.0, 0.0), rel=0.01)


def test_a_filter_that_opens_is_followed_and_the_foreign_source_stays_foreign():
    random = np.random.default_rng(3)
    learner = SourceLearner()
    for batch in range(40):
        units = random.poisson([5_000, 2_000])
        learner.learn(units.tolist(), tuples=round(units[0] * (0.2 if batch < 30 else 0.8)))

    feeding, foreign = learner.tuples_per_unit
    assert feeding == pytest.approx(0.8, rel=0.05)
    assert foreign * 2_000 < 0.05 * feeding * 5_000


def test_a_source_that_has_not_moved_yet_is_thought_to_feed():
    assert taught([((5_000, 0), 5_000)] * 5).tuples_per_unit == pytest.approx((1.0, 1.0))


def test_another_number_of_sources_starts_anew():
    resumed = SourceLearner((1.0, 0.0))
    resumed.learn((100, 100, 100), tuples=300)

    assert resumed.tuples_per_unit == pytest.approx((1.0, 1.0, 1.0))


def test_a_foreign_source_is_remembered_over_a_restart():
    assert taught([((5_000, 5_000), 5_000)] * 3, resume=(1.0, 0.0)).tuples_per_unit == pytest.approx((1.0, 0.0))


# --- sources that cannot be counted ---------------------------------------------------------------


def test_a_source_that_cannot_be_counted_makes_batches_unforeseeable_unless_it_is_foreign():
    random = np.random.default_rng(5)
    foreign, feeding = SourceLearner(), SourceLearner()
    for _ in range(40):
        units = int(random.poisson(5_000))
        foreign.learn((units, None), tuples=units)
        feeding.learn((units, None), tuples=int(random.poisson(2_000)))

    assert tuples_in((5_000, None), foreign.tuples_per_unit) == pytest.approx(5_000, rel=0.02)
    assert tuples_in((5_000, None), feeding.tuples_per_unit) is None
    assert tuples_in((5_000, 0.0), ()) == 5_000  # it has not moved


def test_the_first_batch_of_a_source_whose_start_was_not_known_does_not_spoil_the_ratio():
    assert taught([((None,), 70_000), ((500,), 1_000)]).tuples_per_unit == pytest.approx((2.0,))


# --- whatever comes -------------------------------------------------------------------------------

amounts = st.none() | st.just(0.0) | st.floats(1e-3, 1e12)


@given(
    batches=st.integers(1, 4).flatmap(
        lambda sources: st.lists(
            st.tuples(st.lists(amounts, min_size=sources, max_size=sources), st.integers(0, 10**12)), max_size=20
        )
    )
)
def test_ratios_are_finite_and_not_negative_whatever_comes(batches):
    for count in range(len(batches)):
        ratios = taught(batches[: count + 1]).tuples_per_unit
        assert all(0 <= ratio < float("inf") for ratio in ratios)


# --- in the loop ----------------------------------------------------------------------------------


def run(units_of, *, batches, tuples_of, seconds_per_tuple=1e-4):
    """Feed governor and controller as Spark would, at a second a batch; return the keep rates."""
    governor = Governor(latency_seconds=5.0)
    controller, recent, keeps = Controller(governor), [], []
    for number in range(batches):
        units = units_of(number)
        demand = Demand(batch_id=number, now=float(number), waited_seconds=1.0, units_by_source=units)
        decision = governor.decide(controller.guidance(now=float(number)), demand, recent)
        recent = [*recent, decision][-3:]
        offered = tuples_of(units)
        kept = round(offered * decision.plan.keep)
        batch = Batch(
            batch_id=number, offered=offered, kept=kept, shed=offered - kept, keep=decision.plan.keep,
            reason=decision.plan.reason, started_at=float(number), duration_seconds=0.1 + kept * seconds_per_tuple,
        )  # fmt: skip
        controller.learn(batch, units_by_source=units)
        keeps.append(decision.plan.keep)
    return keeps


@pytest.mark.parametrize("seed", range(3))
def test_a_burst_of_another_source_sheds_nothing_of_ours(seed):
    random = np.random.default_rng(seed)

    def units_of(number):
        ours, theirs = random.poisson([5_000, 500_000 if 20 <= number < 30 else 5_000])
        return int(ours), int(theirs)

    assert run(units_of, batches=40, tuples_of=lambda units: units[0]) == [1.0] * 40


def test_a_burst_of_our_own_source_is_still_met_in_its_first_batch():
    random = np.random.default_rng(1)

    def units_of(number):
        ours, theirs = random.poisson([100_000 if number >= 20 else 5_000, 5_000])
        return int(ours), int(theirs)

    keeps = run(units_of, batches=22, tuples_of=lambda units: units[0])
    assert keeps[:20] == [1.0] * 20
    assert keeps[20] < 0.5


def test_guidance_carries_what_was_learned_by_source_over_a_restart():
    known = Guidance(published_at=0.0, tuples_per_unit=(1.0, 0.0))
    controller = Controller(Governor(latency_seconds=5.0), resume=known)

    assert controller.guidance(now=1.0).tuples_per_unit == (1.0, 0.0)
