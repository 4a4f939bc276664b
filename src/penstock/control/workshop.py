"""Learn from what the partitions of an operator report: costs merge, backlogs stay apart."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import median

import numpy as np

from penstock.control.governor import Decision
from penstock.model.errors import InvalidInputError, require_not_negative
from penstock.model.work_plan import LearnedWork, PartitionState, WorkPlan
from penstock.policy.rows.constraint import Constraint
from penstock.policy.rows.load_aware import LEARNED, MEAN
from penstock.policy.rows.sequence import TuplePolicy
from penstock.sketch.cost_pair import COST, COUNT, CostPair

# Few: what a batch costs beyond its work falls for seconds after a start, and budgets must follow.
FIXED_REMEMBERED = 3
SLOWEST_PACE, FASTEST_PACE = 0.2, 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionReport:
    """What one partition of a batch did; the task reports it with its last row.

    Attributes
    ----------
    partition, offered, kept
        Which, and its counts.
    failed, silent
        Kept tuples on which the operator raised, and on which it returned nothing.
    work_seconds
        Time that the operator took, measured.
    arrived_at
        Mean arrival of the kept tuples, in seconds since the epoch; None where nobody knows.
    pair
        What was learned in this batch alone, each survivor as often as it stands for.
    executed
        The same, each survivor once: what the operator really did.
    """

    partition: int
    offered: int
    kept: int
    failed: int
    silent: int
    work_seconds: float
    pair: CostPair
    executed: CostPair
    arrived_at: float | None = None


class Workshop:
    """Learn from the reports of finished batches; events in, :class:`LearnedWork` out."""

    def __init__(
        self,
        policy: TuplePolicy,
        constraint: Constraint,
        *,
        resume: LearnedWork | None = None,
        pair: CostPair | None = None,
    ) -> None:
        if constraint.seconds <= 0:
            raise InvalidInputError(f"the latency must be above 0 s, got {constraint.seconds!r}; no batch ends at once")
        self._policy = policy
        self._known = resume or LearnedWork()
        # What a policy with sketches of another shape has learned cannot be added to.
        self._pair = pair if pair is not None and pair.shape == policy.learning.shape else None
        self._batches = 0
        self._fixed: deque[float] = deque(maxlen=FIXED_REMEMBERED)

    def learn(self, reports: Sequence[PartitionReport], decision: Decision, *, duration_seconds: float) -> None:
        """Take in one batch: merge the sketches, keep the backlogs apart."""
        require_not_negative("duration_seconds", duration_seconds, meaning="how long the batch took")
        plan = decision.plan.work
        if plan is None or not any(report.offered for report in reports):
            return
        known = self._known
        offered = sum(report.offered for report in reports)
        self._pair, pace = self._costs(reports)
        self._known = replace(
            known,
            batch_id=decision.batch_id,
            partitions={
                report.partition: self._state(report, plan, known.partitions.get(report.partition), offered)
                for report in reports
            },
            fixed_seconds=self._fixed_seconds(reports, duration_seconds),
            pace=pace,
        )
        self._batches += 1

    @property
    def pair(self) -> CostPair | None:
        """Costs by key; None before any were learned."""
        return self._pair

    def learned(self, *, sketch: str | None = None) -> LearnedWork:
        """Give what is known, with the name under which the costs by key are found."""
        mean_seconds = self._pair.mean_seconds if self._pair is not None else None
        return replace(self._known, mean_seconds=mean_seconds, sketch=sketch)

    def _state(
        self, report: PartitionReport, plan: WorkPlan, before: PartitionState | None, offered: int
    ) -> PartitionState:
        # Lindley's recursion over measured work: what went beyond the budget is still owed, spare time is not saved.
        # At most half a budget is carried, for a late batch also lengthens the interval of the next one.
        owed = before.backlog_seconds if before and plan.sheds else 0.0
        budget = plan.budget_seconds
        backlog = min(max(0.0, owed + report.work_seconds - budget), budget / 2) if plan.sheds else 0.0
        if self._policy.KNOWS == MEAN:
            # Straw-Man never hears back, as in the paper.
            backlog = 0.0
        return PartitionState(backlog_seconds=backlog, offered_share=report.offered / offered)

    def _fixed_seconds(self, reports: Sequence[PartitionReport], duration_seconds: float) -> float:
        if self._batches == 0:
            # The first batch of a run starts workers and compiles code.
            return self._known.fixed_seconds
        own = max(0.0, duration_seconds - max(report.work_seconds for report in reports))
        # The median: a batch that started new workers says nothing about the next one.
        self._fixed.append(own)
        return median(self._fixed)

    def _costs(self, reports: Sequence[PartitionReport]) -> tuple[CostPair | None, float]:
        learning = self._policy.learning
        fresh, executed = CostPair(learning.shape), CostPair(learning.shape)
        for report in reports:
            fresh, executed = fresh.merge(report.pair), executed.merge(report.executed)
        if self._policy.KNOWS != LEARNED or not fresh.executed:
            return self._pair, self._known.pace
        pair = fresh if self._pair is None else self._pair.merge(fresh)
        return pair.faded(_fading(pair, learning.fade_above_tuples)), _pace(executed, pair)


def _fading(pair: CostPair, above_tuples: float) -> float:
    return min(1.0, above_tuples / pair.executed)


def _pace(fresh: CostPair, merged: CostPair) -> float:
    """Compare what a batch took with what the merged sketch now expects of it, cell by cell.

    When everything gets slower at once, the sketch follows over some batches; this ratio knows it after one. Every
    execution counts once: a survivor that stands for twenty would make the ratio jump from batch to batch.
    """
    counts, costs = merged.cells[..., COUNT], merged.cells[..., COST]
    expected = np.divide(costs, counts, out=np.zeros_like(costs), where=counts > 0) * fresh.cells[..., COUNT]
    total = float(expected.sum())
    pace = float(fresh.cells[..., COST].sum()) / total if total > 0 else 1.0
    return min(max(pace, SLOWEST_PACE), FASTEST_PACE)
