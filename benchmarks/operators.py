"""What the wrapper of an operator costs when there is nothing to shed, against the same function in mapInArrow."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from functools import partial
from statistics import median
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from rich.progress import Progress
from rich.table import Table

import penstock as ps
from benchmarks.turns import attached, in_turns, plain, ratios, told, triggered
from benchmarks.workload import numbers

TURNS = 30
BUSY_SECONDS = 0.6

Function = Callable[[dict[str, Any]], dict[str, Any]]


def wrapper_overhead(spark: SparkSession, progress: Progress) -> Table:
    """Throughput with the wrapper against without, for functions of 50 and 500 microseconds."""
    table = Table(title="Nothing to shed: an operator against the same function in mapInArrow", title_justify="left")
    for heading in (
        "a tuple takes",
        "rows a batch",
        "plain batch",
        "with Penstock",
        "throughput ratio",
        "95 % interval",
    ):
        table.add_column(heading, justify="right")
    for micros in (50, 500):
        rows = int(2 * BUSY_SECONDS / (micros / 1e6))
        both = {"plain": partial(_plain, busy(micros)), "wrapped": partial(_wrapped, busy(micros))}
        taken = in_turns(spark, progress, f"wrapper, {micros} µs", numbers(spark, rows), both, turns=TURNS)
        table.add_row(
            f"{micros} µs", f"{rows:,}", f"{median(taken['plain']):.2f} s", f"{median(taken['wrapped']):.2f} s",
            *told(ratios(taken["plain"], taken["wrapped"])),
        )  # fmt: skip
    return table


def busy(micros: int) -> Function:
    """A function that keeps a core busy for so long."""

    def function(row: dict[str, Any]) -> dict[str, Any]:
        until = time.perf_counter_ns() + micros * 1_000
        while time.perf_counter_ns() < until:
            pass
        return {"value": row["value"]}

    return function


def _plain(function: Function, rows: DataFrame, checkpoint: str) -> AbstractContextManager[StreamingQuery]:
    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield pa.RecordBatch.from_pylist([function(row) for row in batch.to_pylist()])

    return plain(rows.mapInArrow(run, "value BIGINT").writeStream.format("noop"), checkpoint)


def _wrapped(function: Function, rows: DataFrame, checkpoint: str) -> AbstractContextManager[StreamingQuery]:
    worker = ps.operator(
        function, key="value", returns="value BIGINT", latency=600, checkpoint=checkpoint, probe_tuples=10**9
    )
    return attached(worker.start(triggered(rows.transform(worker).writeStream.format("noop"))))
