"""Learning what each output costs and holds."""

import json

import numpy as np
import pytest

from penstock.control.branches import BranchLearner
from penstock.control.controller import Controller
from penstock.control.governor import Governor
from penstock.control.guidance import Guidance
from penstock.model.batch import Batch
from penstock.model.branches import Branch, BranchCount, BranchCounts, Branches
from penstock.model.errors import InvalidInputError
from penstock.policy.least_error import LeastError

SHARES = {"a": 1.0, "b": 0.3, "c": 0.05}
COSTS = {"a": 1e-5, "b": 8e-5, "c": 4e-4}
FIXED, READ, SHARED = 0.2, 5e-7, 2e-5


def batch_at(number, rates, *, offered=20_000, noise=1.0):
    """A finished batch under these keep rates, and what it showed."""
    keep = max(rates.values())
    kept = round(offered * keep)
    outputs, seconds = {}, FIXED + READ * offered + SHARED * kept
    for name, share in SHARES.items():
        reached, passed = round(kept * share), round(offered * share * rates[name])
        seconds += COSTS[name] * passed
        weight = passed / rates[name]
        passed = min(passed, reached)
        outputs[name] = BranchCount(
            offered=reached, kept=passed, shed=reached - passed, weight=weight, total=3 * weight, squares=13 * weight
        )
    counts = BranchCounts(
        first_event_at=10.0 * number, last_event_at=10.0 * number + 10, window_seconds=60.0, outputs=outputs
    )
    batch = Batch(
        batch_id=number, offered=offered, kept=kept, shed=offered - kept, keep=keep, reason="test",
        started_at=number * 5.0, duration_seconds=seconds * noise,
    )  # fmt: skip
    return batch, counts


def learned(rates, *, noise=0.0):
    learner, random = BranchLearner(), np.random.default_rng(3)
    for number, rate in enumerate(rates):
        batch, counts = batch_at(number, rate, noise=random.lognormal(0, noise) if noise else 1.0)
        learner.learn(batch, counts, seconds=batch.duration_seconds)
    return learner


WHOLE = SHARED + sum(SHARES[name] * COSTS[name] for name in SHARES)


def test_batches_whose_rates_differ_tell_the_costs_of_the_outputs_apart():
    random = np.random.default_rng(2)
    learner = learned([{name: random.uniform(0.1, 1) for name in SHARES} for _ in range(30)])

    branches = learner.branches(seconds_per_tuple=WHOLE)
    found = {branch.name: branch.seconds_per_tuple for branch in branches.outputs}
    assert found == pytest.approx(COSTS, rel=0.3)
    assert branches.shared_seconds == pytest.approx(SHARED, rel=0.35)
    assert branches.seconds_per_tuple == pytest.approx(WHOLE)


@pytest.mark.parametrize("noise", [0.0, 0.2])
def test_the_controller_foresees_the_next_batch_however_the_work_splits(noise):
    random = np.random.default_rng(4)
    rates = {"a": 0.2, "b": 0.5, "c": 1.0}
    controller = Controller(Governor(latency_seconds=5.0, policy=LeastError()))
    # Rates that never change tell nothing about single outputs, but enough about the whole.
    for number in range(20):
        batch, counts = batch_at(number, rates, noise=random.lognormal(0, noise) if noise else 1.0)
        controller.learn(batch, branches=counts)

    guidance = controller.guidance(now=0.0)
    batch, counts = batch_at(0, rates)
    seconds = guidance.cost.fixed_seconds + guidance.cost.shed_seconds * batch.offered
    seconds += guidance.branches.shared_seconds * batch.kept
    seconds += sum(branch.seconds_per_tuple * counts.outputs[branch.name].kept for branch in guidance.branches.outputs)
    assert seconds == pytest.approx(batch.duration_seconds, rel=0.15)


def test_a_tuple_that_passed_every_drop_counts_as_a_whole_one():
    learner = learned([dict.fromkeys(SHARES, 1.0)] * 5)
    batch, counts = batch_at(5, dict.fromkeys(SHARES, 1.0))
    half, half_counts = batch_at(6, dict.fromkeys(SHARES, 0.5))

    assert learner.worked(batch, counts) == pytest.approx(batch.offered, rel=0.01)
    assert learner.worked(half, half_counts) == pytest.approx(half.offered / 2, rel=0.01)


def test_what_the_outputs_hold_does_not_depend_on_what_was_shed():
    for rate in (1.0, 0.2):
        branches = learned([dict.fromkeys(SHARES, rate)] * 6).branches(seconds_per_tuple=1e-4)
        for branch in branches.outputs:
            assert branch.share == pytest.approx(SHARES[branch.name], rel=0.01)
            assert branch.answer_tuples == pytest.approx(20_000 * SHARES[branch.name] * 6, rel=0.01)
            assert (branch.mean, branch.standard_deviation) == (pytest.approx(3), pytest.approx(2))


def test_groups_divide_the_tuples_of_a_window_among_the_answers():
    learner = BranchLearner()
    for number in range(5):
        batch, counts = batch_at(number, dict.fromkeys(SHARES, 1.0))
        grouped = BranchCount(offered=100, kept=100, shed=0, weight=100.0, total=100.0, squares=100.0, groups=20.0)
        counts = BranchCounts(
            first_event_at=number, last_event_at=number + 1.0, window_seconds=10.0, outputs={"by": grouped}
        )
        learner.learn(batch, counts, seconds=batch.duration_seconds)

    assert learner.branches(seconds_per_tuple=1e-4).outputs[0].answer_tuples == 50


def test_empty_batches_lock_nothing():
    controller = Controller(Governor(latency_seconds=5.0, policy=LeastError()))
    empty = BranchCounts(
        first_event_at=None,
        last_event_at=None,
        window_seconds=10.0,
        outputs={name: BranchCount(offered=0, kept=0, shed=0, weight=0.0, total=0.0, squares=0.0) for name in SHARES},
    )
    for number in range(5):
        batch = Batch(
            batch_id=number,
            offered=0,
            kept=0,
            shed=0,
            keep=1.0,
            reason="idle",
            started_at=5.0 * number,
            duration_seconds=0.1,
        )
        controller.learn(batch, branches=empty)
    assert controller.guidance(now=0.0).branches is None
    for number in range(5, 10):
        batch, counts = batch_at(number, dict.fromkeys(SHARES, 1.0))
        controller.learn(batch, branches=counts)
    assert all(branch.answer_tuples > 0 for branch in controller.guidance(now=0.0).branches.outputs)


def test_the_controller_publishes_the_outputs_and_the_next_plan_samples_each_at_its_own_rate():
    governor = Governor(latency_seconds=2.0, policy=LeastError())
    controller = Controller(governor)
    for number in range(8):
        batch, counts = batch_at(number, dict.fromkeys(SHARES, 0.3 + 0.05 * number))
        controller.learn(batch, units_by_source=(batch.offered,), branches=counts)

    guidance = Guidance.from_dict(json.loads(json.dumps(controller.guidance(now=100.0).to_dict())))
    assert guidance == controller.guidance(now=100.0)
    from penstock.control.governor import Demand

    plan = governor.decide(guidance, Demand(batch_id=8, now=100.0, waited_seconds=0.5, units_by_source=(60_000,))).plan
    assert plan.key_keep["a"] < plan.key_keep["b"] < plan.key_keep["c"]


def test_a_drop_that_adds_or_loses_rows_is_refused():
    with pytest.raises(InvalidInputError, match="an output does not balance: offered 2 != kept 3 \\+ shed 0"):
        BranchCount(offered=2, kept=3, shed=0, weight=0.0, total=0.0, squares=0.0)
    with pytest.raises(InvalidInputError, match="share of output 'q' must be finite and at least 0"):
        Branches(shared_seconds=0, outputs=(Branch(name="q", share=-1, seconds_per_tuple=0, answer_tuples=0),))
