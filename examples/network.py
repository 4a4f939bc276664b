"""Three queries over one stream of clicks, through a burst: ``python examples/network.py``.

The stream is embedded; put your own in its place. Takes a minute. Watch the drops appear where they cost least, and
disappear when the burst is over.
"""

import tempfile
import time

from pyspark.sql import functions as F

import penstock as ps
from penstock.demo.bursty import bursty_stream
from penstock.model.arrivals import Arrivals


def main(seconds: float = 12.0, burst: float = 60_000) -> None:
    spark = ps.local_session()
    timetable = Arrivals.of((seconds, 1_000), (seconds, burst), (seconds, 1_000))
    clicks = bursty_stream(spark, timetable, epoch=time.time() + 3)

    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        network = ps.Network(checkpoint=f"{folder}/checkpoint", latency_seconds=6, shedding="semantic")
        arriving = network.source("clicks", clicks, row_id="id", arrival="arrived", event_time="arrived")
        token = F.aggregate(F.sequence(F.lit(1), F.lit(30)), F.col("campaign"), lambda d, _: F.sha2(d, 256))
        valid = arriving.filter("valid", token != "")

        revenue = valid.aggregate("revenue", by="campaign", of=F.col("price"), window_seconds=4, slide_seconds=2)
        revenue.output("revenue by campaign", loss=ps.LossTolerance.of((1, 1), (0.2, 0.9)))

        worth = ps.ValueGraph.of((0, 1, 0.1), (1, 30, 1.0))  # a click above 1 is worth ten of the others
        dear = valid.map("looked up", account=F.sha2(F.col("id").cast("string"), 256))
        dear.output("clicks for the sales team", columns=["id", "price", "account"], value={"price": worth})

        one = valid.filter("campaign 00", F.col("campaign") == "campaign-00")
        one.output("clicks of campaign 00", columns=["id", "price"], importance=2.0)

        writer = network.answers().writeStream.format("parquet").option("path", f"{folder}/answers")
        with network.start(writer.trigger(processingTime="1 second")) as run:
            offered = 0
            for batch in run.watch():
                offered += batch.offered
                shares = "  ".join(f"{name} {output.delivered:.0%}" for name, output in run.network.outputs.items())
                print(f"{batch.batch_id:3d}  offered {batch.offered:7,}  {shares}  | {batch.reason}")
                if offered >= timetable.total_tuples:
                    break
        print(run.status)
        print(f"drops of the last batch: {run.network.batches[-1].plan.describe()}")
        answers = spark.read.parquet(f"{folder}/answers")
        network.windows(answers, "revenue by campaign").orderBy("start", F.desc("total")).show(5, truncate=False)
    spark.stop()


if __name__ == "__main__":
    main()
