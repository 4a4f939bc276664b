"""Plan one batch of an operator, on whichever executor comes first."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import ClassVar

from penstock.control.governor import CATCH_UP, Decision, Demand, Governor, expected_tuples
from penstock.control.guidance import Guidance, collecting_seconds
from penstock.control.workplan import WorkPlan, plan_work
from penstock.model.plan import Plan
from penstock.policy.constraint import Constraint
from penstock.policy.sequence import TuplePolicy
from penstock.sketch.cost_pair import CostPair
from penstock.spark.plan.planner import Planner
from penstock.spark.plan.work_log import WorkLog


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkPlanner(Planner):
    """A planner whose batches have budgets and learned costs; it travels to the executors by pickle."""

    CALLED: ClassVar[str] = "operator"

    policy: TuplePolicy
    constraint: Constraint

    @property
    def work(self) -> WorkLog:
        """The operator's part of the plan log."""
        return WorkLog(self.checkpoint / "penstock" / self.name)

    def decide(self, batch_id: int) -> Decision:
        """Return the decision for a batch: what its work plan says, and never a plan of the governor's own."""
        return _decision(self.work_plan(batch_id)[0])

    def work_plan(self, batch_id: int) -> tuple[WorkPlan, CostPair | None]:
        """Return the plan of a batch and the costs it rests on; the same however often it is asked."""
        log = self.work
        if (logged := log.plan(batch_id)) is not None:
            return logged
        learned, guidance, now = log.learned(), self.guidance(), time.time()
        demand = self._demand(batch_id, None)
        expected = expected_tuples(guidance, demand)
        if guidance.catch_up:
            plan = WorkPlan(batch_id=batch_id, decided_at=now, reason=CATCH_UP, expected_tuples=expected)
        else:
            plan = plan_work(
                learned,
                policy=self.policy,
                constraint=self.constraint,
                batch_id=batch_id,
                now=now,
                ends_at=demand.began_at,
                interval_seconds=_interval_seconds(self.governor, guidance, demand),
                expected_tuples=expected,
                grace_seconds=self.governor.grace_seconds,
                probe_tuples=self.governor.probe_tuples,
            )
        in_force = log.record(plan, learned.pair if learned else None)
        self.log.record(_decision(in_force[0]))
        return in_force


def _interval_seconds(governor: Governor, guidance: Guidance | None, demand: Demand) -> float | None:
    """How long the tuples of a batch have been arriving; an idle source did not collect any."""
    if demand.waited_seconds is None:
        return None
    committed_at = guidance.committed_at if guidance and guidance.batch_id == demand.batch_id - 1 else None
    return collecting_seconds(
        since_start=demand.waited_seconds,
        since_commit=None if committed_at is None else demand.began_at - committed_at,
        longest_batch_seconds=governor.batch_seconds,
    )


def _decision(plan: WorkPlan) -> Decision:
    """Lay a plan out for the ledger."""
    return Decision(
        batch_id=plan.batch_id,
        decided_at=plan.decided_at,
        plan=Plan(keep=plan.keep, reason=plan.reason),
        expected_tuples=plan.expected_tuples,
    )
