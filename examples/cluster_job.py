"""Count clicks on a cluster: ``spark-submit --master spark://... examples/cluster_job.py FOLDER [SECONDS]``.

FOLDER must be seen by the driver and by every executor under this name. The stream is embedded; put yours there.
"""

import sys
import time

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import penstock as ps
from penstock.demo.bursty import bursty_stream
from penstock.model.arrivals import Arrivals
from penstock.spark.session import SHORT_BATCHES


def main(folder: str, seconds: float = 10.0) -> None:
    builder = SparkSession.builder.appName("clicks")
    for name, value in {**SHORT_BATCHES, "spark.sql.shuffle.partitions": "2"}.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.range(1_000).repartition(2).count()  # waits until the executors are there
    # New executors compile for a while: the burst comes when that is over.
    timetable = Arrivals.of((50 + seconds, 1_000), (2 * seconds, 100_000), (2 * seconds, 1_000))
    events = bursty_stream(spark, timetable, epoch=time.time() + 5)
    shedder = ps.shed(latency_seconds=5, checkpoint=f"{folder}/checkpoint", row_id="id", arrival="arrived")
    windows = (
        # The watermark comes first: rows that are shed move it too, or windows would not close.
        events.withWatermark("arrived", "1 second")
        .transform(shedder)
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
        offered = 0
        for batch in run.watch():
            offered += batch.offered
            latency = f"{batch.latency_seconds:.1f} s" if batch.latency_seconds else "-"
            print(
                f"{batch.batch_id:3d}  offered {batch.offered:7,}  kept {batch.kept:7,}  {latency}  {batch.reason}",
                flush=True,
            )
            if offered >= timetable.total_tuples:
                break
    print(run.status)
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1], *map(float, sys.argv[2:3]))
