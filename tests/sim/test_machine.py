"""What the simulated machine does: durations and coins."""

import math

import numpy as np
import pytest

from lab.sim.machine import Machine
from penstock.model.errors import InvalidInputError
from penstock.model.load import Cost
from penstock.model.plan import Plan

COST = Cost(fixed_seconds=0.2, kept_seconds=1e-4, shed_seconds=1e-5)


def test_without_noise_a_batch_takes_its_true_cost():
    assert Machine(COST).next_batch(at=0).of(kept=10_000, shed=10_000) == pytest.approx(1.3)


def test_the_first_batch_of_a_run_takes_longer():
    assert Machine(COST, start_up_seconds=3.0).next_batch(at=0, first_of_run=True).fixed_seconds == pytest.approx(3.2)


def test_costs_change_when_they_are_due():
    machine = Machine({30: Cost(fixed_seconds=2, kept_seconds=0), 0: COST, 60: Cost(fixed_seconds=3, kept_seconds=0)})

    assert [machine.next_batch(at=at).fixed_seconds for at in (0, 29.9, 30, 59, 60, 1e9)] == [0.2, 0.2, 2, 2, 3, 3]


def test_a_slow_machine_takes_longer_for_everything():
    slow = Machine(COST, slowdown=lambda at: 2.0 if at >= 10 else 1.0)

    assert [slow.next_batch(at=at).of(kept=8_000, shed=0) for at in (9, 10)] == pytest.approx([1.0, 2.0])


def test_stalls_hold_up_their_share_of_batches_whatever_they_hold():
    machine = Machine(COST, stall_share=0.1, stall_seconds=(1.0, 3.0), seed=1)
    held_up = np.array([machine.next_batch(at=0).fixed_seconds - 0.2 for _ in range(4_000)])

    assert (held_up > 0.5).mean() == pytest.approx(0.1, abs=0.02)
    assert held_up[held_up > 0.5].mean() == pytest.approx(2.0, abs=0.1)


@pytest.mark.parametrize(("share", "seconds"), [(None, None), (0.25, 0.05)])
def test_a_part_of_the_fixed_cost_is_told_as_overhead_where_the_engine_does(share, seconds):
    machine = Machine(COST, overhead_share=share)

    assert machine.overhead_seconds(machine.next_batch(at=0)) == seconds


def test_noise_spreads_durations_around_their_true_mean():
    machine = Machine(COST, noise=0.2, seed=1)
    factors = np.array([machine.next_batch(at=0).of(kept=8_000, shed=0) for _ in range(4_000)])

    assert factors.mean() == pytest.approx(1.0, abs=0.01)
    assert np.log(factors).std() == pytest.approx(0.2, abs=0.01)


def test_the_same_seed_gives_the_same_run():
    def run(seed):
        machine = Machine(COST, noise=0.2, seed=seed)
        survivors = machine.survivors(Plan(keep=0.3, reason="test"), offered=1_000)
        return survivors, machine.next_batch(at=0)

    assert run(1) == run(1)
    assert run(1) != run(2)


@pytest.mark.parametrize(("keep", "kept"), [(0.0, 0), (1.0, 5_000)])
def test_all_or_nothing_needs_no_luck(keep, kept):
    assert Machine(COST).survivors(Plan(keep=keep, reason="test"), offered=5_000).kept == kept


def test_survivors_are_binomial():
    machine = Machine(COST, seed=3)
    kept = [machine.survivors(Plan(keep=0.3, reason="test"), offered=1_000).kept for _ in range(2_000)]

    assert np.mean(kept) == pytest.approx(300, abs=1.5)
    assert np.std(kept) == pytest.approx(math.sqrt(1_000 * 0.3 * 0.7), rel=0.05)


def test_listed_keys_are_counted_apart_while_a_plan_lists_them():
    machine = Machine(COST, key_share={"vip": 0.2, "bot": 0.3}, seed=5)
    listing = machine.survivors(Plan(keep=0.5, key_keep={"vip": 1.0, "bot": 0.0}, reason="test"), offered=100_000)
    plain = machine.survivors(Plan(keep=0.5, reason="test"), offered=100_000)

    assert listing.listed_offered == pytest.approx(50_000, rel=0.02)
    assert listing.listed_kept == pytest.approx(20_000, rel=0.02)
    assert listing.kept == pytest.approx(45_000, rel=0.02)
    assert (plain.listed_offered, plain.listed_kept) == (0, 0)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"noise": -0.1}, "noise must be finite and at least 0, got -0.1; it is the spread of durations"),
        ({"start_up_seconds": math.nan}, "start_up_seconds must be finite and at least 0, got nan"),
        ({"key_share": {"a": 1.5}}, r"key_share\['a'\] must be in \[0, 1\], got 1.5"),
        ({"key_share": {"a": 0.7, "b": 0.7}}, "key_share must sum to at most 1, got 1.4; they are parts of one stream"),
        ({"cost": {30: COST}}, "cost must have an entry for second 0, got .*; time starts there"),
    ],
)
def test_a_machine_that_makes_no_sense_is_refused(options, message):
    with pytest.raises(InvalidInputError, match=message):
        Machine(**({"cost": COST} | options))
