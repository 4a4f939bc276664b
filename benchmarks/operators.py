"""What the wrapper of an operator costs when there is nothing to shed, against the same function in mapInArrow."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator
from statistics import median
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from rich.progress import Progress
from rich.table import Table

import penstock as ps
from benchmarks.workload import batch_seconds

ROUNDS = 3
BATCHES = 3
BATCH_SECONDS = 1.0


def wrapper_overhead(spark: SparkSession, progress: Progress) -> Table:
    """Throughput with the wrapper against without, for functions of 50 and 500 microseconds."""
    table = Table(title="Nothing to shed: an operator against the same function in mapInArrow", title_justify="left")
    for heading in ("a tuple takes", "rows a batch", "plain batch", "with Penstock", "throughput ratio", "rounds"):
        table.add_column(heading, justify="right")
    durations = (50, 500)
    task = progress.add_task("wrapper", total=len(durations) * ROUNDS)
    for micros in durations:
        rows = int(2 * BATCH_SECONDS / (micros / 1e6))
        plain: list[float] = []
        wrapped: list[float] = []
        ratios = []
        for number in range(ROUNDS):
            # Each first in turn, so that a drift of the machine hits both.
            order = (_plain, _wrapped) if number % 2 else (_wrapped, _plain)
            pair = {measure: measure(spark, busy(micros), rows) for measure in order}
            plain += pair[_plain]
            wrapped += pair[_wrapped]
            ratios.append(median(pair[_plain]) / median(pair[_wrapped]))
            progress.advance(task)
        table.add_row(
            f"{micros} µs", f"{rows:,}", f"{median(plain):.2f} s", f"{median(wrapped):.2f} s",
            f"{median(plain) / median(wrapped):.3f}", f"{min(ratios):.3f}..{max(ratios):.3f}",
        )  # fmt: skip
    return table


def busy(micros: int) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """A function that keeps a core busy for so long."""

    def function(row: dict[str, Any]) -> dict[str, Any]:
        until = time.perf_counter_ns() + micros * 1_000
        while time.perf_counter_ns() < until:
            pass
        return {"value": row["value"]}

    return function


def _stream(spark: SparkSession, rows: int) -> DataFrame:
    source = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", rows)
    return source.option("numPartitions", 2).load()


def _plain(spark: SparkSession, function: Callable[[dict[str, Any]], dict[str, Any]], rows: int) -> list[float]:
    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield pa.RecordBatch.from_pylist([function(row) for row in batch.to_pylist()])

    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        results = _stream(spark, rows).mapInArrow(run, "value BIGINT")
        query = results.writeStream.format("noop").option("checkpointLocation", folder).start()
        return batch_seconds(query, BATCHES)


def _wrapped(spark: SparkSession, function: Callable[[dict[str, Any]], dict[str, Any]], rows: int) -> list[float]:
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        worker = ps.operator(
            function, key="value", returns="value BIGINT", latency=600, checkpoint=folder, probe_tuples=10**9
        )
        run = worker.start(_stream(spark, rows).transform(worker).writeStream.format("noop"))
        seconds = batch_seconds(run.query, BATCHES)
        run.stop()
        if run.status.shed:
            raise RuntimeError(f"the benchmark was to keep all and shed {run.status.shed}")
        return seconds
