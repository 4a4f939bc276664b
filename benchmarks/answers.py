"""What bounds cost: answers with bounds against Spark's plain sum and count, on the same rows."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from statistics import median

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery
from rich.progress import Progress
from rich.table import Table

import penstock as ps
from benchmarks import turns
from benchmarks.workload import numbers, rows_for
from penstock.demo.clicks import clicks_from

TURNS = 40
WARM_UP_ROUNDS, ROUNDS = 3, 15
ROWS_IN_MEMORY = 12_000_000

Columns = Callable[[], list[Column]]


def plain() -> list[Column]:
    """What plain Spark answers."""
    return [F.count(F.lit(1)).alias("n"), F.sum("price").alias("s")]


def weighted() -> list[Column]:
    """Spark's own weighted sums, without bounds: what weights alone cost."""
    return [F.sum("weight").alias("n"), F.sum(F.col("weight") * F.col("price")).alias("s")]


def bounded() -> list[Column]:
    """The same with bounds."""
    return [ps.count().alias("n"), ps.sum("price").alias("s")]


ASKED: dict[str, Columns] = {"plain": plain, "weighted": weighted, "bounded": bounded}


def answers_with_bounds(spark: SparkSession, progress: Progress) -> Table:
    """Throughput of ``ps.count`` and ``ps.sum`` against ``F.count`` and ``F.sum``, in turns.

    Beside them Spark's own sums of weights, which have no bounds: no answer with bounds can be cheaper.
    """
    table = Table(title="Count and sum with bounds: throughput against Spark's plain ones", title_justify="left")
    for heading in ("rows", "plain", "answers", "a batch", "throughput ratio", "95 % interval"):
        table.add_column(heading, justify="right")
    guess = rows_for(turns.TRIGGER_SECONDS, spark, lambda clicks, _: _windows(clicks, plain()), first_guess=1_000_000)
    rows = turns.filling(spark, progress, "answers with bounds", _queries(), by="plain", guess=guess)
    for name, taken in (
        (f"window sums of a stream, {rows:,} rows a batch", _streams(spark, rows, progress)),
        (f"nothing but the sums, {ROWS_IN_MEMORY:,} rows cached in memory", _cached(spark, progress)),
    ):
        for kind, told in (("bounded", "with bounds"), ("weighted", "weighted, no bounds")):
            table.add_row(
                name, f"{median(taken['plain']):.2f} s", told, f"{median(taken[kind]):.2f} s",
                *turns.told(turns.ratios(taken["plain"], taken[kind])),
            )  # fmt: skip
    return table


def _windows(clicks: DataFrame, columns: list[Column]) -> DataFrame:
    weighed = clicks.withColumn("weight", F.when(F.col("id") % 3 == 0, 4.0).otherwise(2.0))
    return weighed.groupBy(F.window("arrived", "5 seconds").getField("start"), "campaign").agg(*columns)


def _streams(spark: SparkSession, rows: int, progress: Progress) -> dict[str, list[float]]:
    return turns.in_turns(spark, progress, "answers with bounds", numbers(spark, rows), _queries(), turns=TURNS)


def _queries() -> dict[str, turns.Start]:
    return {name: partial(_started, columns) for name, columns in ASKED.items()}


def _started(columns: Columns, rows: DataFrame, checkpoint: str) -> AbstractContextManager[StreamingQuery]:
    counted = _windows(clicks_from(rows), columns())
    return turns.plain(counted.writeStream.outputMode("update").format("noop"), checkpoint)


def _cached(spark: SparkSession, progress: Progress) -> dict[str, list[float]]:
    task = progress.add_task("answers with bounds, cached", total=WARM_UP_ROUNDS + ROUNDS)
    rows = spark.range(ROWS_IN_MEMORY).selectExpr(
        "cast(hash(id) % 500 AS INT) AS campaign",
        "(id % 997) / 10.0D AS price",
        "if(id % 3 = 0, 4.0D, 2.0D) AS weight",
    )
    rows = rows.cache()
    rows.count()
    # Built once, as a streaming query is; Spark plans it anew in every round, as it does in every batch.
    asked = [(kind, rows.groupBy("campaign").agg(*columns())) for kind, columns in ASKED.items()]
    taken: dict[str, list[float]] = {kind: [] for kind in ASKED}
    for number in range(WARM_UP_ROUNDS + ROUNDS):
        for kind, summed in asked if number % 2 else reversed(asked):
            started = time.perf_counter()
            summed.write.format("noop").mode("overwrite").save()
            taken[kind].append(time.perf_counter() - started)
        progress.advance(task)
    rows.unpersist()
    return {kind: seconds[WARM_UP_ROUNDS:] for kind, seconds in taken.items()}
