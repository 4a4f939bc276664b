"""What Penstock costs when there is nothing to shed, and what a dropped row costs when there is."""

from __future__ import annotations

from contextlib import AbstractContextManager
from functools import partial
from statistics import median

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from rich.progress import Progress
from rich.table import Table

from benchmarks.turns import TRIGGER_SECONDS, attached, filling, in_turns, plain, ratios, told, triggered
from benchmarks.workload import Query, costly, numbers, rows_for, shed_batch_seconds, shedder_at
from penstock.demo.clicks import clicks_from

TURNS = 60


def idle_overhead(
    spark: SparkSession, progress: Progress, name: str, query: Query, *, first_guess: int
) -> tuple[Table, int]:
    """Throughput with nothing to shed against plain Spark, at one-second triggers that are full.

    A trigger hides the difference until it overflows, so what is compared is the time a batch keeps the query busy.
    """
    table = Table(
        title="Nothing to shed: rows per busy second against plain Spark, one-second triggers", title_justify="left"
    )
    for heading in ("query", "rows a batch", "plain batch", "with Penstock", "throughput ratio", "95 % interval"):
        table.add_column(heading, justify="right")
    guess = rows_for(TRIGGER_SECONDS, spark, query, first_guess=first_guess)
    # That a batch overruns its trigger does no harm: the next one comes when it is done.
    both = {"plain": partial(_plain, query), "shed": partial(_attached, query)}
    rows = filling(spark, progress, f"idle overhead, {name}", both, by="plain", guess=guess)
    taken = in_turns(spark, progress, f"idle overhead, {name}", numbers(spark, rows), both, turns=TURNS)
    table.add_row(
        name, f"{rows:,}", f"{median(taken['plain']):.2f} s", f"{median(taken['shed']):.2f} s",
        *told(ratios(taken["plain"], taken["shed"])),
    )  # fmt: skip
    return table, rows


def _plain(query: Query, rows: DataFrame, checkpoint: str) -> AbstractContextManager[StreamingQuery]:
    return plain(query(clicks_from(rows), "1.0D").writeStream.outputMode("update").format("noop"), checkpoint)


def _attached(query: Query, rows: DataFrame, checkpoint: str) -> AbstractContextManager[StreamingQuery]:
    shedder = shedder_at(checkpoint, None)
    counted = query(clicks_from(rows).transform(shedder), "weight")
    return attached(shedder.start(triggered(counted.writeStream.outputMode("update").format("noop"))))


def dropped_row(spark: SparkSession, progress: Progress, rows: int) -> Table:
    """Cost of a dropped row against a kept row of the demo query, the fixed cost of a batch taken off."""
    many = rows * 20
    task = progress.add_task("cost of a dropped row", total=3 * 3)
    kept, dropped, empty = [], [], []
    for _ in range(3):
        for taken, size, keep in ((kept, rows, 1.0), (dropped, many, 0.0), (empty, 10, 0.0)):
            taken.extend(shed_batch_seconds(spark, costly, rows=size, batches=5, keep=keep))
            progress.advance(task)
    fixed = median(empty)
    kept_micros = (median(kept) - fixed) / rows * 1e6
    dropped_micros = (median(dropped) - fixed) / many * 1e6
    table = Table(title="A dropped row against a kept row of the demo query", title_justify="left")
    for heading in ("fixed cost of a batch", "kept row", "dropped row", "ratio"):
        table.add_column(heading, justify="right")
    table.add_row(
        f"{fixed:.2f} s", f"{kept_micros:.1f} µs", f"{dropped_micros:.2f} µs", f"{dropped_micros / kept_micros:.4f}"
    )
    return table
