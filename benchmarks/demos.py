"""Does the demo hold as a newcomer runs it? ``python -m benchmarks.demos``: a fresh clone, and ``make demo`` ten times.

In every other run a neighbour keeps one core busy, ten seconds on and ten seconds off. Takes half an hour and more.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).resolve().parents[1]
PHASE_SECONDS = 10.0
NEIGHBOUR = f"""
import time
while True:
    ends_at = time.monotonic() + {PHASE_SECONDS}
    while time.monotonic() < ends_at:
        pass
    time.sleep({PHASE_SECONDS})
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=10, help="how often (default: %(default)d)")
    runs = parser.parse_args().runs
    console = Console(width=130)
    table = Table(title="make demo in a fresh clone", title_justify="left")
    for heading in (
        "run", "neighbour", "exit code", "p95 in the burst / target", "plain Spark's p95", "kept / plain, rows/s",
        "shed before the burst", "truth in bounds", "seconds in all",
    ):  # fmt: skip
        table.add_column(heading, justify="left" if heading == "neighbour" else "right")
    failed = 0
    with tempfile.TemporaryDirectory(prefix="penstock-demos-", ignore_cleanup_errors=True) as folder:
        clone = Path(folder) / "penstock"
        subprocess.run(["git", "clone", "--quiet", str(ROOT), str(clone)], check=True)
        for number in range(1, runs + 1):
            beside = number % 2 == 0
            with neighbour(on=beside):
                started = time.monotonic()
                code, told = run_demo(clone)
                seconds = time.monotonic() - started
            failed += code != 0
            cells = figures(told) if told else ["-"] * 5
            table.add_row(str(number), "busy" if beside else "", str(code), *cells, f"{seconds:.0f}")
            # As soon as there are any: half an hour of figures should not hang on the last run.
            console.print(" | ".join(f"{column.header}: {list(column.cells)[-1]}" for column in table.columns))
    console.print(table)
    return 1 if failed else 0


@contextmanager
def neighbour(*, on: bool) -> Iterator[None]:
    """Share the machine with a process that keeps one core busy, in phases."""
    if not on:
        yield
        return
    with subprocess.Popen([sys.executable, "-c", NEIGHBOUR]) as process:
        try:
            yield
        finally:
            process.kill()


def run_demo(clone: Path) -> tuple[int, dict[str, Any] | None]:
    """Run the command that README names; its exit code and figures, or none where it did not get so far."""
    written = clone.parent / "demo.json"
    written.unlink(missing_ok=True)
    # The clone sets up an environment of its own, whatever this process runs in.
    environment = {name: value for name, value in os.environ.items() if name not in ("VIRTUAL_ENV", "PYTHONPATH")}
    done = subprocess.run(
        ["make", "demo", f"ARGS=--json {written}"],
        cwd=clone,
        env=environment,
        check=False,
        capture_output=True,
        text=True,
    )
    print(done.stdout, done.stderr, sep="\n", flush=True)
    return done.returncode, json.loads(written.read_text(encoding="utf-8")) if written.exists() else None


def figures(told: dict[str, Any]) -> list[str]:
    """Boil the JSON of a run down to its row of the table."""
    plain, penstock = told["runs"]
    target = told["settings"]["latency_seconds"]
    late, plain_late = (run["phases"][1]["p95"] for run in (penstock, plain))
    answers = told["account"]["answers"]
    inside = ", ".join(f"{each['bounded'] - each['outside']} of {each['bounded']}" for each in answers)
    kept = penstock["burst_rows_per_second"] / plain["burst_rows_per_second"]
    return [
        f"{late['seconds']:.2f} s / {target:g} s",
        f"{'' if plain_late['exact'] else '> '}{plain_late['seconds']:.1f} s",
        f"{kept:.2f}",
        f"{penstock['shed_before_burst']:,}",
        inside,
    ]


if __name__ == "__main__":
    sys.exit(main())
