"""What the partitions of an operator decide by, and what is learned of them: values without the code that uses them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionState:
    """What a partition hands on to its next batch.

    Attributes
    ----------
    backlog_seconds
        Work beyond the budgets so far, as it was measured: the next batch has so much less.
    offered_share
        Share of the batch's rows that came to this partition.
    """

    backlog_seconds: float = 0.0
    offered_share: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkPlan:
    """What every partition of one batch decides by; with it the same rows are decided alike whenever they are read.

    Attributes
    ----------
    policy, constraint
        The rule that decides on each row, as plain settings; see :mod:`penstock.policy.recorded`.
    utility, true_cost
        Columns that the rule reads beside the key; None where it reads none.
    sheds
        Whether the policy decides: not before costs are learned, nor when the controller is silent. Without it, a
        ``keep`` below 1 is a first try at random.
    starts_at, interval_seconds
        When the rows of the batch began to arrive, and for how long they did.
    budget_seconds
        Work that each partition may do.
    mean_seconds, pace
        Mean cost, for items never seen, and what estimates are multiplied by.
    partitions
        State by partition id; a partition that is not listed starts afresh.
    sketch
        Digest of the learned costs in the plan log; None where the plan rests on none.
    """

    policy: Mapping[str, Any]
    constraint: Mapping[str, Any]
    utility: str | None = None
    true_cost: str | None = None
    sheds: bool = False
    starts_at: float = 0.0
    interval_seconds: float = 0.0
    budget_seconds: float = 0.0
    mean_seconds: float = 0.0
    pace: float = 1.0
    partitions: Mapping[int, PartitionState] = field(default_factory=dict)
    sketch: str | None = None

    def share(self, partition: int) -> float:
        """Seconds of work that a partition may do per second of arrivals.

        What it still owes is taken off evenly. As a queue that is there at the start it would shut out all that arrived
        first, cheap or dear.
        """
        # At most half: it was measured against another budget, and this one may be smaller than what is owed.
        owed_seconds = min(self.partitions.get(partition, PartitionState()).backlog_seconds, self.budget_seconds / 2)
        return (self.budget_seconds - owed_seconds) / self.interval_seconds

    def to_json(self) -> dict[str, Any]:
        """Convert to what JSON can hold.

        >>> plan = WorkPlan(policy={"kind": "LoadAware"}, constraint={}, partitions={3: PartitionState()})
        >>> WorkPlan.from_json(plan.to_json()) == plan
        True
        """
        return {**asdict(self), "partitions": states_to_json(self.partitions)}

    @staticmethod
    def from_json(fields: Mapping[str, Any]) -> WorkPlan:
        """Restore what :meth:`to_json` gave."""
        return WorkPlan(**{**fields, "partitions": states_from_json(fields["partitions"])})


@dataclass(frozen=True, slots=True, kw_only=True)
class LearnedWork:
    """What the driver knows of an operator's work after some batch, in the form that travels to where plans are made.

    Attributes
    ----------
    batch_id
        The last batch whose partitions reported; None before the first.
    fixed_seconds
        What a batch takes beyond the operator's work.
    pace
        What estimates are multiplied by, where everything got slower or faster at once.
    partitions
        State by partition id.
    mean_seconds
        Mean cost of a row; None where none was learned.
    sketch
        Digest of the costs by key in the plan log; None where none were learned.
    """

    batch_id: int | None = None
    fixed_seconds: float = 0.2
    pace: float = 1.0
    partitions: Mapping[int, PartitionState] = field(default_factory=dict)
    mean_seconds: float | None = None
    sketch: str | None = None

    @staticmethod
    def from_json(fields: Mapping[str, Any]) -> LearnedWork:
        """Restore from what JSON holds."""
        return LearnedWork(**{**fields, "partitions": states_from_json(fields["partitions"])})


def states_to_json(states: Mapping[int, PartitionState]) -> dict[str, Any]:
    """Convert the states of partitions to what JSON can hold, whose keys are text."""
    return {str(number): asdict(state) for number, state in states.items()}


def states_from_json(fields: Mapping[str, Any]) -> dict[int, PartitionState]:
    """Restore what :func:`states_to_json` gave."""
    return {int(number): PartitionState(**state) for number, state in fields.items()}
