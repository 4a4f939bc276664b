"""Warm Spark up, run a burst through plain Spark, and the same burst through Penstock."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pandas as pd
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.readwriter import DataStreamWriter

from penstock.demo.batches import POLL_SECONDS, DemoBatch, follow, kept_shares, latencies, on_stream
from penstock.demo.bursty import LiveArrivals, bursty_stream
from penstock.demo.clicks import AGGREGATES, answers, answers_with_bounds, truth
from penstock.demo.speed import Speed
from penstock.demo.timetable import next_step
from penstock.model.arrivals import Arrivals
from penstock.spark.run.handle import Run
from penstock.spark.shed import shed

SEED = 7
TRIGGER = "1 second"
# A query needs that long to start; then its stream begins.
LEAD_SECONDS = 3.0
# A young Java does a third of what it does two minutes later: large batches until their rate is steady, within limits.
WARM_UP_LEAST_SECONDS, WARM_UP_MOST_SECONDS = 15.0, 50.0
WARM_UP_BATCH_SECONDS, WARM_UP_FIRST_ROWS = 2.0, 2_000
# The shed query runs once as well: its first batch starts workers and compiles code of its own.
WARM_UP = Arrivals.of((2.0, 1_000))
# The timetable is written so long before its rows arrive.
AHEAD_SECONDS = 0.5
# Plain Spark needs minutes to work off its backlog; nobody should have to wait for that. Penstock has none to speak of.
PLAIN_PATIENCE_SECONDS, PENSTOCK_PATIENCE_SECONDS = 10.0, 60.0
# A batch is in the ledger a moment after its commit.
ENTRY_SECONDS = 5.0


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What came out of one run; seconds are those of its stream."""

    name: str
    arrivals: Arrivals
    batches: list[DemoBatch]
    stopped_seconds: float

    @cached_property
    def arrival_seconds(self) -> npt.NDArray[np.float64]:
        """When each row arrived."""
        return self.arrivals.arrival_seconds(np.arange(self.arrivals.total_tuples))

    @cached_property
    def latency_seconds(self) -> npt.NDArray[np.float64]:
        """Latency of each row; infinite for one that was not answered when the run was stopped."""
        return latencies(self.batches, self.arrivals)

    @cached_property
    def waited_seconds(self) -> npt.NDArray[np.float64]:
        """How long each row waited until its answer came or the run was stopped: never more than its latency."""
        return np.minimum(self.latency_seconds, self.stopped_seconds - self.arrival_seconds)


@dataclass(frozen=True, kw_only=True)
class ShedOutcome(Outcome):
    """What came out of the shed run: also its answers, the truth, and what the ledger on disk holds."""

    answers: pd.DataFrame
    truth: pd.DataFrame
    ledger: pd.DataFrame


OnBatch = Callable[[DemoBatch], None]


def capacity_rows_per_second(spark: SparkSession) -> float:
    """Measure how many clicks a second plain Spark takes in, once it is warm."""
    return warm_up(spark, lambda *_: None).rows_per_second


def warm_up(spark: SparkSession, on_batch: Callable[[int, float], None]) -> Speed:
    """Feed plain Spark batch after batch, each as large as it does in some seconds, until its rate is steady."""
    run_penstock(
        spark, WARM_UP, latency_seconds=60, on_batch=lambda batch: on_batch(batch.offered, batch.duration_seconds)
    )
    speed = Speed()
    with tempfile.TemporaryDirectory(prefix="penstock-demo-", ignore_cleanup_errors=True) as folder:
        epoch = time.time()
        live = LiveArrivals(Path(folder) / "timetable.json", first=_at_once(WARM_UP_FIRST_ROWS))
        counted = answers(bursty_stream(spark, live, epoch=epoch, seed=SEED), weight=F.lit(1.0))
        query = _writer(counted, "warm_up").option("checkpointLocation", f"{folder}/checkpoint").start()
        try:
            for batch in follow(query, until=epoch + WARM_UP_MOST_SECONDS):
                speed.observe(batch.rows, batch.duration_seconds)
                on_batch(batch.rows, batch.duration_seconds)
                if speed.steady and batch.committed_at > epoch + WARM_UP_LEAST_SECONDS:
                    break
                live.append(*_at_once(round(WARM_UP_BATCH_SECONDS * batch.rows / batch.duration_seconds)))
        finally:
            query.stop()
    return speed


def _at_once(rows: int) -> tuple[float, float]:
    """Let rows arrive within a hundredth of a second: in one batch."""
    return 0.01, rows * 100.0


def run_plain(spark: SparkSession, *, seconds: float, speed: Speed, on_batch: OnBatch) -> Outcome:
    """Run the query as plain Spark runs it, on a stream whose load follows what Spark does; stop it soon after."""
    with tempfile.TemporaryDirectory(prefix="penstock-demo-", ignore_cleanup_errors=True) as folder:
        epoch = time.time() + LEAD_SECONDS
        live = LiveArrivals(
            Path(folder) / "timetable.json", first=next_step(0.0, seconds, rows_per_second=speed.rows_per_second)
        )

        def steer() -> None:
            while (written := live.arrivals.total_seconds) < min(seconds, time.time() - epoch + AHEAD_SECONDS):
                live.append(*next_step(written, seconds, rows_per_second=speed.rows_per_second))

        counted = answers(bursty_stream(spark, live, epoch=epoch, seed=SEED), weight=F.lit(1.0))
        writer = _writer(counted, "plain").trigger(processingTime=TRIGGER)
        query = writer.option("checkpointLocation", f"{folder}/checkpoint").start()
        batches = []
        try:
            for batch in follow(query, until=epoch + seconds + PLAIN_PATIENCE_SECONDS, beside=steer):
                speed.observe(batch.rows, batch.duration_seconds)
                written = live.arrivals
                batches.append(on_stream(batch, written, epoch=epoch, seconds=seconds, kept=batch.rows))
                on_batch(batches[-1])
                if written.total_seconds >= seconds and batch.end >= written.total_tuples:
                    break
        finally:
            stopped_seconds = time.time() - epoch
            query.stop()
    return Outcome(name="plain Spark", arrivals=live.arrivals, batches=batches, stopped_seconds=stopped_seconds)


def run_penstock(spark: SparkSession, arrivals: Arrivals, *, latency_seconds: float, on_batch: OnBatch) -> ShedOutcome:
    """Run the query on the shed stream, with the timetable that plain Spark had."""
    with tempfile.TemporaryDirectory(prefix="penstock-demo-", ignore_cleanup_errors=True) as folder:
        epoch, seconds = time.time() + LEAD_SECONDS, arrivals.total_seconds
        shedder = shed(
            latency_seconds=latency_seconds, checkpoint=f"{folder}/checkpoint", row_id="id", arrival="arrived"
        )
        clicks = bursty_stream(spark, arrivals, epoch=epoch, seed=SEED).transform(shedder)
        batches = []
        writer = _writer(answers_with_bounds(clicks), "penstock").trigger(processingTime=TRIGGER)
        with shedder.start(writer) as run:
            for batch in follow(run.query, until=epoch + seconds + PENSTOCK_PATIENCE_SECONDS):
                kept, reason = _entry(run, batch.batch_id)
                batches.append(on_stream(batch, arrivals, epoch=epoch, seconds=seconds, kept=kept, reason=reason))
                on_batch(batches[-1])
                if batch.end >= arrivals.total_tuples:
                    break
            stopped_seconds = time.time() - epoch
        return ShedOutcome(
            name="Penstock",
            arrivals=arrivals,
            batches=batches,
            stopped_seconds=stopped_seconds,
            answers=_told(spark.table("penstock")),
            truth=truth(arrivals, epoch=epoch, seed=SEED, kept_shares=kept_shares(batches, arrivals)),
            ledger=run.ledger().select("batch_id", "offered", "kept").toPandas(),
        )


def _told(answered: DataFrame) -> pd.DataFrame:
    """Fetch the answers by window and campaign: each with its bounds, and the rows that they rest on."""
    fields = (
        F.col(f"{name}.{field}").alias(f"{name}_{field}")
        for name in AGGREGATES
        for field in ("value", "lower", "upper")
    )
    window = F.unix_timestamp("window_start").alias("window_start")
    campaign = F.split_part("campaign", F.lit("-"), F.lit(2)).cast("int").alias("campaign")
    return answered.select(window, campaign, "rows", *fields).toPandas()


def _writer(counted: DataFrame, name: str) -> DataStreamWriter:
    return counted.writeStream.outputMode("complete").format("memory").queryName(name)


def _entry(run: Run, batch_id: int) -> tuple[int, str]:
    """Look up what a batch kept, and why, in what the run has entered, which happens just after the commit."""
    ends_at = time.monotonic() + ENTRY_SECONDS
    while time.monotonic() < ends_at:
        for entry in reversed(run.batches):
            if entry.batch_id == batch_id:
                return entry.kept, entry.reason
        time.sleep(POLL_SECONDS)
    return 0, "not in the ledger"
