"""Run several policies and plain Spark on the same stream at the same time, and trace each batch by batch."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from lab.streams.timetable import release, timetable_stream
from penstock.model.batch import Batch
from penstock.policy.rows.sequence import TuplePolicy
from penstock.spark.daemon import SETTINGS
from penstock.spark.operator import operator
from penstock.spark.run.handle import Run
from penstock.spark.run.progress import read_progress
from penstock.spark.session import local_session

PLAIN = "plain Spark"
WARM_UP_BATCHES = 2
WARM_UP_PATIENCE_SECONDS = 60.0
# Work is slept, and all that runs hot is Spark's planning: for half a minute the quick compiler alone serves it best.
YOUNG = {"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1"}


@dataclass(frozen=True, slots=True)
class Trace:
    """What a query did, batch by batch: mean arrival, offered, kept, and completion latency of the kept."""

    arrived_at: NDArray[np.float64]
    offered: NDArray[np.float64]
    kept: NDArray[np.float64]
    latency_seconds: NDArray[np.float64]

    def between(self, start: float, end: float) -> Trace:
        """The batches whose tuples arrived, on average, within a time."""
        own = (self.arrived_at >= start) & (self.arrived_at < end)
        return Trace(self.arrived_at[own], self.offered[own], self.kept[own], self.latency_seconds[own])

    @property
    def mean_seconds(self) -> float:
        """Mean completion latency of the kept tuples."""
        kept = self.kept.sum()
        return float((self.latency_seconds * self.kept).sum() / kept) if kept else float("nan")

    @property
    def dropped(self) -> float:
        """Share of the offered tuples that was shed."""
        return float(1 - self.kept.sum() / self.offered.sum()) if self.offered.sum() else float("nan")


def execute(row: Mapping[str, Any]) -> dict[str, Any]:
    """The expensive operator: takes as long as the row says."""
    time.sleep(row["cost_seconds"])
    return {"id": row["id"]}


def side_by_side(
    timetable: Path,
    policies: Mapping[str, TuplePolicy],
    *,
    latency_seconds: float,
    seconds: float,
    warm_up_batches: int = WARM_UP_BATCHES,
) -> dict[str, Trace]:
    """Run plain Spark and every policy on a timetable, until so long after the end of its warm-up.

    The warm-up ends when every query has finished ``warm_up_batches``. A session that is there is used, and left open.
    """
    borrowed = SparkSession.getActiveSession() is not None
    spark = local_session(
        cores=2 * (len(policies) + 1),
        settings={**SETTINGS, **YOUNG, "spark.sql.streaming.numRecentProgressUpdates": "1000"},
        log_path=Path(tempfile.gettempdir()) / "penstock-reproduce-spark.log",
    )
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(ignore_cleanup_errors=True)))
        epoch = time.time() + 1.0
        runs: dict[str, Run] = {}
        for name, policy in policies.items():
            events = timetable_stream(spark, timetable, epoch=epoch)
            runs[name] = _started(events, policy, folder / str(len(runs)), latency_seconds)
            stack.callback(runs[name].stop)
        plain = _plain(timetable_stream(spark, timetable, epoch=epoch), folder / "plain")
        stack.callback(plain.stop)
        patience_ends_at = time.time() + WARM_UP_PATIENCE_SECONDS
        while not _warm(runs, plain, warm_up_batches) and time.time() < patience_ends_at:
            _check(runs)
        epoch = time.time() + 0.2
        release(timetable, at=epoch)
        while time.time() < epoch + seconds:
            _check(runs)
        traces = {PLAIN: _plain_trace(plain, epoch)}
        for name, run in runs.items():
            traces[name] = _trace(run.batches, epoch)
            traces |= _partition_traces(name, run, epoch)
    if not borrowed:
        spark.stop()
    return traces


def _warm(runs: Mapping[str, Run], plain: StreamingQuery, batches: int) -> bool:
    """Whether every query has finished the batches in which workers start and first costs are learned."""
    return plain.lastProgress is not None and all(
        sum(batch.offered > 0 for batch in run.batches) >= batches for run in runs.values()
    )


def _check(runs: Mapping[str, Run]) -> None:
    """Wait a little; a query that has failed raises here, instead of leaving the others to run on without it."""
    for run in runs.values():
        run.await_termination(0.1)


def _started(events: DataFrame, policy: TuplePolicy, checkpoint: Path, latency_seconds: float) -> Run:
    worker = operator(
        execute, key="key", returns="id BIGINT", latency=latency_seconds, checkpoint=str(checkpoint), arrival="arrived",
        policy=policy, true_cost="cost_seconds",
    )  # fmt: skip
    return worker.start(events.transform(worker).writeStream.format("noop"))


def _plain(events: DataFrame, checkpoint: Path) -> StreamingQuery:
    done = events.mapInArrow(_execute_all, "id BIGINT, micros BIGINT")
    counted = done.observe("plain", F.count("id").alias("offered"), F.avg("micros").alias("mean_micros"))
    return counted.writeStream.format("noop").option("checkpointLocation", str(checkpoint)).start()


def _execute_all(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        results = [execute(row) for row in batch.to_pylist()]
        ids = pa.array([row["id"] for row in results], pa.int64())
        yield pa.RecordBatch.from_arrays([ids, batch.column("arrived").cast(pa.int64())], names=["id", "micros"])


def _trace(batches: list[Batch], epoch: float) -> Trace:
    timed = [b for b in batches if b.offered and b.committed_at is not None and b.mean_latency_seconds is not None]
    latency = np.array([b.mean_latency_seconds for b in timed], dtype=float)
    return Trace(
        np.array([b.committed_at for b in timed], dtype=float) - latency - epoch,
        np.array([b.offered for b in timed], dtype=float),
        np.array([b.kept for b in timed], dtype=float),
        latency,
    )


def _partition_traces(name: str, run: Run, epoch: float) -> dict[str, Trace]:
    """Trace each partition of a query that has several."""
    rows: dict[int, list[tuple[float, ...]]] = {}
    reports = run.operator.reports
    for batch in run.batches:
        for report in reports.get(batch.batch_id, ()):
            if report.arrived_at is not None and batch.committed_at is not None:
                seen = (report.arrived_at - epoch, report.offered, report.kept, batch.committed_at - report.arrived_at)
                rows.setdefault(report.partition, []).append(seen)
    if len(rows) < 2:
        return {}
    return {f"{name}, partition {number}": Trace(*np.array(seen).T) for number, seen in sorted(rows.items())}


def _plain_trace(query: StreamingQuery, epoch: float) -> Trace:
    rows = []
    for report in query.recentProgress:
        progress = read_progress(report)
        counts = progress.observed.get("plain") if progress else None
        if progress and counts and counts["offered"]:
            arrived = counts["mean_micros"] / 1e6
            rows.append((arrived - epoch, counts["offered"], counts["offered"], progress.committed_at - arrived))
    table = np.array(rows, dtype=float).reshape(-1, 4).T
    return Trace(*table)
