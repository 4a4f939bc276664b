"""Windows from panes: a few rows per window, put together when they are read."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from penstock.estimate.interval import Aggregate
from penstock.model.error_target import MaxError
from penstock.spark.answers.aggregates import answer_from
from penstock.spark.answers.formulas import compute_once
from penstock.spark.compile.steps import AggregateStep

# What formulas call the columns of a window.
MOMENTS = {
    "rows0": "rows",
    "row_weight0": "count",
    "tuples0": "rows",
    "weighted0": "count",
    "weighted1": "total",
    "normal_spread0": "count_variance",
    "normal_spread2": "total_variance",
    "normal_peak0": "count_peak",
    "normal_peak2": "total_peak",
}


def assemble_windows(
    answers: DataFrame, step: AggregateStep, output: str, *, target: MaxError | None = None
) -> DataFrame:
    """Sum the panes of each window and key.

    ``count`` and ``total`` are unbiased under random drops; ``count_error`` and ``total_error`` are their standard
    errors, 0 where nothing was dropped; ``share`` is the part of the rows that the answer rests on. ``answer`` is the
    total where values are summed, else the count, with bounds as :func:`penstock.sum` gives them, held to the target.
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
        F.sum("weight_variance").alias("count_variance"),
        F.sum("total_variance").alias("total_variance"),
        F.max("weight_peak").alias("count_peak"),
        F.max("total_peak").alias("total_peak"),
    )
    fields = F.struct(*(F.col(column).cast("double").alias(name) for name, column in MOMENTS.items()))
    aggregate: Aggregate = "count" if step.of is None else "sum"
    answer = compute_once(
        fields, lambda sums: answer_from(lambda name: sums[name], aggregate, target=target, name=output)
    )
    return summed.select(
        F.timestamp_seconds("window_start").alias("start"),
        F.timestamp_seconds(F.col("window_start") + step.window_seconds).alias("end"),
        "key", "rows", "count", "total", (F.col("total") / F.col("count")).alias("mean"),
        F.sqrt("count_variance").alias("count_error"), F.sqrt("total_variance").alias("total_error"),
        (F.col("rows") / F.col("count")).alias("share"), answer.alias("answer"),
    )  # fmt: skip
