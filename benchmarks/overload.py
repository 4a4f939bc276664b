"""Under overload: how much of the machine goes into kept rows, and how soon a step is under control."""

from __future__ import annotations

import tempfile
import time
from statistics import median

from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from rich.progress import Progress
from rich.table import Table

import penstock as ps
from penstock.demo.bursty import bursty_stream
from penstock.demo.clicks import answers
from penstock.demo.run import capacity_rows_per_second
from penstock.model.arrivals import Arrivals

TARGET_SECONDS = 5.0
QUIET_SECONDS, STEP_SECONDS = 12.0, 24.0
REPEATS = 6


def overload(spark: SparkSession, progress: Progress) -> Table:
    """Step from half of plain Spark's peak to three and to ten times of it; peak measured before each step."""
    table = Table(title="A step from half the peak of plain Spark, target 5 s", title_justify="left")
    for heading in (
        "step", "plain peak, rows/s", "offered, rows/s", "kept, rows/s", "kept / peak", "late batches",
        "batches until inside", "worst latency / target",
    ):  # fmt: skip
        table.add_column(heading, justify="right")
    task = progress.add_task("steps to 3x and 10x", total=2 * REPEATS)
    for times in (3, 10):
        ratios, lates = [], []
        for _ in range(REPEATS):
            peak = capacity_rows_per_second(spark)
            arrivals = Arrivals.of((QUIET_SECONDS, peak / 2), (STEP_SECONDS, times * peak))
            stepped_at, batches = _run(spark, arrivals)
            after = [b for b in batches if b.committed_at and b.committed_at > stepped_at and b.offered]
            late = [n for n, b in enumerate(after, start=1) if (b.latency_seconds or 0) > TARGET_SECONDS]
            # Batches that began under overload and ended before it did: the steady part of the step.
            whole = [b for b in after if b.started_at and b.started_at > stepped_at + TARGET_SECONDS]
            busy_seconds = whole[-1].started_at - whole[0].started_at  # type: ignore[operator]
            kept = sum(b.kept for b in whole[:-1]) / busy_seconds
            offered = sum(b.offered for b in whole[:-1]) / busy_seconds
            worst = max(b.latency_seconds or 0 for b in after) / TARGET_SECONDS
            table.add_row(
                f"{times}x", f"{peak:,.0f}", f"{offered:,.0f}", f"{kept:,.0f}", f"{kept / peak:.2f}", f"{len(late)}",
                f"{late[-1] if late else 0} of {len(after)}", f"{worst:.2f}",
            )  # fmt: skip
            ratios.append(kept / peak)
            lates.append(len(late))
            progress.advance(task)
        in_time = f"none in {lates.count(0)} of {REPEATS}"
        table.add_row(f"{times}x, median", "", "", "", f"{median(ratios):.2f}", in_time, "", "", end_section=True)
    return table


def _run(spark: SparkSession, arrivals: Arrivals) -> tuple[float, list[ps.Batch]]:
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        epoch = time.time() + 3.0
        shedder = ps.shed(latency_seconds=TARGET_SECONDS, checkpoint=folder, row_id="id", arrival="arrived")
        rows = bursty_stream(spark, arrivals, epoch=epoch).transform(shedder)
        counted = answers(rows, weight=F.col("weight"))
        writer = counted.writeStream.outputMode("update").format("noop").trigger(processingTime="1 second")
        with shedder.start(writer) as run:
            run.await_termination(epoch + arrivals.total_seconds - time.time())
        return epoch + QUIET_SECONDS, run.batches
