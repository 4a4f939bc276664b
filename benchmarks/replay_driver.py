"""A query that is made to be killed: ``python -m benchmarks.replay_driver FOLDER KEEP [BATCHES]``.

Windows of one second over a stream whose every batch is one second long, so that each window's fingerprint tells which
rows of that batch survived. Prints a line when the query runs; with BATCHES it stops by itself after as many.
"""

from __future__ import annotations

import sys

from pyspark.sql import functions as F

import penstock as ps
from benchmarks.replay_check import ROWS_PER_BATCH, known_costs
from benchmarks.workload import too_much


def main(folder: str, keep: float, batches: int | None) -> None:
    spark = ps.local_session()
    known_costs(folder)
    shedder = ps.shed(
        latency_seconds=5,
        checkpoint=f"{folder}/checkpoint",
        row_id="value",
        policy=too_much(ps.Uniform(keep=keep)),  # so that the given rate is in force
    )
    source = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", ROWS_PER_BATCH)
    windows = (
        source.option("numPartitions", 2)
        .load()
        .transform(shedder)
        .withWatermark("timestamp", "0 seconds")
        .groupBy(F.window("timestamp", "1 second"))
        .agg(
            F.count("*").alias("kept"),
            F.sum("weight").alias("weighed"),
            F.bit_xor(F.xxhash64("value")).alias("fingerprint"),
        )
        .select("window.start", "kept", "weighed", "fingerprint")
    )
    run = shedder.start(windows.writeStream.format("parquet").outputMode("append").option("path", f"{folder}/out"))
    print("running", flush=True)
    if batches is None:
        run.await_termination()
        return
    watched = run.watch()
    for _ in range(batches):
        next(watched)
    run.stop()
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]), int(sys.argv[3]) if len(sys.argv) > 3 else None)
