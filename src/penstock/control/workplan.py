"""Hold a Python operator inside its latency: budgets per partition, by learned costs and the backlog of each.

In a micro-batch the operator's queue is the batch. A batch of tuples that arrived within an interval may take so much
work per partition, its *budget*; in the time of the arrivals the operator thus serves ``budget / interval`` seconds of
work per second. The policies of :mod:`penstock.policy` decide on that virtual queue, tuple by tuple, from the logged
plan alone: a replayed batch sheds the same tuples, however long they take to execute the second time.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from penstock.control.governor import CATCH_UP, Decision, Demand, expected_tuples
from penstock.control.guidance import Guidance, collecting_seconds
from penstock.control.target import Target
from penstock.model.errors import PlanLogError
from penstock.model.plan import Plan
from penstock.model.work_plan import WorkPlan
from penstock.policy.recorded import from_settings, to_settings
from penstock.policy.rows.constraint import MAXIMUM, Constraint
from penstock.policy.rows.load_aware import BY_DENSITY, LEARNED, TRUE
from penstock.policy.rows.sequence import TuplePolicy
from penstock.policy.rows.shedding import NOP, RUN

# A tuple waits for the batch before it, half of that on average and all of it at worst, and then for its own batch.
MEAN_BATCH_SHARE, WORST_BATCH_SHARE = 0.58, 0.42
# The virtual queue may hold this share of the interval: enough to even out expensive tuples, little of the latency.
QUEUE_SHARE, QUEUE_TUPLES = 0.05, 3.0
LEAST_BUDGET_SHARE = 0.1
NEGLIGIBLE = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class RowRule:
    """The rule by which the partitions of an operator decide on rows, and the columns that it may read.

    Attributes
    ----------
    policy, constraint
        What decides, and what it holds.
    utility, true_cost
        Columns that say what a row is worth, and what it costs; None where the stream has none.
    """

    policy: TuplePolicy
    constraint: Constraint
    utility: str | None = None
    true_cost: str | None = None

    def plan(self) -> WorkPlan:
        """Begin a plan by this rule, with all that is needed to apply it again."""
        return WorkPlan(
            policy=to_settings(self.policy),
            constraint=to_settings(self.constraint),
            utility=self.utility if self.policy.RULE == BY_DENSITY else None,
            true_cost=self.true_cost if self.policy.KNOWS == TRUE else None,
        )

    def of(self, plan: WorkPlan, *, batch_id: int) -> RowRule:
        """Find the rule that a plan was made for, whatever this one is."""
        if not plan.sheds:
            # All is kept, or a share at random: no rule looks at a row.
            return self
        of = f"batch {batch_id}"
        rule = replace(
            self,
            policy=from_settings(plan.policy, now=self.policy, of=of),
            constraint=from_settings(plan.constraint, now=self.constraint, of=of),
        )
        needed = rule.plan()
        for name in ("utility", "true_cost"):
            was, found = getattr(plan, name), getattr(needed, name)
            if was != found:
                raise PlanLogError(
                    f"batch {batch_id} was decided by {plan.policy['kind']} with {name}={was!r}, and the query is "
                    f"started with {name}={getattr(self, name)!r}; go back to the former until that batch is "
                    "committed, or start from a new checkpoint"
                )
        return rule

    def shedder(self, plan: WorkPlan, partition: int) -> np.ndarray:
        """Make the state in which a partition's shedder starts, on the clock of the arrivals."""
        if not plan.sheds:
            shedder = self.policy.shedder(self.constraint)
            shedder["state"] = NOP
            return shedder
        # Room for a few tuples at least, or a single expensive one would shut out all that come after it.
        share = plan.share(partition)
        queued_seconds = max(QUEUE_SHARE * plan.interval_seconds, QUEUE_TUPLES * plan.mean_seconds / share)
        shedder = self.policy.shedder(replace(self.constraint, seconds=queued_seconds))
        shedder["state"] = RUN
        shedder["fallback_seconds"] = plan.mean_seconds
        # Waiting in the virtual queue harms nobody: a tuple that costs next to nothing need not be shed for it.
        shedder["negligible_seconds"] = NEGLIGIBLE * plan.mean_seconds
        # An hour of work at a share of a half takes two: in the time of arrivals, costs grow by the inverse.
        shedder["margin"] = 1.0 / share
        return shedder


def budget_seconds(constraint: Constraint, fixed_seconds: float) -> float:
    """Work that a partition may do in a batch, so that results leave in time.

    With batches back to back, a tuple waits half a batch on average for its own to begin, then for all of it: with a
    mean to hold, a batch may take 0.58 of the target (1.5 times that is 0.87 of it). For the worst tuple it is a whole
    batch and 0.42. What a batch costs beyond the operator's work is taken off.

    >>> from penstock.policy.rows.constraint import AverageLatency
    >>> round(budget_seconds(AverageLatency(seconds=2.0), fixed_seconds=0.16), 2)
    1.0
    """
    share = WORST_BATCH_SHARE if constraint.KIND == MAXIMUM else MEAN_BATCH_SHARE
    return max(share * constraint.seconds - fixed_seconds, LEAST_BUDGET_SHARE * constraint.seconds)


def plan_work(guidance: Guidance, demand: Demand, *, rule: RowRule, target: Target) -> Decision:
    """Plan one batch from what is known before it runs."""
    expected = expected_tuples(guidance, demand)
    if guidance.catch_up:
        return _decision(demand, rule.plan(), expected=expected, reason=CATCH_UP)
    first = _first_try(demand, rule, expected, target)
    learned, interval_seconds = guidance.work, _interval_seconds(guidance, demand, target)
    if learned is None or interval_seconds is None or interval_seconds <= 0:
        return first
    silent_seconds = demand.now - guidance.published_at
    if silent_seconds > target.grace_seconds:
        silent = f"the controller has been silent for {silent_seconds:.0f} s: keeping all"
        return _decision(demand, rule.plan(), expected=expected, reason=silent)
    learns = rule.policy.KNOWS == LEARNED
    if learned.mean_seconds is None and learns:
        return first
    mean_seconds = float((learned.mean_seconds if learns else getattr(rule.policy, "mean_seconds", None)) or 0.0)
    budget = budget_seconds(rule.constraint, learned.fixed_seconds)
    partitions = dict(learned.partitions)
    if learned.batch_id != demand.batch_id - 1:
        # The batch in between, of which nothing is known yet, had less to spend for the same backlog.
        partitions = {number: replace(state, backlog_seconds=0.0) for number, state in partitions.items()}
    count = max(1, len(partitions))
    keep, offered = 1.0, "?"
    if expected is not None and mean_seconds > 0 and expected > 0:
        work_seconds = expected * mean_seconds / count
        keep = min(1.0, budget / work_seconds)
        offered = f"{work_seconds:.2f}"
    late = ", ".join(
        f"{number} late by {state.backlog_seconds:.2f} s"
        for number, state in sorted(partitions.items())
        if state.backlog_seconds > 0.005
    )
    reason = (
        f"{offered} s of work a partition for a budget of {budget:.2f} s in {interval_seconds:.2f} s of arrivals"
        + (f"; partition {late}" if late else "")
    )
    work = replace(
        rule.plan(),
        sheds=True,
        starts_at=demand.began_at - interval_seconds,
        interval_seconds=interval_seconds,
        budget_seconds=budget,
        mean_seconds=mean_seconds,
        pace=learned.pace if learns else 1.0,
        partitions=partitions,
        sketch=learned.sketch if learns else None,
    )
    return _decision(demand, work, expected=expected, reason=reason, keep=keep)


def _first_try(demand: Demand, rule: RowRule, expected: float | None, target: Target) -> Decision:
    """Bound the first batch, when nobody knows yet what a tuple costs."""
    probe_tuples = target.probe_tuples
    if expected is None or expected <= probe_tuples:
        return _decision(demand, rule.plan(), expected=expected, reason="costs not learned yet: keeping all")
    reason = f"cold start: costs not learned yet, trying {probe_tuples:,} of {expected:,.0f} tuples"
    return _decision(demand, rule.plan(), expected=expected, reason=reason, keep=probe_tuples / expected)


def _decision(demand: Demand, work: WorkPlan, *, expected: float | None, reason: str, keep: float = 1.0) -> Decision:
    return Decision(
        batch_id=demand.batch_id,
        decided_at=demand.now,
        plan=Plan(keep=keep, reason=reason, work=work),
        expected_tuples=expected,
    )


def _interval_seconds(guidance: Guidance, demand: Demand, target: Target) -> float | None:
    """How long the tuples of a batch have been arriving; an idle source did not collect any."""
    if demand.waited_seconds is None:
        return None
    committed_at = guidance.committed_at if guidance.batch_id == demand.batch_id - 1 else None
    return collecting_seconds(
        since_start=demand.waited_seconds,
        since_commit=None if committed_at is None else demand.began_at - committed_at,
        longest_batch_seconds=target.batch_seconds,
    )
