"""Show the demo's figures to a person."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table

from penstock.demo.figures import RunFigures
from penstock.demo.timetable import PHASES
from penstock.reproduce.figure import Claim


def print_report(console: Console, runs: list[RunFigures], claims: list[Claim], *, latency_seconds: float) -> None:
    """Print latency and kept share by phase, errors, and what was to be shown."""
    table = Table(title=f"Latency of clicks, arrival to commit (target {latency_seconds:g} s)", title_justify="left")
    table.add_column("phase")
    table.add_column("run")
    for heading in ("p50", "p95", "p99", "kept"):
        table.add_column(heading, justify="right")
    for phases in zip(*(run.phases for run in runs), strict=True):
        for run, phase in zip(runs, phases, strict=True):
            cells = [_seconds(s, latency_seconds) for s in (phase.p50_seconds, phase.p95_seconds, phase.p99_seconds)]
            table.add_row(phase.phase, run.name, *cells, f"{phase.kept_share:.1%}", end_section=run is runs[-1])
    console.print(table)
    errors = Table(title="Error of the answers against the truth", title_justify="left")
    for heading in ("run", "clicks per window (mean)", "(max)", "per window and campaign (mean)", "revenue (mean)"):
        errors.add_column(heading, justify="left" if heading == "run" else "right")
    for run in runs:
        shown = (run.window_error_mean, run.window_error_max, run.group_error_mean, run.revenue_error_mean)
        errors.add_row(run.name, *(f"{error:.2%}" for error in shown))
    console.print(errors)
    for claim in claims:
        mark = "[green]held[/]    " if claim.held else "[red]not held[/]"
        console.print(f"  {mark}  {claim.text}: {claim.value:.3g} ({claim.bound})", highlight=False)
    for batch in runs[-1].batch_log:
        if batch.phase == PHASES[0] and batch.kept < batch.offered:
            when = f"{batch.kept / batch.offered:.1%} kept at {batch.started_seconds:.1f} s"
            console.print(f"  Before the burst, {when}: {batch.reason}.", highlight=False)


def _seconds(seconds: float, target_seconds: float) -> str:
    return f"{seconds:.2f} s" if seconds <= target_seconds else f"[red]{seconds:.2f} s[/]"
