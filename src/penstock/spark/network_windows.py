"""Windows from panes: a few rows per window, put together when they are read."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from penstock.spark.network_steps import AggregateStep


def assemble_windows(answers: DataFrame, step: AggregateStep, output: str) -> DataFrame:
    """Sum the panes of each window and key.

    ``count`` and ``total`` are unbiased under random drops; ``count_error`` and ``total_error`` are their standard
    errors, 0 where nothing was dropped; ``share`` is the part of the rows that the answer rests on.
    """
    panes = answers.where(F.col("output") == output)
    back = list(range(0, step.window_seconds, step.slide_seconds))
    # The window that starts latest among those that hold the pane, and the ones before it.
    latest = F.floor(F.unix_seconds("start") / step.slide_seconds) * step.slide_seconds
    starts = F.array(*((latest - offset).cast("long") for offset in back))
    spread = panes.withColumn("window_start", F.explode(starts))
    summed = spread.groupBy("window_start", "key").agg(
        F.sum("rows").alias("rows"),
        F.sum("weight").alias("count"),
        F.sum("total").alias("total"),
        F.sqrt(F.sum("weight_variance")).alias("count_error"),
        F.sqrt(F.sum("total_variance")).alias("total_error"),
    )
    return summed.select(
        F.timestamp_seconds("window_start").alias("start"),
        F.timestamp_seconds(F.col("window_start") + step.window_seconds).alias("end"),
        "key", "rows", "count", "total", (F.col("total") / F.col("count")).alias("mean"), "count_error", "total_error",
        (F.col("rows") / F.col("count")).alias("share"),
    )  # fmt: skip
