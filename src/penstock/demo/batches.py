"""The batches of a run, and from them the exact latency of every row."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from pyspark.sql.streaming.query import StreamingQuery

from penstock.demo.timetable import phase_at
from penstock.model.arrivals import Arrivals
from penstock.spark.run.progress import read_progress

POLL_SECONDS = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class Committed:
    """One committed batch as Spark reports it: its rows by number, when it was triggered, and what took how long."""

    batch_id: int
    start: int
    end: int
    started_at: float
    duration_seconds: float
    spark_ms: Mapping[str, int]

    @property
    def rows(self) -> int:
        """Rows that the batch covers."""
        return self.end - self.start

    @property
    def committed_at(self) -> float:
        """Seconds since the epoch at the commit."""
        return self.started_at + self.duration_seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoBatch:
    """One committed batch in the time of the stream: what it kept, and how late it was.

    ``latency_seconds`` is that of its oldest row, arrival to commit; ``phase`` is the one its last row arrived in.
    """

    batch_id: int
    phase: str
    first_row: int
    offered: int
    kept: int
    started_seconds: float
    duration_seconds: float
    latency_seconds: float
    reason: str
    spark_ms: Mapping[str, int]

    @property
    def committed_seconds(self) -> float:
        """When it was committed."""
        return self.started_seconds + self.duration_seconds


def on_stream(
    batch: Committed, arrivals: Arrivals, *, epoch: float, seconds: float, kept: int, reason: str = ""
) -> DemoBatch:
    """Place a batch on a stream of this length that began at ``epoch``."""
    oldest, newest = arrivals.arrival_seconds([batch.start, batch.end - 1]).tolist()
    return DemoBatch(
        batch_id=batch.batch_id,
        phase=phase_at(newest, seconds),
        first_row=batch.start,
        offered=batch.rows,
        kept=kept,
        started_seconds=batch.started_at - epoch,
        duration_seconds=batch.duration_seconds,
        latency_seconds=batch.committed_at - epoch - oldest,
        reason=reason,
        spark_ms=batch.spark_ms,
    )


def follow(query: StreamingQuery, *, until: float, beside: Callable[[], None] = lambda: None) -> Iterator[Committed]:
    """Yield batches with rows as they are committed, up to a time; call ``beside`` all the while."""
    latest: Committed | None = None
    while time.time() < until:
        beside()
        # All reports that Spark remembers take a good part of a core to read: only if there is a new one.
        last = query.lastProgress
        if last and last["batchId"] > (-1 if latest is None else latest.batch_id):
            for batch in batches_after(latest, query.recentProgress):
                yield batch
                latest = batch
        if not query.isActive:
            raise query.exception() or RuntimeError("the demo's query stopped before its end")
        time.sleep(POLL_SECONDS)


def batches_after(latest: Committed | None, reports: Iterable[Any]) -> Iterator[Committed]:
    """Read the batches that come after one that is known."""
    for report in reports:
        progress = read_progress(report)
        if progress is None or not progress.offset_units:
            continue
        if latest is None or progress.batch_id > latest.batch_id:
            start = 0 if latest is None else latest.end
            latest = Committed(
                batch_id=progress.batch_id,
                start=start,
                end=start + int(progress.offset_units),
                started_at=progress.started_at,
                duration_seconds=progress.duration_seconds,
                spark_ms=dict(report["durationMs"]),
            )
            yield latest


def latencies(batches: Iterable[DemoBatch], arrivals: Arrivals) -> npt.NDArray[np.float64]:
    """Latency of every row of the timetable, arrival to commit; infinite for one that no batch has committed."""
    committed = np.full(arrivals.total_tuples, np.inf)
    for batch in batches:
        committed[batch.first_row : batch.first_row + batch.offered] = batch.committed_seconds
    return committed - arrivals.arrival_seconds(np.arange(arrivals.total_tuples))


def kept_shares(batches: Iterable[DemoBatch], arrivals: Arrivals) -> npt.NDArray[np.float64]:
    """Share that was kept of the batch of every row of the timetable; 0 for one that no batch has committed."""
    shares = np.zeros(arrivals.total_tuples)
    for batch in batches:
        shares[batch.first_row : batch.first_row + batch.offered] = batch.kept / batch.offered
    return shares
