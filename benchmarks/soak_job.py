"""The query that ``make soak`` disturbs: ``spark-submit benchmarks/soak_job.py FOLDER CYCLES``.

Every click has a key of its own that never comes again; bursts are 50 times the quiet rate.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import penstock as ps
from penstock.model.arrivals import Arrivals
from penstock.spark.bursty import bursty_stream
from penstock.spark.session import SHORT_BATCHES

TARGET_SECONDS = 5.0
QUIET = (8.0, 2_000.0)
BURST = (4.0, 100_000.0)
# New JVMs load and compile for a while: on 2 cores the first batch takes some 25 s, the next ones less and less. Bursts
# come when that is over; after the driver is killed it has to start first, too.
LEAD, PAUSE = (50.0, 2_000.0), (75.0, 2_000.0)
TAIL = (20.0, 2_000.0)


def timetable(cycles: int) -> Arrivals:
    """So many bursts, then a pause in which the driver is killed and comes back, and as many bursts again."""
    bursts = [phase for _ in range(cycles) for phase in (QUIET, BURST)]
    return Arrivals.of(LEAD, *bursts, PAUSE, *bursts, TAIL)


def epoch_of(folder: str) -> float | None:
    """When the stream began (seconds since the epoch); None if it has not yet."""
    noted = Path(folder, "epoch")
    return float(noted.read_text()) if noted.exists() else None


def begin(folder: str) -> float:
    """Let the stream begin, unless a driver before this one has."""
    if (epoch := epoch_of(folder)) is None:
        epoch = time.time()
        aside = Path(folder, "epoch.new")
        aside.write_text(repr(epoch))
        aside.replace(Path(folder, "epoch"))
    return epoch


def main(folder: str, cycles: int) -> None:
    builder = SparkSession.builder.appName("soak")
    settings = {**SHORT_BATCHES, "spark.sql.shuffle.partitions": "2", "spark.sql.streaming.minBatchesToRetain": "10000"}
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.range(1_000).repartition(2).count()  # waits until the executors are there
    arrivals = timetable(cycles)
    shedder = ps.shed(
        latency_seconds=TARGET_SECONDS,
        checkpoint=f"{folder}/checkpoint",
        row_id="id",
        key="id",
        arrival="arrived",
        policy=ps.Priority(keep={"no such key": 1.0}),
    )
    windows = (
        bursty_stream(spark, arrivals, epoch=begin(folder))
        .transform(shedder)
        .withWatermark("arrived", "1 second")
        .groupBy(F.window("arrived", "1 second"))
        .agg(
            F.sum("weight").alias("clicks"),
            F.count("*").alias("rows"),
            F.bit_xor(F.xxhash64("id")).alias("fingerprint"),
        )
        .select(F.col("window.start").alias("start"), "clicks", "rows", "fingerprint")
    )
    writer = windows.writeStream.format("parquet").option("path", f"{folder}/clicks").trigger(processingTime="1 second")
    with shedder.start(writer) as run:
        for _ in run.watch():
            offered = sum(batch.offered for batch in run._ledger.batches())
            if offered >= arrivals.total_tuples:
                break
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
