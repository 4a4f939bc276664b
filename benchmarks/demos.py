"""Does the demo hold as a newcomer runs it? ``python -m benchmarks.demos``: a fresh clone, and ``make demo`` ten times.

``--of kafka`` runs ``make kafka`` instead. In every other run a neighbour keeps one core busy, ten seconds on and ten
seconds off. Takes half an hour and more.
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
    parser.add_argument("--of", choices=FIGURES, default="demo", help="what to run (default: %(default)s)")
    given = parser.parse_args()
    runs, figures = given.runs, FIGURES[given.of]
    console = Console(width=130)
    table = Table(title=f"make {given.of} in a fresh clone", title_justify="left")
    for heading in ("run", "neighbour", "exit code", *HEADINGS[given.of], "seconds in all"):
        table.add_column(heading, justify="left" if heading == "neighbour" else "right")
    failed = 0
    with tempfile.TemporaryDirectory(prefix="penstock-demos-", ignore_cleanup_errors=True) as folder:
        clone = Path(folder) / "penstock"
        subprocess.run(["git", "clone", "--quiet", str(ROOT), str(clone)], check=True)
        for number in range(1, runs + 1):
            beside = number % 2 == 0
            with neighbour(on=beside):
                started = time.monotonic()
                code, told = run(given.of, clone)
                seconds = time.monotonic() - started
            failed += code != 0
            cells = figures(told) if told else ["-"] * len(HEADINGS[given.of])
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


def run(what: str, clone: Path) -> tuple[int, dict[str, Any] | None]:
    """Run a command that README names; its exit code and figures, or none where it did not get so far."""
    written = clone.parent / f"{what}.json"
    written.unlink(missing_ok=True)
    # The clone sets up an environment of its own, whatever this process runs in.
    environment = {name: value for name, value in os.environ.items() if name not in ("VIRTUAL_ENV", "PYTHONPATH")}
    done = subprocess.run(
        ["make", what, f"ARGS=--json {written}"],
        cwd=clone,
        env=environment,
        check=False,
        capture_output=True,
        text=True,
    )
    print(done.stdout, done.stderr, sep="\n", flush=True)
    return done.returncode, json.loads(written.read_text(encoding="utf-8")) if written.exists() else None


def of_demo(told: dict[str, Any]) -> list[str]:
    """Boil the JSON of a demo down to its row of the table."""
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


def of_kafka(told: dict[str, Any]) -> list[str]:
    """Boil what each batch of the Kafka example did down to its row of the table."""
    begin, end = told["burst_seconds"]
    before = sum(offered - kept for started, offered, kept, *_ in told["batches"] if started < begin)
    burst = [(offered, kept) for started, offered, kept, *_ in told["batches"] if begin <= started < end]
    offered, kept = (sum(each) for each in zip(*burst, strict=True))
    return [f"{before:,}", f"{offered / (end - begin):,.0f}", f"{kept / (end - begin):,.0f}"]


HEADINGS = {
    "demo": (
        "p95 in the burst / target", "plain Spark's p95", "kept / plain, rows/s", "shed before the burst",
        "truth in bounds",
    ),
    "kafka": ("shed before the burst", "offered in the burst, rows/s", "kept, rows/s"),
}  # fmt: skip
FIGURES = {"demo": of_demo, "kafka": of_kafka}


if __name__ == "__main__":
    sys.exit(main())
