"""Count clicks through a burst, inside a latency target of five seconds: ``python examples/clicks.py``.

The stream is embedded; put your own in its place. Takes half a minute.
"""

import tempfile
import time

from pyspark.sql import functions as F

import penstock as ps
from penstock.demo.bursty import bursty_stream
from penstock.model.arrivals import Arrivals


def main(seconds: float = 8.0) -> None:
    spark = ps.local_session()
    timetable = Arrivals.of((seconds, 2_000), (seconds, 200_000), (seconds, 2_000))
    events = bursty_stream(spark, timetable, epoch=time.time() + 3)

    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        shedder = ps.shed(latency_seconds=5, checkpoint=f"{folder}/checkpoint", row_id="id", arrival="arrived")
        clicks = (
            # The watermark comes first: rows that are shed move it too, or windows would not close.
            events.withWatermark("arrived", "5 seconds")
            .transform(shedder)
            .groupBy(F.window("arrived", "5 seconds"), "campaign")
            .agg(F.sum("weight").alias("clicks"))
        )
        writer = clicks.writeStream.format("parquet").option("path", f"{folder}/clicks")
        with shedder.start(writer.trigger(processingTime="1 second")) as run:
            offered = 0
            for batch in run.watch():
                offered += batch.offered
                latency = f"{batch.latency_seconds:.1f} s" if batch.latency_seconds else "-"
                print(
                    f"{batch.batch_id:3d}  offered {batch.offered:7,}  kept {batch.kept:7,}  {latency}  {batch.reason}"
                )
                if offered >= timetable.total_tuples:
                    break
        print(run.status)
        run.ledger().agg(F.sum("offered"), F.sum("kept"), F.sum("shed")).show()
        spark.read.parquet(f"{folder}/clicks").orderBy(F.desc("clicks")).show(5, truncate=False)
    spark.stop()


if __name__ == "__main__":
    main()
