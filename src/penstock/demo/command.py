"""``penstock demo``: warm Spark up, run both, tell the difference."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

from rich.console import Console

from penstock.demo.batches import DemoBatch
from penstock.demo.figures import account_of, moods, promises, run_figures, to_json
from penstock.demo.plot import plot_demo, require_matplotlib
from penstock.demo.report import print_batch, print_heading, print_report
from penstock.demo.run import SEED, run_penstock, run_plain, warm_up
from penstock.demo.timetable import BURST_LOAD, QUIET_LOAD
from penstock.model.errors import InvalidInputError, require_positive
from penstock.spark.session import local_session

CORES = 2
LEAST_SECONDS = 15
# Lines for a file or a pipe.
PLAIN_WIDTH = 120


def run_demo(
    *,
    seconds: int,
    latency_seconds: float,
    json_path: Path | None = None,
    plot_path: Path | None = None,
    strict: bool = False,
) -> bool:
    """Run the demo and say whether everything that must hold was seen."""
    require_positive("latency", latency_seconds, meaning="the latency target in seconds")
    if seconds < LEAST_SECONDS:
        raise InvalidInputError(f"seconds must be at least {LEAST_SECONDS}, got {seconds}; a burst needs time to show")
    if plot_path is not None:
        require_matplotlib()
    console = Console()
    if not console.is_terminal:
        console.width = PLAIN_WIDTH
    console.print(
        "[bold]Penstock demo[/]: clicks are verified (costly), then counted by campaign in windows of five seconds.\n"
        "Quiet, a burst, quiet again; first through plain Spark, then the same stream through Penstock."
    )
    log_path = Path(tempfile.gettempdir()) / "penstock-demo-spark.log"
    console.print(f"Starting Spark; its log is {log_path}.", highlight=False)
    spark = local_session(
        cores=CORES, settings={"spark.sql.streaming.numRecentProgressUpdates": "2000"}, log_path=log_path
    )

    def show_warm_up(rows: int, batch_seconds: float) -> None:
        console.print(f"  {rows:8,} rows in {batch_seconds:4.1f} s: {rows / batch_seconds:8,.0f} a second")

    def show(batch: DemoBatch) -> None:
        print_batch(console, batch, latency_seconds=latency_seconds)

    console.print(
        "\n[bold]Warming up[/]: a young Java is slow. First the shed query, then plain Spark until it is steady."
    )
    speed = warm_up(spark, show_warm_up)
    warm_rows_per_second = speed.rows_per_second
    console.print(
        f"Spark does {warm_rows_per_second:,.0f} rows a second now. What arrives follows what it does at each moment: "
        f"{QUIET_LOAD:g} times that, in the burst {BURST_LOAD:g} times.",
        highlight=False,
    )
    print_heading(console, "Plain Spark")
    plain = run_plain(spark, seconds=seconds, speed=speed, on_batch=show)
    print_heading(console, f"Penstock, the same stream, to be answered within {latency_seconds:g} s")
    shed = run_penstock(spark, plain.arrivals, latency_seconds=latency_seconds, on_batch=show)
    spark.stop()

    figures, account = (run_figures(plain), run_figures(shed)), account_of(shed)
    claims, shown = promises(*figures, account), moods(*figures, latency_seconds=latency_seconds)
    if strict:
        claims, shown = [*claims, *shown], []
    print_report(console, figures, account, claims=claims, shown=shown, latency_seconds=latency_seconds)
    if json_path is not None:
        settings = {
            "seconds": seconds,
            "latency_seconds": latency_seconds,
            "warm_rows_per_second": warm_rows_per_second,
            "timetable": [[phase.seconds, phase.tuples_per_second] for phase in plain.arrivals.phases],
            "strict": strict,
            "seed": SEED,
            "cores": CORES,
        }
        told = to_json(figures, account, settings, claims=claims, shown=shown)
        json_path.write_text(json.dumps(told, indent=2) + "\n", encoding="utf-8")
    if plot_path is not None:
        plot_demo([plain, shed], plot_path, latency_seconds=latency_seconds)
        console.print(f"\nLatency and keep rate over time: {plot_path}", highlight=False)
    return all(claim.held for claim in claims)
