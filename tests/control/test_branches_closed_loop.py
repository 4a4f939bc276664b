"""The policy of least error with what it learns, in a loop with a made-up machine."""

import numpy as np
import pytest

from penstock.control.controller import Controller
from penstock.control.governor import Demand, Governor
from penstock.model.batch import Batch
from penstock.model.branches import BranchCount, BranchCounts
from penstock.policy.least_error import LeastError

LATENCY_SECONDS = 8.0
FIXED, READ, SHARED = 0.6, 1e-6, 3e-6
# name: share, seconds per tuple, mean, standard deviation
OUTPUTS = {
    "all": (1.0, 2e-5, 1.0, 0.0),
    "part": (0.34, 3e-5, 0.03, 0.03),
    "some": (0.045, 3e-5, 0.05, 0.05),
    "rare": (0.008, 3e-5, 0.05, 0.04),
}
CAPACITY = 1 / (READ + SHARED + sum(share * cost for share, cost, _, _ in OUTPUTS.values()))


def run(*, overload, batches=60, noise=0.15, seed=1):
    """Feed the loop as Spark would: each batch holds what arrived while the one before ran; return its history."""
    random = np.random.default_rng(seed)
    governor = Governor(latency_seconds=LATENCY_SECONDS, policy=LeastError())
    controller, recent, now, waited, history = Controller(governor), [], 0.0, 2.0, []
    for number in range(batches):
        rate = CAPACITY * (0.4 if number < 10 else overload)
        offered = round(rate * waited)
        demand = Demand(batch_id=number, now=now, waited_seconds=waited, units_by_source=(offered,))
        decision = governor.decide(controller.guidance(now=now), demand, recent)
        recent = [*recent, decision][-3:]
        plan = decision.plan
        kept = round(offered * plan.keep)
        seconds, outputs = FIXED + READ * offered + SHARED * kept, {}
        for name, (share, cost, mean, deviation) in OUTPUTS.items():
            keep = plan.keep_of(name)
            passed = int(random.binomial(round(offered * share), keep))
            weight = passed / keep
            reached = max(passed, round(kept * share))
            outputs[name] = BranchCount(
                offered=reached, kept=passed, shed=reached - passed, weight=weight, total=weight * mean,
                squares=weight * (mean**2 + deviation**2),
            )  # fmt: skip
            seconds += cost * passed
        seconds *= random.lognormal(0, noise)
        batch = Batch(
            batch_id=number, offered=offered, kept=kept, shed=offered - kept, keep=plan.keep, reason=plan.reason,
            started_at=now, duration_seconds=seconds, latency_seconds=waited + seconds,
        )  # fmt: skip
        counts = BranchCounts(first_event_at=now - waited, last_event_at=now, window_seconds=10.0, outputs=outputs)
        controller.learn(batch, units_by_source=(offered,), branches=counts)
        history.append((batch, plan))
        now, waited = now + seconds, max(seconds, 1.0)
    return history


@pytest.mark.parametrize("overload", [1.5, 3.0, 6.0])
def test_latency_is_held_and_the_machine_is_used(overload):
    heavy = [batch for batch, _ in run(overload=overload)][15:]

    latencies = np.array([batch.latency_seconds for batch in heavy])
    assert np.quantile(latencies, 0.9) < LATENCY_SECONDS
    # Half the target less the headroom is planned for; the machine does not idle either.
    assert np.median([batch.duration_seconds for batch in heavy]) > 0.3 * LATENCY_SECONDS / 2


def test_rates_settle_where_the_errors_of_all_outputs_are_equal():
    _, plan = run(overload=3.0)[-1]

    def error(name):
        share, _, mean, deviation = OUTPUTS[name]
        return np.hypot(1, deviation / mean) / (plan.keep_of(name) * np.sqrt(share))

    sampled = [name for name in OUTPUTS if plan.keep_of(name) < 1]
    assert "all" in sampled
    assert max(map(error, sampled)) / min(map(error, sampled)) < 1.1
    assert plan.keep_of("rare") > 5 * plan.keep_of("all")


def test_shedding_ends_with_the_overload():
    history = run(overload=0.4)

    assert all(not plan.sheds for _, plan in history[5:])
