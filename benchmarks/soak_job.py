"""The query that ``make soak`` disturbs: ``spark-submit benchmarks/soak_job.py FOLDER EPOCH CYCLES``.

Every click has a key of its own that never comes again; bursts are 50 times the quiet rate.
"""

from __future__ import annotations

import sys

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import penstock as ps
from penstock.model.arrivals import Arrivals
from penstock.spark.bursty import bursty_stream
from penstock.spark.session import SHORT_BATCHES

QUIET = (8.0, 1_000.0)
BURST = (4.0, 50_000.0)
# New JVMs compile for a while: bursts come when that is over.
LEAD = PAUSE = (45.0, 1_000.0)
TAIL = (20.0, 1_000.0)


def timetable(cycles: int) -> Arrivals:
    """So many bursts, then a pause in which the driver is killed and comes back, and as many bursts again."""
    bursts = [phase for _ in range(cycles) for phase in (QUIET, BURST)]
    return Arrivals.of(LEAD, *bursts, PAUSE, *bursts, TAIL)


def main(folder: str, epoch: float, cycles: int) -> None:
    builder = SparkSession.builder.appName("soak")
    settings = {**SHORT_BATCHES, "spark.sql.shuffle.partitions": "2", "spark.sql.streaming.minBatchesToRetain": "10000"}
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.range(1_000).repartition(2).count()  # waits until the executors are there
    arrivals = timetable(cycles)
    shedder = ps.shed(
        latency_seconds=5,
        checkpoint=f"{folder}/checkpoint",
        row_id="id",
        key="id",
        arrival="arrived",
        policy=ps.Priority(keep={"no such key": 1.0}),
    )
    windows = (
        bursty_stream(spark, arrivals, epoch=epoch)
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
    main(sys.argv[1], float(sys.argv[2]), int(sys.argv[3]))
