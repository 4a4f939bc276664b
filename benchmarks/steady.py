"""What Penstock costs when there is nothing to shed, and what a dropped row costs when there is."""

from __future__ import annotations

from statistics import median

from pyspark.sql import SparkSession
from rich.progress import Progress
from rich.table import Table
from scipy.stats import binom

from benchmarks.workload import Query, costly, light, plain_batch_seconds, rows_for, shed_batch_seconds

# Many short rounds: the machine's speed wanders by a third within minutes, a pair of neighbours shares it.
ROUNDS = 20
BATCHES = 3
TRIGGER_SECONDS = 1
# Short of the trigger, so that neither side ever overruns it.
BUSY_SECONDS = 0.8


def idle_overhead(spark: SparkSession, progress: Progress) -> tuple[Table, int]:
    """Throughput with nothing to shed against plain Spark, at one-second triggers that are nearly full.

    A trigger hides the difference until it overflows, so what is compared is the time a batch keeps the machine busy.
    """
    table = Table(
        title="Nothing to shed: rows per busy second against plain Spark, one-second triggers", title_justify="left"
    )
    for heading in ("query", "rows a batch", "plain batch", "with Penstock", "throughput ratio", "95 % interval"):
        table.add_column(heading, justify="right")
    sizes: dict[str, int] = {}
    for name, query, guess in (("demo query", costly, 20_000), ("bare window sums", light, 500_000)):
        task = progress.add_task(f"idle overhead, {name}", total=ROUNDS + 1)
        rows = rows_for(BUSY_SECONDS, spark, query, first_guess=guess)
        progress.advance(task)
        plain: list[float] = []
        shed: list[float] = []
        ratios = []
        for round_number in range(ROUNDS):
            pair = _pair(spark, query, rows, plain_first=round_number % 2 == 0)
            plain += pair[0]
            shed += pair[1]
            ratios.append(median(pair[0]) / median(pair[1]))
            progress.advance(task)
        sizes[name] = rows
        table.add_row(
            name, f"{rows:,}", f"{median(plain):.2f} s", f"{median(shed):.2f} s",
            f"{median(ratios):.3f}", "{:.3f}..{:.3f}".format(*median_interval(ratios)),
        )  # fmt: skip
    return table, sizes["demo query"]


def median_interval(values: list[float]) -> tuple[float, float]:
    """Bound the median that the values were drawn around, 95 times in 100, whatever their distribution."""
    ordered = sorted(values)
    # The number of values below the median is binomial.
    low = int(binom.ppf(0.025, len(ordered), 0.5))
    return ordered[max(0, low - 1)], ordered[min(len(ordered) - 1, len(ordered) - low)]


def _pair(spark: SparkSession, query: Query, rows: int, *, plain_first: bool) -> tuple[list[float], list[float]]:
    """One round of both, each first in turn, so that a drift of the machine hits both."""
    taken = {}
    for measure in (
        (plain_batch_seconds, shed_batch_seconds) if plain_first else (shed_batch_seconds, plain_batch_seconds)
    ):
        taken[measure] = measure(spark, query, rows=rows, batches=BATCHES, trigger_seconds=TRIGGER_SECONDS)
    return taken[plain_batch_seconds], taken[shed_batch_seconds]


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
