"""``penstock demo``: measure the machine, run both, tell the difference."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from penstock.demo.figures import claims_of, run_figures, to_json
from penstock.demo.plot import plot_demo
from penstock.demo.report import print_report
from penstock.demo.run import SEED, capacity_tuples_per_second, run_penstock, run_plain
from penstock.demo.timetable import BURST, timetable
from penstock.model.errors import InvalidInputError, require_positive
from penstock.reproduce.plot import require_matplotlib
from penstock.spark.session import local_session

CORES = 2
# Of what a short measurement says the machine can verify. A machine that is shared has moods: the quiet load fits one
# that takes half as long again, and the burst is too much for one that is half as fast again.
QUIET_LOAD = 0.5
LEAST_SECONDS = 15


def run_demo(*, seconds: float, latency_seconds: float, json_path: Path | None, plot_path: Path | None) -> bool:
    """Run the demo and say whether everything that it is to show was seen."""
    require_positive("seconds", seconds, meaning="the length of the stream")
    require_positive("latency", latency_seconds, meaning="the latency target in seconds")
    if seconds < LEAST_SECONDS:
        raise InvalidInputError(
            f"seconds must be at least {LEAST_SECONDS}, got {seconds:g}; a burst needs time to show"
        )
    if plot_path is not None:
        require_matplotlib()
    console = Console()
    console.print(
        "[bold]Penstock demo[/]: clicks are verified (costly), then counted by campaign in windows of five seconds.\n"
        f"Quiet, a burst of {BURST} times the load, quiet again; first through plain Spark, then through Penstock."
    )
    log_path = Path(tempfile.gettempdir()) / "penstock-demo-spark.log"
    with console.status(f"starting Spark (its log: {log_path}) and measuring this machine"):
        spark = local_session(
            cores=CORES, settings={"spark.sql.streaming.numRecentProgressUpdates": "2000"}, log_path=log_path
        )
        capacity = capacity_tuples_per_second(spark)
        quiet = round(QUIET_LOAD * capacity)
    arrivals = timetable(seconds=seconds, quiet_tuples_per_second=quiet)
    console.print(
        f"Spark verifies {capacity:,.0f} clicks a second here; {quiet:,} arrive, in the burst {BURST * quiet:,}."
    )
    with _bar(console, "plain Spark") as advance:
        plain = run_plain(spark, arrivals, advance)
    with _bar(console, "Penstock   ") as advance:
        shed = run_penstock(spark, arrivals, advance, latency_seconds=latency_seconds)
    spark.stop()
    figures = [run_figures(outcome, arrivals) for outcome in (plain, shed)]
    claims = claims_of(*figures, latency_seconds=latency_seconds)
    print_report(console, figures, claims, latency_seconds=latency_seconds)
    if json_path is not None:
        settings = {
            "seconds": seconds,
            "latency_seconds": latency_seconds,
            "capacity_tuples_per_second": capacity,
            "quiet_tuples_per_second": quiet,
            "burst_tuples_per_second": BURST * quiet,
            "seed": SEED,
            "cores": CORES,
        }
        json_path.write_text(json.dumps(to_json(figures, settings, claims), indent=2) + "\n", encoding="utf-8")
    if plot_path is not None:
        plot_demo([plain, shed], arrivals, plot_path, latency_seconds=latency_seconds)
        console.print(f"Latency and keep rate over time: {plot_path}", highlight=False)
    return all(claim.held for claim in claims)


@contextmanager
def _bar(console: Console, name: str) -> Iterator[Callable[[float], None]]:
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f} %"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console) as progress:
        task = progress.add_task(name, total=1.0)
        yield lambda share: progress.update(task, completed=share)
