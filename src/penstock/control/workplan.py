"""Hold a Python operator inside its latency: budgets per partition, learned costs, one backlog per partition.

In a micro-batch the operator's queue is the batch. A batch of tuples that arrived within an interval may take so much
work per partition, its *budget*; in the time of the arrivals the operator thus serves ``budget / interval`` seconds of
work per second. The policies of :mod:`penstock.policy` decide on that virtual queue, tuple by tuple, from the logged
plan alone: a replayed batch sheds the same tuples, however long they take to execute the second time.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from penstock.policy.constraint import MAXIMUM, Constraint
from penstock.policy.load_aware import LEARNED
from penstock.policy.sequence import TuplePolicy
from penstock.policy.shedding import NOP, RUN
from penstock.sketch.cost_pair import CostPair

# A tuple waits for the batch before it, half of that on average and all of it at worst, and then for its own batch.
MEAN_BATCH_SHARE, WORST_BATCH_SHARE = 0.58, 0.42
# The virtual queue may hold this share of the interval: enough to even out expensive tuples, little of the latency.
QUEUE_SHARE, QUEUE_TUPLES = 0.05, 3.0
LEAST_BUDGET_SHARE = 0.1
NEGLIGIBLE = 0.05
FIRST_FIXED_SECONDS = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionState:
    """What a partition hands on to its next batch.

    Attributes
    ----------
    backlog_seconds
        Work beyond the budgets so far, as it was measured: the next batch has so much less.
    offered_share
        Share of the batch's tuples that came to this partition.
    """

    backlog_seconds: float = 0.0
    offered_share: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkPlan:
    """What every partition of one batch decides by; an entry of the plan log.

    Attributes
    ----------
    batch_id, decided_at, reason, keep
        As in any plan; ``keep`` is the share that is expected to survive.
    sheds
        Whether the policy decides: not before costs are learned, nor when the controller is silent. Without it, a
        ``keep`` below 1 is a first try at random.
    starts_at, interval_seconds
        When the tuples of the batch began to arrive, and for how long they did.
    budget_seconds
        Work that each partition may do.
    expected_tuples
        Tuples that the batch should hold; None where that is unknown.
    mean_seconds, pace
        Mean cost, for items never seen, and what estimates are multiplied by.
    partitions
        State by partition id; a partition that is not listed starts afresh.
    """

    batch_id: int
    decided_at: float
    reason: str
    keep: float = 1.0
    sheds: bool = False
    starts_at: float = 0.0
    interval_seconds: float = 0.0
    budget_seconds: float = 0.0
    expected_tuples: float | None = None
    mean_seconds: float = 0.0
    pace: float = 1.0
    partitions: Mapping[int, PartitionState] = field(default_factory=dict)

    def share(self, partition: int) -> float:
        """Seconds of work that a partition may do per second of arrivals.

        What it still owes is taken off evenly. As a queue that is there at the start it would shut out all that arrived
        first, cheap or dear.
        """
        # At most half: it was measured against another budget, and this one may be smaller than what is owed.
        owed_seconds = min(self.partitions.get(partition, PartitionState()).backlog_seconds, self.budget_seconds / 2)
        return (self.budget_seconds - owed_seconds) / self.interval_seconds

    def shedder(self, policy: TuplePolicy, constraint: Constraint, partition: int) -> np.ndarray:
        """Make the state in which a partition's shedder starts, on the clock of the arrivals."""
        if not self.sheds:
            shedder = policy.shedder(constraint)
            shedder["state"] = NOP
            return shedder
        # Room for a few tuples at least, or a single expensive one would shut out all that come after it.
        share = self.share(partition)
        queued_seconds = max(QUEUE_SHARE * self.interval_seconds, QUEUE_TUPLES * self.mean_seconds / share)
        shedder = policy.shedder(replace(constraint, seconds=queued_seconds))
        shedder["state"] = RUN
        shedder["fallback_seconds"] = self.mean_seconds
        # Waiting in the virtual queue harms nobody: a tuple that costs next to nothing need not be shed for it.
        shedder["negligible_seconds"] = NEGLIGIBLE * self.mean_seconds
        # An hour of work at a share of a half takes two: in the time of arrivals, costs grow by the inverse.
        shedder["margin"] = 1.0 / share
        return shedder


@dataclass(frozen=True, slots=True, kw_only=True)
class Learned:
    """What the driver knows after some batch, in the form that travels to where plans are made."""

    published_at: float
    batch_id: int | None = None
    fixed_seconds: float = FIRST_FIXED_SECONDS
    pace: float = 1.0
    partitions: Mapping[int, PartitionState] = field(default_factory=dict)
    pair: CostPair | None = None


def budget_seconds(constraint: Constraint, fixed_seconds: float) -> float:
    """Work that a partition may do in a batch, so that results leave in time.

    With batches back to back, a tuple waits half a batch on average for its own to begin, then for all of it: with a
    mean to hold, a batch may take 0.58 of the target (1.5 times that is 0.87 of it). For the worst tuple it is a whole
    batch and 0.42. What a batch costs beyond the operator's work is taken off.

    >>> from penstock.policy.constraint import AverageLatency
    >>> round(budget_seconds(AverageLatency(seconds=2.0), fixed_seconds=0.16), 2)
    1.0
    """
    share = WORST_BATCH_SHARE if constraint.KIND == MAXIMUM else MEAN_BATCH_SHARE
    return max(share * constraint.seconds - fixed_seconds, LEAST_BUDGET_SHARE * constraint.seconds)


def plan_work(
    learned: Learned | None,
    *,
    policy: TuplePolicy,
    constraint: Constraint,
    batch_id: int,
    now: float,
    ends_at: float,
    interval_seconds: float | None,
    expected_tuples: float | None,
    grace_seconds: float,
    probe_tuples: int,
) -> WorkPlan:
    """Plan one batch from what is known before it runs."""
    plan = _first_try(
        WorkPlan(batch_id=batch_id, decided_at=now, reason="", expected_tuples=expected_tuples), probe_tuples
    )
    if learned is None or interval_seconds is None or interval_seconds <= 0:
        return plan
    if now - learned.published_at > grace_seconds:
        silent = f"the controller has been silent for {now - learned.published_at:.0f} s: keeping all"
        return replace(plan, reason=silent, keep=1.0)
    if policy.KNOWS == LEARNED and (learned.pair is None or learned.pair.mean_seconds is None):
        return plan
    mean_seconds = _mean_seconds(policy, learned)
    budget = budget_seconds(constraint, learned.fixed_seconds)
    partitions = dict(learned.partitions)
    if learned.batch_id != batch_id - 1:
        # The batch in between, of which nothing is known yet, had less to spend for the same backlog.
        partitions = {number: replace(state, backlog_seconds=0.0) for number, state in partitions.items()}
    count = max(1, len(partitions))
    keep, offered = 1.0, "?"
    if expected_tuples is not None and mean_seconds > 0 and expected_tuples > 0:
        work_seconds = expected_tuples * mean_seconds / count
        keep = min(1.0, budget / work_seconds)
        offered = f"{work_seconds:.2f}"
    late = ", ".join(
        f"{number} late by {state.backlog_seconds:.2f} s"
        for number, state in sorted(partitions.items())
        if state.backlog_seconds > 0.005
    )
    return replace(
        plan,
        reason=f"{offered} s of work a partition for a budget of {budget:.2f} s in {interval_seconds:.2f} s of arrivals"
        + (f"; partition {late}" if late else ""),
        keep=keep,
        sheds=True,
        starts_at=ends_at - interval_seconds,
        interval_seconds=interval_seconds,
        budget_seconds=budget,
        mean_seconds=mean_seconds,
        pace=learned.pace if policy.KNOWS == LEARNED else 1.0,
        partitions=partitions,
    )


def _first_try(plan: WorkPlan, probe_tuples: int) -> WorkPlan:
    """Bound the first batch, when nobody knows yet what a tuple costs."""
    expected = plan.expected_tuples
    if expected is None or expected <= probe_tuples:
        return replace(plan, reason="costs not learned yet: keeping all")
    reason = f"cold start: costs not learned yet, trying {probe_tuples:,} of {expected:,.0f} tuples"
    return replace(plan, reason=reason, keep=probe_tuples / expected)


def _mean_seconds(policy: TuplePolicy, learned: Learned) -> float:
    if policy.KNOWS != LEARNED:
        return float(getattr(policy, "mean_seconds", 0.0))
    return (learned.pair.mean_seconds if learned.pair else None) or 0.0
