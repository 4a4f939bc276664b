"""Where the watermark stands when few rows survive: windows close by the rows that arrived, not by those kept."""

import pytest
from pyspark.sql import functions as F

import penstock as ps
from tests.spark.streams import always_shedding, finish_batches, numbers

pytestmark = pytest.mark.spark

ROWS, BATCHES = 30, 40


def window_delays(spark, checkpoint, *, watermark_first):
    """How many batches after its end each window was answered, and the batches; a batch has the rows of one second."""
    answered = []
    shedder = always_shedding(checkpoint, ps.Uniform(keep=0.01))
    events = numbers(spark, rows_per_batch=ROWS, partitions=1).withColumn(
        "at", F.timestamp_seconds(F.col("value") / ROWS)
    )
    if watermark_first:
        kept = events.withWatermark("at", "1 second").transform(shedder)
    else:
        kept = events.transform(shedder).withWatermark("at", "1 second")
    windows = kept.groupBy(F.window("at", "1 second")).agg(F.sum("weight").alias("rows"))

    def write(rows, batch_id):
        answered.extend(batch_id - row.window.end.timestamp() for row in rows.collect())

    batches = finish_batches(shedder.start(windows.writeStream.outputMode("append").foreachBatch(write)), BATCHES)
    survivors = sum(batch.kept > 0 for batch in batches[: BATCHES - 4])
    assert 3 <= survivors < BATCHES / 2, "most batches are to have no survivor"
    return answered, survivors


def test_with_the_watermark_before_the_shedder_windows_close_on_time(spark, checkpoint):
    delays, survivors = window_delays(spark, checkpoint, watermark_first=True)

    # The watermark trails the newest row by a second, and Spark applies it a batch later.
    assert max(delays) <= 2
    assert len(delays) >= survivors


def test_with_the_watermark_after_the_shedder_windows_wait_for_the_next_survivor(spark, checkpoint):
    delays, _ = window_delays(spark, checkpoint, watermark_first=False)

    assert max(delays) > 3
