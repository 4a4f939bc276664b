"""What bounds cost: answers with bounds against Spark's plain sum and count, on the same rows."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from functools import partial
from statistics import median

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from rich.progress import Progress
from rich.table import Table

import penstock as ps
from benchmarks.workload import batch_seconds, rows_for
from penstock.demo.clicks import clicks_in_batches

ROUNDS = 5
ROWS_IN_MEMORY = 12_000_000
STREAM_BATCHES = 3

Take = Callable[[list[Column]], float]


def plain() -> list[Column]:
    """What plain Spark answers."""
    return [F.count(F.lit(1)).alias("n"), F.sum("price").alias("s")]


def bounded() -> list[Column]:
    """The same with bounds."""
    return [ps.count().alias("n"), ps.sum("price").alias("s")]


def answers_with_bounds(spark: SparkSession, progress: Progress) -> Table:
    """Throughput of ``ps.count`` and ``ps.sum`` against ``F.count`` and ``F.sum``, each first in turn."""
    table = Table(title="Count and sum with bounds: throughput against Spark's plain ones", title_justify="left")
    for heading in ("rows", "plain", "with bounds", "throughput ratio", "rounds (min..max)"):
        table.add_column(heading, justify="right")
    rows = rows_for(1.0, spark, lambda clicks, _: _windows(clicks, plain()), first_guess=1_000_000)
    cases = {
        f"window sums, {rows:,} rows a batch": partial(_stream, spark, rows),
        f"nothing but the sums, {ROWS_IN_MEMORY:,} rows cached in memory": _cached(spark),
    }
    for name, take in cases.items():
        task = progress.add_task(f"answers with bounds, {name}", total=ROUNDS + 1)
        taken: dict[str, list[float]] = {"plain": [], "bounded": []}
        for number in range(ROUNDS + 1):
            pair = [("plain", plain), ("bounded", bounded)]
            for kind, columns in pair if number % 2 else reversed(pair):
                taken[kind].append(take(columns()))
            progress.advance(task)
        # The first round compiles.
        ratios = [one / other for one, other in zip(taken["plain"][1:], taken["bounded"][1:], strict=True)]
        table.add_row(
            name, f"{median(taken['plain'][1:]):.2f} s", f"{median(taken['bounded'][1:]):.2f} s",
            f"{median(ratios):.3f}", f"{min(ratios):.3f}..{max(ratios):.3f}",
        )  # fmt: skip
    return table


def _windows(clicks: DataFrame, columns: list[Column]) -> DataFrame:
    weighed = clicks.withColumn("weight", F.when(F.col("id") % 3 == 0, 4.0).otherwise(2.0))
    return weighed.groupBy(F.window("arrived", "5 seconds").getField("start"), "campaign").agg(*columns)


def _stream(spark: SparkSession, rows: int, columns: list[Column]) -> float:
    counted = _windows(clicks_in_batches(spark, rows_per_batch=rows), columns)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        writer = counted.writeStream.outputMode("update").format("noop").option("checkpointLocation", folder)
        return median(batch_seconds(writer.start(), STREAM_BATCHES))


def _cached(spark: SparkSession) -> Take:
    rows = spark.range(ROWS_IN_MEMORY).selectExpr(
        "cast(hash(id) % 500 AS INT) AS campaign",
        "(id % 997) / 10.0D AS price",
        "if(id % 3 = 0, 4.0D, 2.0D) AS weight",
    )
    rows = rows.cache()
    rows.count()

    def take(columns: list[Column]) -> float:
        started = time.perf_counter()
        rows.groupBy("campaign").agg(*columns).write.format("noop").mode("overwrite").save()
        return time.perf_counter() - started

    return take
