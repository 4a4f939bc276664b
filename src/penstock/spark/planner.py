"""Plan one batch, wherever that happens: on an executor inside the query, or on the driver."""

from __future__ import annotations

import time
from dataclasses import dataclass

from penstock.control.governor import Decision, Demand, Governor
from penstock.spark.offsets import batch_units, initial_offsets, read_entry
from penstock.spark.planlog import PlanLog
from penstock.spark.storepath import AnyPath


@dataclass(frozen=True, slots=True, kw_only=True)
class Planner:
    """Find the plan of a batch in the log, or make it from guidance and offsets and log it.

    It travels to the executors by pickle and holds nothing but values.
    """

    checkpoint: AnyPath
    governor: Governor
    name: str

    @property
    def log(self) -> PlanLog:
        """The plan log, beside Spark's own logs so that it is copied, moved and deleted with them."""
        return PlanLog(self.checkpoint / "penstock" / self.name)

    def decide(self, batch_id: int) -> Decision:
        """Return the decision for a batch; the same one however often it is asked."""
        log = self.log
        if (logged := log.decision(batch_id)) is not None:
            return logged
        governor = self.governing()
        recent = log.recent(batch_id, max(governor.dwell_batches, 1))
        demand = self._demand(batch_id, recent[-1] if recent else None)
        return log.record(governor.decide(log.guidance(), demand, recent))

    def governing(self) -> Governor:
        """The governor that decides the next batch."""
        return self.governor

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
        known = entry is not None and (before is not None or batch_id == 0)
        initial = initial_offsets(self.checkpoint, entry) if entry and batch_id == 0 else None
        return Demand(
            batch_id=batch_id,
            now=now,
            started_at=entry.batch_seconds if entry else None,
            waited_seconds=waited_seconds,
            units_by_source=batch_units(before, entry, initial=initial) if known and entry else (),
        )
