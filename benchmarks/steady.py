"""What Penstock costs when there is nothing to shed, and what a dropped row costs when there is."""

from __future__ import annotations

from statistics import median

from pyspark.sql import SparkSession
from rich.progress import Progress
from rich.table import Table

from benchmarks.workload import Query, costly, light, plain_batch_seconds, rows_for, shed_batch_seconds

ROUNDS = 5
BATCHES = 6


def idle_overhead(spark: SparkSession, progress: Progress) -> tuple[Table, int]:
    """Throughput with Penstock attached and nothing to shed, against plain Spark, in batches of about a second."""
    table = Table(title="Nothing to shed: throughput against plain Spark, batches of one second", title_justify="left")
    for heading in ("query", "rows a batch", "plain batch", "with Penstock", "throughput ratio", "rounds (min..max)"):
        table.add_column(heading, justify="right")
    sizes: dict[str, int] = {}
    for name, query, guess in (("demo query", costly, 20_000), ("bare window sums", light, 500_000)):
        task = progress.add_task(f"idle overhead, {name}", total=ROUNDS + 1)
        rows = rows_for(1.0, spark, query, first_guess=guess)
        progress.advance(task)
        plain, shed, ratios = [], [], []
        for round_number in range(ROUNDS):
            pair = _pair(spark, query, rows, plain_first=round_number % 2 == 0)
            plain += pair[0]
            shed += pair[1]
            ratios.append(median(pair[0]) / median(pair[1]))
            progress.advance(task)
        sizes[name] = rows
        table.add_row(
            name, f"{rows:,}", f"{median(plain):.2f} s", f"{median(shed):.2f} s",
            f"{median(plain) / median(shed):.3f}", f"{min(ratios):.3f}..{max(ratios):.3f}",
        )  # fmt: skip
    return table, sizes["demo query"]


def _pair(spark: SparkSession, query: Query, rows: int, *, plain_first: bool) -> tuple[list[float], list[float]]:
    """One round of both, each first in turn, so that a drift of the machine hits both."""
    plain: list[float] = []
    if plain_first:
        plain = plain_batch_seconds(spark, query, rows=rows, batches=BATCHES)
    shed = shed_batch_seconds(spark, query, rows=rows, batches=BATCHES)
    if not plain_first:
        plain = plain_batch_seconds(spark, query, rows=rows, batches=BATCHES)
    return plain, shed


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
