"""What it costs per batch to bring the plan into a running query, by either mechanism."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from statistics import median

from pyspark.sql import DataFrame, SparkSession
from rich.progress import Progress
from rich.table import Table

from benchmarks.workload import batch_seconds, shedder_at
from penstock.demo.clicks import clicks_in_batches

ROUNDS = 4
BATCHES = 25
ROWS = 1_000


def write(rows: DataFrame, batch_id: int) -> None:
    rows.write.format("noop").mode("overwrite").save()


def _plain(rows: DataFrame, folder: str) -> list[float]:
    writer = rows.writeStream.format("noop").option("checkpointLocation", folder)
    return batch_seconds(writer.start(), BATCHES)


def _plain_each(rows: DataFrame, folder: str) -> list[float]:
    writer = rows.writeStream.foreachBatch(write).option("checkpointLocation", folder)
    return batch_seconds(writer.start(), BATCHES)


def _in_plan(rows: DataFrame, folder: str) -> list[float]:
    shedder = shedder_at(folder, 0.5)
    run = shedder.start(rows.transform(shedder).writeStream.format("noop"))
    return batch_seconds(run.query, BATCHES)


def _literals(rows: DataFrame, folder: str) -> list[float]:
    run = shedder_at(folder, 0.5).start_each_batch(rows, write)
    return batch_seconds(run.query, BATCHES)


def mechanisms(spark: SparkSession, progress: Progress) -> Table:
    """Median batch of a small stateless query, plain and with each mechanism, interleaved."""
    forms: dict[str, Callable[[DataFrame, str], list[float]]] = {
        "plain, native sink": _plain,
        "in the plan, native sink": _in_plan,
        "plain, foreachBatch": _plain_each,
        "literals, foreachBatch": _literals,
    }
    taken: dict[str, list[float]] = {name: [] for name in forms}
    task = progress.add_task("plan mechanisms", total=ROUNDS * len(forms))
    for _ in range(ROUNDS):
        for name, measure in forms.items():
            with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
                taken[name] += measure(clicks_in_batches(spark, rows_per_batch=ROWS), folder)
            progress.advance(task)
    table = Table(title=f"Plan mechanisms: batches of {ROWS:,} rows, keep 0.5, no state", title_justify="left")
    for heading in ("mechanism", "batch", "added per batch", "ratio to its plain form"):
        table.add_column(heading, justify="left" if heading == "mechanism" else "right")
    for plain, shed in (
        ("plain, native sink", "in the plan, native sink"),
        ("plain, foreachBatch", "literals, foreachBatch"),
    ):
        base, mine = median(taken[plain]), median(taken[shed])
        table.add_row(plain, f"{base * 1000:.0f} ms", "", "1")
        table.add_row(shed, f"{mine * 1000:.0f} ms", f"{(mine - base) * 1000:+.0f} ms", f"{mine / base:.2f}")
    return table
