"""Plan one batch, wherever that happens: on an executor inside the query, or on the driver."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar

from penstock.control.governor import Decision, Demand, Governor
from penstock.control.guidance import Guidance
from penstock.control.target import Target
from penstock.model.errors import NotSupportedError
from penstock.spark.plan.log import PlanLog
from penstock.spark.sources.offsets import OffsetEntry, batch_units, initial_offsets, read_entry
from penstock.spark.store.paths import AnyPath


@dataclass(frozen=True, slots=True, kw_only=True)
class Planner(ABC):
    """Find the plan of a batch in the log, or make it from guidance and offsets and log it.

    It travels to the executors by pickle and holds nothing but values. Each kind of query says how a plan is made; that
    it is made once, is the log's.
    """

    # What users call it that plans are made for.
    CALLED: ClassVar[str] = "query"

    checkpoint: AnyPath
    name: str

    @property
    @abstractmethod
    def target(self) -> Target:
        """The latency that plans are to hold."""

    @abstractmethod
    def make(self, batch_id: int) -> Decision:
        """Plan a batch that has no plan yet."""

    @property
    def log(self) -> PlanLog:
        """The plan log, beside Spark's own logs so that it is copied, moved and deleted with them."""
        return PlanLog(self.checkpoint / "penstock" / self.name)

    def decide(self, batch_id: int) -> Decision:
        """Return the decision for a batch; the same one however often it is asked."""
        return self.log.decide(batch_id, partial(self.make, batch_id))

    def guidance(self) -> Guidance:
        """Read what the controller has learned; refuse to plan for a query that has none.

        A controller publishes before it starts its query, and says when it has stopped. One that died says nothing:
        then plans rest on what it published last, for the target's grace.
        """
        guidance = self.log.guidance()
        if guidance is not None and not guidance.stopped:
            return guidance
        raise NotSupportedError(
            f"nobody controls the {self.CALLED} {self.name!r} on the checkpoint {self.checkpoint}: no batch would be "
            "counted, nor its cost learned, and rows would be dropped blindly. Start the query with "
            f"{self.CALLED}.start(writer), not with writer.start(). A query has room for one {self.CALLED}: where it "
            "has two, let the other one go, or make two queries of it"
        )

    def resume(self) -> Guidance | None:
        """Read what an earlier run has learned; None before the first."""
        return self.log.guidance()

    def counts(self, batch_id: int) -> Mapping[str, Any] | None:
        """Read what a batch counted before its commit; None where that is left to Spark's progress."""
        return self.log.counts(batch_id)

    def units_by_source(self, batch_id: int) -> tuple[float | None, ...]:
        """Count, by source, the units that a batch reads; empty where Spark's offset log does not tell."""
        entry = read_entry(self.checkpoint, batch_id)
        before = read_entry(self.checkpoint, batch_id - 1) if batch_id else None
        return self._units(before, entry, batch_id)

    def _units(self, before: OffsetEntry | None, entry: OffsetEntry | None, batch_id: int) -> tuple[float | None, ...]:
        if entry is None or (before is None and batch_id > 0):
            return ()
        initial = None if before else initial_offsets(self.checkpoint, entry)
        return batch_units(before, entry, initial=initial)

    def _demand(self, batch_id: int, last: Decision | None) -> Demand:
        now = time.time()
        entry = read_entry(self.checkpoint, batch_id)
        before = read_entry(self.checkpoint, batch_id - 1) if batch_id else None
        if entry and before:
            waited_seconds: float | None = max(0.0, entry.batch_seconds - before.batch_seconds)
        elif last and last.batch_id == batch_id - 1:
            waited_seconds = max(0.0, now - last.decided_at)
        else:
            waited_seconds = None
        return Demand(
            batch_id=batch_id,
            now=now,
            started_at=entry.batch_seconds if entry else None,
            waited_seconds=waited_seconds,
            units_by_source=self._units(before, entry, batch_id),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ShedPlanner(Planner):
    """A planner whose batches get keep rates from a governor.

    ``value`` is the numeric column that plans by value go by. It is part of such a plan, for another column would keep
    other rows.
    """

    CALLED: ClassVar[str] = "shedder"

    governor: Governor
    value: str | None = None

    @property
    def target(self) -> Target:
        """What the governor holds."""
        return self.governor

    def make(self, batch_id: int) -> Decision:
        """Plan a batch with what the controller has learned so far."""
        guidance = self.guidance()
        recent = self.log.recent(batch_id, 1)
        demand = self._demand(batch_id, recent[-1] if recent else None)
        decision = self.governing(guidance).decide(guidance, demand, recent)
        if decision.plan.by_group is None:
            return decision
        by_group = replace(decision.plan.by_group, value=self.value)
        return replace(decision, plan=replace(decision.plan, by_group=by_group))

    def governing(self, _guidance: Guidance) -> Governor:
        """The governor that decides the next batch."""
        return self.governor
