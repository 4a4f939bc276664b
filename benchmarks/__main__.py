"""``make bench``: ratios against plain Spark, each measured in one interleaved run."""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from pyspark.sql import SparkSession
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from benchmarks.answers import answers_with_bounds
from benchmarks.concept import native_rates, window_intake, window_latency
from benchmarks.kafka import kafka
from benchmarks.kernel import kernels
from benchmarks.mechanism import mechanisms
from benchmarks.network import networks
from benchmarks.operators import wrapper_overhead
from benchmarks.outputs import outputs_under_overload
from benchmarks.overload import overload
from benchmarks.roadmap import gaps, speed
from benchmarks.spill import spilling
from benchmarks.steady import dropped_row, idle_overhead
from benchmarks.workload import costly, light
from penstock.spark.packages import kafka_connector
from penstock.spark.session import local_session


def _idle(spark: SparkSession, progress: Progress) -> Iterator[Table]:
    table, rows = idle_overhead(spark, progress, "demo query", costly, first_guess=20_000)
    yield table
    yield dropped_row(spark, progress, rows)
    yield idle_overhead(spark, progress, "bare window sums", light, first_guess=500_000)[0]


PARTS: dict[str, Callable[[SparkSession, Progress], Iterable[Table]]] = {
    "idle": _idle,
    "overload": lambda spark, progress: [overload(spark, progress)],
    "mechanism": lambda spark, progress: [mechanisms(spark, progress)],
    "spill": lambda spark, progress: [spilling(spark, progress)],
    "answers": lambda spark, progress: [answers_with_bounds(spark, progress)],
    "outputs": outputs_under_overload,
    "concept": lambda spark, progress: [
        part(spark, progress) for part in (window_latency, window_intake, native_rates)
    ],
    "roadmap": lambda spark, progress: (part(progress) for part in (speed, gaps)),
    "network": networks,
    "kernel": lambda spark, progress: [kernels(progress)],
    "operator": lambda spark, progress: [wrapper_overhead(spark, progress)],
    "kafka": lambda spark, progress: [kafka(progress, spark)],
}
# Needs Maven Central once.
ON_REQUEST = ("kafka",)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    usual = [name for name in PARTS if name not in ON_REQUEST]
    parser.add_argument(
        "parts",
        nargs="*",
        default=usual,
        help=f"any of {', '.join(PARTS)} (default: all but {', '.join(ON_REQUEST)})",
    )
    chosen = parser.parse_args().parts
    if unknown := set(chosen) - set(PARTS):
        parser.error(f"unknown part {', '.join(sorted(unknown))}; choose from {', '.join(PARTS)}")
    console = Console(width=130)
    with Progress(console=console, transient=True) as progress:
        spark = local_session(
            settings={
                "spark.sql.streaming.numRecentProgressUpdates": "2000",
                **({"spark.jars": str(kafka_connector())} if "kafka" in chosen else {}),
            },
            log_path=Path(tempfile.gettempdir()) / "penstock-bench-spark.log",
        )
        for name in chosen:
            # As soon as there are any: an hour of figures should not hang on the last part.
            for table in PARTS[name](spark, progress):
                console.print(table)


if __name__ == "__main__":
    main()
