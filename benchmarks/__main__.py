"""``make bench``: ratios against plain Spark, each measured in one interleaved run."""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from rich.console import Console
from rich.progress import Progress

from benchmarks.kernel import kernels
from benchmarks.mechanism import mechanisms
from benchmarks.operators import wrapper_overhead
from benchmarks.overload import overload
from benchmarks.steady import dropped_row, idle_overhead
from penstock.spark.session import local_session

PARTS = ("idle", "overload", "mechanism", "kernel", "operator")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", default=list(PARTS), help=f"any of {', '.join(PARTS)} (default: all)")
    chosen = parser.parse_args().parts
    if unknown := set(chosen) - set(PARTS):
        parser.error(f"unknown part {', '.join(sorted(unknown))}; choose from {', '.join(PARTS)}")
    console = Console(width=130)
    tables = []
    with Progress(console=console, transient=True) as progress:
        spark = local_session(
            settings={"spark.sql.streaming.numRecentProgressUpdates": "2000"},
            log_path=Path(tempfile.gettempdir()) / "penstock-bench-spark.log",
        )
        if "idle" in chosen:
            table, rows = idle_overhead(spark, progress)
            tables += [table, dropped_row(spark, progress, rows)]
        if "overload" in chosen:
            tables.append(overload(spark, progress))
        if "mechanism" in chosen:
            tables.append(mechanisms(spark, progress))
        if "kernel" in chosen:
            tables.append(kernels(progress))
        if "operator" in chosen:
            tables.append(wrapper_overhead(spark, progress))
    for table in tables:
        console.print(table)


if __name__ == "__main__":
    main()
