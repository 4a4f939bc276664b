"""What bounds cost: answers with bounds against Spark's plain sum and count, on the same rows."""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from rich.progress import Progress
from rich.table import Table

import penstock as ps
from benchmarks.workload import batch_seconds

ROUNDS = 7
ROWS = 12_000_000
STREAM_ROWS = 2_000_000
STREAM_BATCHES = 5

Take = Callable[[list[Column]], float]


def _plain() -> list[Column]:
    return [F.count(F.lit(1)).alias("n"), F.sum("price").alias("s")]


def _bounded() -> list[Column]:
    return [ps.count().alias("n"), ps.sum("price").alias("s")]


def answers_with_bounds(spark: SparkSession, progress: Progress) -> Table:
    """Throughput of ``ps.count`` and ``ps.sum`` against ``F.count`` and ``F.sum``, each first in turn."""
    table = Table(title="Count and sum with bounds: throughput against Spark's plain ones", title_justify="left")
    for heading in ("rows", "groups", "plain", "with bounds", "throughput ratio", "rounds (min..max)"):
        table.add_column(heading, justify="right")
    for name, take, groups in (
        (f"{ROWS:,} in memory", _batch(spark), 1000),
        (f"{STREAM_ROWS:,} a micro-batch", _stream(spark), 1000),
    ):
        task = progress.add_task(f"answers with bounds, {name}", total=ROUNDS + 1)
        plain: list[float] = []
        bounded: list[float] = []
        ratios = []
        for number in range(ROUNDS + 1):
            pair = {}
            for kind, columns in ((_plain, plain), (_bounded, bounded))[:: 1 if number % 2 else -1]:
                pair[kind] = take(kind())
                if number:  # the first round compiles
                    columns.append(pair[kind])
            if number:
                ratios.append(pair[_plain] / pair[_bounded])
            progress.advance(task)
        table.add_row(
            name, f"{groups:,}", f"{median(plain):.2f} s", f"{median(bounded):.2f} s",
            f"{median(ratios):.3f}", f"{min(ratios):.3f}..{max(ratios):.3f}",
        )  # fmt: skip
    return table


def _clicks(rows: DataFrame, number: str) -> DataFrame:
    return rows.selectExpr(
        f"cast(hash({number}) % 500 AS INT) AS campaign",
        f"({number} % 997) / 10.0D AS price",
        f"if({number} % 3 = 0, 4.0D, 2.0D) AS weight",
    )


def _batch(spark: SparkSession) -> Take:
    rows = _clicks(spark.range(ROWS), "id").cache()
    rows.count()

    def take(columns: list[Column]) -> float:
        started = time.perf_counter()
        rows.groupBy("campaign").agg(*columns).write.format("noop").mode("overwrite").save()
        return time.perf_counter() - started

    return take


def _stream(spark: SparkSession) -> Take:
    def take(columns: list[Column]) -> float:
        source = (
            spark.readStream.format("rate-micro-batch").option("rowsPerBatch", STREAM_ROWS).option("numPartitions", 2)
        )
        counted = _clicks(source.load(), "value").groupBy("campaign").agg(*columns)
        return median(batch_seconds(counted.writeStream.outputMode("update").format("noop").start(), STREAM_BATCHES))

    return take
