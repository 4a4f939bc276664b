"""Turn Spark's progress reports into finished batches."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, TypedDict

from penstock.control.governor import Decision
from penstock.control.guidance import tuples_in
from penstock.model.batch import Batch
from penstock.spark.sources.offsets import partition_units, read_units, units_between, unread_units

# A partition with more than this many times the mean of the others is worth a word.
SKEW = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """What one progress report says, in our units.

    Attributes
    ----------
    phase_seconds
        What each phase of the batch took, by Spark's name for it.
    units_by_source, backlog_by_source
        Units that each source of the query read, and those that it had ready beyond; None where it does not tell.
    observed
        The metrics of each ``observe``, by its name.
    """

    batch_id: int
    started_at: float
    phase_seconds: Mapping[str, float]
    units_by_source: tuple[float | None, ...]
    backlog_by_source: tuple[float | None, ...]
    observed: Mapping[str, Mapping[str, Any]]
    unread_units: int = 0
    partition_units: Mapping[str, int] = field(default_factory=dict)
    partition_backlog: Mapping[str, int] = field(default_factory=dict)

    @property
    def duration_seconds(self) -> float:
        """Trigger to commit."""
        return self.phase_seconds["triggerExecution"]

    @property
    def overhead_seconds(self) -> float:
        """What the batch took beside its own job: planning, offsets, the write-ahead log, the commit."""
        return self.duration_seconds - self.phase_seconds["addBatch"]

    @property
    def offset_units(self) -> float | None:
        """Units that all sources read; None where one does not tell."""
        counted = [units for units in self.units_by_source if units is not None]
        return sum(counted) if len(counted) == len(self.units_by_source) else None

    @property
    def committed_at(self) -> float:
        """Seconds since the epoch at the commit."""
        return self.started_at + self.duration_seconds


def read_progress(report: Any) -> Progress | None:
    """Read a progress report; None for one that no batch stands behind (Spark reports idling too)."""
    durations = report["durationMs"]
    if "addBatch" not in durations:
        return None
    sources = report["sources"]
    return Progress(
        batch_id=report["batchId"],
        started_at=datetime.fromisoformat(report["timestamp"]).timestamp(),
        phase_seconds={phase: milliseconds / 1000 for phase, milliseconds in durations.items()},
        units_by_source=tuple(read_units(_text(s["startOffset"]), _text(s["endOffset"])) for s in sources),
        backlog_by_source=tuple(units_between(_text(s["endOffset"]), _text(s["latestOffset"])) for s in sources),
        unread_units=sum(unread_units(_text(s["endOffset"])) for s in sources),
        partition_units=_partitions(sources, "startOffset", "endOffset"),
        partition_backlog=_partitions(sources, "endOffset", "latestOffset"),
        observed={name: _fields(row) for name, row in (report["observedMetrics"] or {}).items()},
    )


def to_batch(
    progress: Progress,
    counts: Mapping[str, Any],
    decision: Decision,
    *,
    previous_started_at: float | None,
    tuples_per_unit: Sequence[float],
) -> Batch:
    """Join timing, counts and plan to the entry of the ledger."""
    counted = row_counts(counts, unread=progress.unread_units)
    oldest, mean = counts.get("oldest_micros"), counts.get("mean_micros")
    if oldest is not None:
        latency_seconds: float | None = progress.committed_at - oldest / 1e6
    elif previous_started_at is not None and counted["offered"]:
        # No tuple of this batch can have come before the batch before it was put together.
        latency_seconds = progress.committed_at - previous_started_at
    else:
        latency_seconds = None
    return Batch(
        batch_id=progress.batch_id,
        **counted,
        keep=decision.plan.keep,
        reason=decision.plan.reason,
        started_at=progress.started_at,
        duration_seconds=progress.duration_seconds,
        overhead_seconds=progress.overhead_seconds,
        latency_seconds=latency_seconds,
        mean_latency_seconds=None if mean is None else progress.committed_at - mean / 1e6,
        backlog_tuples=tuples_in(progress.backlog_by_source, tuples_per_unit),
        partition_offered=progress.partition_units,
        partition_backlog=progress.partition_backlog,
    )


class RowCounts(TypedDict):
    """The counts of a :class:`~penstock.model.batch.Batch`, by the names that it has for them."""

    offered: int
    kept: int
    shed: int
    unread: int
    listed_offered: int
    listed_kept: int
    failed: int


def row_counts(counts: Mapping[str, Any], *, unread: int) -> RowCounts:
    """Read what a batch counted, as a :class:`~penstock.model.batch.Batch` takes it; what was not read was shed too.

    Rows shed are those that were counted as such: were they the difference, a row that is lost would pass for shed.
    """
    return {
        "offered": int(counts["offered"]) + unread,
        "kept": int(counts["kept"]),
        "shed": int(counts["shed"]) + unread,
        "unread": unread,
        "listed_offered": int(counts.get("listed_offered") or 0),
        "listed_kept": int(counts.get("listed_kept") or 0),
        "failed": int(counts.get("failed") or 0),
    }


def skewed_partition(batch: Batch) -> str:
    """Name a partition that is far ahead of the others in input, or far behind in reading; empty if there is none.

    >>> from penstock.model.batch import Batch
    >>> even = {"clicks-0": 400, "clicks-1": 100, "clicks-2": 100, "clicks-3": 100}
    >>> batch = Batch(batch_id=1, offered=700, kept=700, shed=0, keep=1.0, reason="fits", partition_offered=even)
    >>> skewed_partition(batch)
    'skewed: partition clicks-0 brought 4.0 times as much as the others'
    """
    told = []
    for units, words in ((batch.partition_offered, "brought"), (batch.partition_backlog, "is behind by")):
        if len(units) < 2 or not any(units.values()):
            continue
        worst = max(units, key=lambda name: units[name])
        others = (sum(units.values()) - units[worst]) / (len(units) - 1)
        if units[worst] > SKEW * others:
            times = f"{units[worst] / others:.1f} times as much as the others" if others else "all there is"
            told.append(f"partition {worst} {words} {times}")
    return f"skewed: {'; '.join(told)}" if told else ""


def _partitions(sources: Any, start: str, end: str) -> dict[str, int]:
    counted: dict[str, int] = {}
    for source in sources:
        counted |= partition_units(_text(source[start]), _text(source[end]))
    return counted


def _text(offset: Any) -> str | None:
    return None if offset is None or offset == "null" else str(offset)


def _fields(row: Any) -> Mapping[str, Any]:
    fields: Mapping[str, Any] = row.asDict() if hasattr(row, "asDict") else dict(row)
    if set(fields) == {"values", "schema"}:
        # Spark Connect reports the row and its schema side by side.
        schema = json.loads(fields["schema"]) if isinstance(fields["schema"], str) else fields["schema"]
        named = schema.get("fields", schema)
        return dict(zip((field["name"] for field in named), fields["values"], strict=True))
    return fields
