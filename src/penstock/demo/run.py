"""Run the same burst through plain Spark and through Penstock."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import numpy as np
import numpy.typing as npt
import pandas as pd
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from penstock.demo.clicks import answers, clicks_in_batches, truth
from penstock.demo.latency import Committed, committed_batches, tuple_latencies
from penstock.model.arrivals import Arrivals
from penstock.model.batch import Batch
from penstock.spark.bursty import bursty_stream
from penstock.spark.shed import shed

SEED = 7
TRIGGER = "1 second"
# The first batch of a query compiles code; the timetable starts when that is over.
LEAD_SECONDS = 3.0
# Enough for Java's compilers to settle; less, and the machine looks half as fast as it is.
FIRST_GUESS_TUPLES = 10_000
WARM_UP = Arrivals.of((3.0, 2_000))
CALIBRATION_BATCHES = 5
CALIBRATION_SECONDS = 5.0
# A burst makes large batches, in which what a batch costs beside its tuples no longer shows.
LARGE_BATCH_SECONDS = 3.0

OnProgress = Callable[[float], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What one run of the demo measured."""

    name: str
    epoch: float
    committed: list[Committed]
    arrival_seconds: npt.NDArray[np.float64]
    latency_seconds: npt.NDArray[np.float64]
    answers: pd.DataFrame
    truth: pd.DataFrame
    batches: list[Batch]


def capacity_tuples_per_second(spark: SparkSession) -> float:
    """Measure how many clicks a second plain Spark takes in, once it is warm.

    The shed query runs as well, so that both runs find workers started and code compiled.
    """
    guess = _steady_rate(spark, rows_per_batch=FIRST_GUESS_TUPLES, beside=lambda: _warm_up(spark))
    return _steady_rate(spark, rows_per_batch=round(LARGE_BATCH_SECONDS * guess))


def _warm_up(spark: SparkSession) -> None:
    run_penstock(spark, WARM_UP, lambda _: None, latency_seconds=5.0)


def _steady_rate(spark: SparkSession, *, rows_per_batch: int, beside: Callable[[], None] = lambda: None) -> float:
    """Run batches of one size back to back, and rate the last of them; ``beside`` is over before those."""
    with tempfile.TemporaryDirectory(prefix="penstock-demo-", ignore_cleanup_errors=True) as folder:
        counted = answers(clicks_in_batches(spark, rows_per_batch=rows_per_batch), weight=F.lit(1.0))
        query = counted.writeStream.outputMode("update").format("noop").option("checkpointLocation", folder).start()
        try:
            beside()
            _await_batches(query, CALIBRATION_BATCHES, CALIBRATION_SECONDS)
        finally:
            query.stop()
    batches = committed_batches(query.recentProgress)
    return rows_per_batch / median(batch.committed_at - batch.started_at for batch in batches[-3:])


def _await_batches(query: StreamingQuery, batches: int, seconds: float) -> None:
    """Wait for so many more batches, and for so long."""
    ends_at = time.monotonic() + seconds
    wanted = len(committed_batches(query.recentProgress)) + batches
    while len(committed_batches(query.recentProgress)) < wanted or time.monotonic() < ends_at:
        _raise_if_stopped(query)
        time.sleep(0.1)


def run_plain(spark: SparkSession, arrivals: Arrivals, on_progress: OnProgress) -> Outcome:
    """Run the query as plain Spark runs it."""
    with tempfile.TemporaryDirectory(prefix="penstock-demo-", ignore_cleanup_errors=True) as folder:
        epoch = time.time() + LEAD_SECONDS
        counted = answers(bursty_stream(spark, arrivals, epoch=epoch, seed=SEED), weight=F.lit(1.0))
        writer = counted.writeStream.outputMode("complete").format("memory").queryName("plain")
        query = writer.trigger(processingTime=TRIGGER).option("checkpointLocation", folder).start()
        try:
            _await_tuples(query, arrivals, on_progress)
        finally:
            query.stop()
        return _outcome("plain Spark", spark, query, arrivals, epoch=epoch, batches=[])


def run_penstock(
    spark: SparkSession, arrivals: Arrivals, on_progress: OnProgress, *, latency_seconds: float
) -> Outcome:
    """Run the same query on the shed stream."""
    with tempfile.TemporaryDirectory(prefix="penstock-demo-", ignore_cleanup_errors=True) as folder:
        epoch = time.time() + LEAD_SECONDS
        shedder = shed(
            latency_seconds=latency_seconds, checkpoint=str(Path(folder) / "checkpoint"), row_id="id", arrival="arrived"
        )
        clicks = bursty_stream(spark, arrivals, epoch=epoch, seed=SEED).transform(shedder)
        counted = answers(clicks, weight=F.col("weight"))
        writer = counted.writeStream.outputMode("complete").format("memory").queryName("penstock")
        with shedder.start(writer.trigger(processingTime=TRIGGER)) as run:
            _await_tuples(run.query, arrivals, on_progress)
        return _outcome("Penstock", spark, run.query, arrivals, epoch=epoch, batches=run.batches)


def _await_tuples(query: StreamingQuery, arrivals: Arrivals, on_progress: OnProgress) -> None:
    """Wait until the last tuple is committed."""
    while True:
        committed = committed_batches(query.recentProgress)
        done = committed[-1].end if committed else 0
        on_progress(done / arrivals.total_tuples)
        if done >= arrivals.total_tuples:
            return
        _raise_if_stopped(query)
        time.sleep(0.25)


def _raise_if_stopped(query: StreamingQuery) -> None:
    if not query.isActive:
        failure = query.exception()
        raise failure if failure else RuntimeError("the demo's query stopped before its end")


def _outcome(
    name: str, spark: SparkSession, query: StreamingQuery, arrivals: Arrivals, *, epoch: float, batches: list[Batch]
) -> Outcome:
    committed = committed_batches(query.recentProgress)
    times, latencies = tuple_latencies(committed, arrivals, epoch=epoch)
    told = spark.table(query.name).withColumn("window_start", F.unix_timestamp("window_start")).toPandas()
    told["campaign"] = told["campaign"].str.removeprefix("campaign-").astype(int)
    return Outcome(
        name=name,
        epoch=epoch,
        committed=committed,
        arrival_seconds=times,
        latency_seconds=latencies,
        answers=told,
        truth=truth(arrivals, epoch=epoch, seed=SEED),
        batches=batches,
    )
