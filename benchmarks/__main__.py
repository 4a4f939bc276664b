"""``make bench``: ratios against plain Spark, each measured in one interleaved run."""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from rich.console import Console
from rich.progress import Progress

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
from benchmarks.steady import dropped_row, idle_overhead
from penstock.spark.packages import kafka_connector
from penstock.spark.session import local_session

PARTS = ("idle", "overload", "mechanism", "answers", "outputs", "concept", "roadmap", "network", "kernel", "operator")
# Needs Maven Central once: only when asked for.
ON_REQUEST = ("kafka",)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "parts",
        nargs="*",
        default=list(PARTS),
        help=f"any of {', '.join(PARTS + ON_REQUEST)} (default: all but the last)",
    )
    chosen = parser.parse_args().parts
    if unknown := set(chosen) - set(PARTS + ON_REQUEST):
        parser.error(f"unknown part {', '.join(sorted(unknown))}; choose from {', '.join(PARTS + ON_REQUEST)}")
    console = Console(width=130)
    tables = []
    with Progress(console=console, transient=True) as progress:
        spark = local_session(
            settings={
                "spark.sql.streaming.numRecentProgressUpdates": "2000",
                **({"spark.jars": str(kafka_connector())} if "kafka" in chosen else {}),
            },
            log_path=Path(tempfile.gettempdir()) / "penstock-bench-spark.log",
        )
        if "idle" in chosen:
            table, rows = idle_overhead(spark, progress)
            tables += [table, dropped_row(spark, progress, rows)]
        if "overload" in chosen:
            tables.append(overload(spark, progress))
        if "mechanism" in chosen:
            tables.append(mechanisms(spark, progress))
        if "answers" in chosen:
            tables.append(answers_with_bounds(spark, progress))
        if "concept" in chosen:
            tables += [part(spark, progress) for part in (window_latency, window_intake, native_rates)]
        if "kafka" in chosen:
            tables.append(kafka(progress, spark))
        if "roadmap" in chosen:
            tables += [speed(progress), gaps(progress)]
        if "network" in chosen:
            tables += networks(spark, progress)
        if "outputs" in chosen:
            tables += outputs_under_overload(spark, progress)
        if "kernel" in chosen:
            tables.append(kernels(progress))
        if "operator" in chosen:
            tables.append(wrapper_overhead(spark, progress))
    for table in tables:
        console.print(table)


if __name__ == "__main__":
    main()
