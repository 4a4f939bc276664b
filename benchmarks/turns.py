"""Running queries that take turns, batch by batch: neighbours in time share the machine's mood.

The speed of a shared machine wanders by a third within minutes, and a query is slow until its code is compiled. So all
queries under comparison run at the same time, and each gets its next batch when the one before it is done.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from contextvars import ContextVar
from pathlib import Path
from statistics import median

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import DataStreamWriter
from pyspark.sql.streaming.query import StreamingQuery
from rich.progress import Progress
from scipy.stats import binom

import penstock as ps
from benchmarks.workload import numbers

PARTITIONS = 2
TRIGGER_SECONDS = 1.0
# A stream runs for days, and Java is still compiling Spark's planner after a hundred batches. So the queries first run
# on a few rows in quick succession; then they start anew, and their first batches do not count either.
QUICK_TURNS = 100
QUICK_TRIGGER_SECONDS = 0.1
QUICK_SHARE = 0.01
WARM_UP_TURNS = 5
# After the first sizing a query is warmer still.
SIZING_ROUNDS, SIZING_TURNS = 2, 5
PATIENCE_SECONDS = 120.0

# Starts a query on a stream, with a checkpoint folder, and stops it in the end.
Start = Callable[[DataFrame, str], AbstractContextManager[StreamingQuery]]

_trigger_seconds = ContextVar("trigger_seconds", default=TRIGGER_SECONDS)


def in_turns(
    spark: SparkSession, progress: Progress, title: str, rows: DataFrame, queries: Mapping[str, Start], *, turns: int
) -> dict[str, list[float]]:
    """Run queries on the same rows in turns; tell how long each batch after the warm-up kept its query busy."""
    task = progress.add_task(title, total=QUICK_TURNS + WARM_UP_TURNS + turns)
    quick = _trigger_seconds.set(QUICK_TRIGGER_SECONDS)
    with _Turns(spark, rows.sample(QUICK_SHARE, seed=1), queries) as running:
        for turn in range(QUICK_TURNS):
            running.take(turn)
            progress.advance(task)
    _trigger_seconds.reset(quick)
    taken: dict[str, list[float]] = {name: [] for name in queries}
    with _Turns(spark, rows, queries) as running:
        for turn in range(WARM_UP_TURNS + turns):
            for name, seconds in running.take(turn).items():
                taken[name].append(seconds)
            progress.advance(task)
    return {name: seconds[WARM_UP_TURNS:] for name, seconds in taken.items()}


def filling(
    spark: SparkSession, progress: Progress, title: str, queries: Mapping[str, Start], *, by: str, guess: int
) -> int:
    """Find the batch size at which one query, when warm, fills a trigger; it does more than a cold one.

    The others run as well: what sizing warms up, it should warm up for all that are to be compared.
    """
    rows = guess
    for _ in range(SIZING_ROUNDS):
        taken = in_turns(spark, progress, f"{title}: size", numbers(spark, rows), queries, turns=SIZING_TURNS)
        rows = round(rows * TRIGGER_SECONDS / median(taken[by]))
    return rows


class _Turns:
    """Queries that all get the same rows, one after the other."""

    def __init__(self, spark: SparkSession, rows: DataFrame, queries: Mapping[str, Start]) -> None:
        self._stack = ExitStack()
        self._folder = Path(self._stack.enter_context(tempfile.TemporaryDirectory(ignore_cleanup_errors=True)))
        rows.repartition(PARTITIONS).write.parquet(str(self._folder / "rows"))
        self._running: dict[str, StreamingQuery] = {}
        self._inboxes: dict[str, Path] = {}
        self._last_id: dict[str, int] = {}
        for number, (name, start) in enumerate(queries.items()):
            self._inboxes[name] = self._folder / f"inbox-{number}"
            nothing = self._folder / f"nothing-{number}"
            nothing.mkdir()
            self._inboxes[name].symlink_to(nothing)
            stream = spark.readStream.schema(rows.schema).parquet(str(self._inboxes[name]))
            query = start(stream, str(self._folder / f"checkpoint-{number}"))
            self._running[name] = self._stack.enter_context(query)

    def __enter__(self) -> _Turns:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def take(self, turn: int) -> dict[str, float]:
        """Give every query its next batch, each first in turn."""
        names = list(self._running)
        first = turn % len(names)
        return {name: self._batch(name, turn) for name in names[first:] + names[:first]}

    def _batch(self, name: str, turn: int) -> float:
        query = self._running[name]
        inbox = self._inboxes[name]
        packed = self._folder / f"{inbox.name}-{turn}"
        packed.mkdir()
        for number, file in enumerate((self._folder / "rows").glob("*.parquet")):
            (packed / f"turn-{turn}-{number}.parquet").hardlink_to(file)
        # The inbox is a link that turns from one folder to the next: both files appear at once, so that they come in
        # one batch, and those of the turn before are out of Spark's sight, which lists all there is for every batch.
        before, link = inbox.resolve(), self._folder / "link"
        link.symlink_to(packed)
        link.rename(inbox)
        shutil.rmtree(before)
        ends_at = time.monotonic() + PATIENCE_SECONDS
        while time.monotonic() < ends_at:
            # The last report alone: all that Spark remembers would take a good part of a core to read.
            report = query.lastProgress
            if report and report["numInputRows"] and report["batchId"] > self._last_id.get(name, -1):
                self._last_id[name] = report["batchId"]
                return float(report["durationMs"]["triggerExecution"]) / 1000
            if not query.isActive:
                raise RuntimeError("the query under measurement stopped") from query.exception()
            time.sleep(0.05)
        raise RuntimeError(f"{name} did not finish its batch within {PATIENCE_SECONDS:.0f} s")


@contextmanager
def plain(writer: DataStreamWriter, checkpoint: str) -> Iterator[StreamingQuery]:
    """Start a query without Penstock, at the trigger that all share."""
    query = triggered(writer).option("checkpointLocation", checkpoint).start()
    try:
        yield query
    finally:
        query.stop()


@contextmanager
def attached(run: ps.Run) -> Iterator[StreamingQuery]:
    """Give the query of a run that has nothing to shed, and make sure that it shed nothing."""
    with run:
        yield run.query
        if run.status.shed:
            raise RuntimeError(f"the benchmark was to keep all and shed {run.status.shed} rows")


def triggered(writer: DataStreamWriter) -> DataStreamWriter:
    """Let a query look for its next batch every second, or more often while it warms up."""
    return writer.trigger(processingTime=f"{_trigger_seconds.get()} seconds")


def ratios(over: list[float], under: list[float]) -> list[float]:
    """Ratios of neighbours."""
    return [one / other for one, other in zip(over, under, strict=True)]


def told(values: list[float]) -> tuple[str, str]:
    """Median, and where the median that the values were drawn around lies."""
    return f"{median(values):.3f}", "{:.3f}..{:.3f}".format(*median_interval(values))


def median_interval(values: list[float]) -> tuple[float, float]:
    """Bound the median that the values were drawn around, 95 times in 100, whatever their distribution."""
    ordered = sorted(values)
    # The number of values below the median is binomial.
    low = int(binom.ppf(0.025, len(ordered), 0.5))
    return ordered[max(0, low - 1)], ordered[min(len(ordered) - 1, len(ordered) - low)]
