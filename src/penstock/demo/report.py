"""Show the demo to a person: a line for each batch while it runs, and what it came to."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from penstock.demo.batches import DemoBatch
from penstock.demo.claim import Claim
from penstock.demo.figures import Account, AnswerFigures, Percentile, PhaseFigures, RunFigures

# One mark of the bar per second of latency.
BAR_SECONDS = 15
WHEN = {"before": "before the burst", "burst": "in the burst", "after": "after the burst"}


def print_heading(console: Console, words: str) -> None:
    """Name the columns of the lines that follow."""
    console.print(f"\n[bold]{words}[/]")
    console.print(f"  {'time':>5}  {'phase':6}  {'latency':>7}  {'':{BAR_SECONDS}}  {'offered':>8}  {'kept':>8}")


def print_batch(console: Console, batch: DemoBatch, *, latency_seconds: float) -> None:
    """Print one line: when the batch was committed, how late its oldest row was, and what was kept of it."""
    style = "green" if batch.latency_seconds <= latency_seconds else "red"
    # The first clause: the rest are figures, and all of it is in --json.
    reason = batch.reason.partition(":")[0]
    share = "all" if batch.kept == batch.offered else f"{batch.kept / batch.offered:.0%}"
    line = Text.assemble(
        f"  {batch.committed_seconds:3.0f} s  {batch.phase:6}  {batch.latency_seconds:5.1f} s  ",
        (f"{bar(batch.latency_seconds):{BAR_SECONDS}}", style),
        f"  {batch.offered:8,}  {batch.kept:8,}  {share:>4}  {reason}",
    )
    console.print(line, no_wrap=True, overflow="ellipsis")


def bar(seconds: float) -> str:
    """Draw a time, a mark for each second; one that does not fit ends in an arrow.

    >>> bar(0.2), bar(3.4), bar(30)
    ('▌', '███▌', '██████████████▶')
    """
    if seconds > BAR_SECONDS:
        return "█" * (BAR_SECONDS - 1) + "▶"
    whole, half = divmod(round(max(seconds, 0.5) * 2), 2)
    return "█" * whole + "▌" * half


def print_report(
    console: Console,
    runs: Sequence[RunFigures],
    account: Account,
    *,
    claims: list[Claim],
    shown: list[Claim],
    latency_seconds: float,
) -> None:
    """Print latency and kept share by phase, what the answers are worth, and what was to be shown."""
    console.print()
    console.print(_latencies(runs, latency_seconds))
    for run in runs:
        if unanswered := sum(phase.unanswered for phase in run.phases):
            console.print(
                f"{run.name} was stopped {run.stopped_seconds:.0f} s after the stream began. {unanswered:,} rows had "
                "no answer by then: where these matter, a latency is at least what stands after >.",
                highlight=False,
            )
    console.print(_answers(account))
    console.print("\n[bold]What must hold[/]")
    for claim in claims:
        mark = "[green]held[/]    " if claim.held else "[red]NOT HELD[/]"
        console.print(f"  {mark}  {_claim(claim)}", highlight=False)
    if shown:
        console.print("\n[bold]What hangs on the machine[/] (shown, not judged; --strict judges it)")
    for claim in shown:
        mark = "[green]yes[/]     " if claim.held else "[yellow]not here[/]"
        console.print(f"  {mark}  {_claim(claim)}", highlight=False)


def _latencies(runs: Sequence[RunFigures], latency_seconds: float) -> Table:
    table = Table(title=f"Latency of rows, arrival to commit (target {latency_seconds:g} s)", title_justify="left")
    table.add_column("rows that arrive")
    table.add_column("run")
    for heading in ("p50", "p95", "p99", "kept"):
        table.add_column(heading, justify="right")
    for phases in zip(*(run.phases for run in runs), strict=True):
        for run, phase in zip(runs, phases, strict=True):
            cells = [_percentile(each, latency_seconds) for each in (phase.p50, phase.p95, phase.p99)]
            table.add_row(WHEN[phase.phase], run.name, *cells, _kept(phase), end_section=run is runs[-1])
    return table


def _percentile(latency: Percentile, latency_seconds: float) -> str:
    told = f"{latency.seconds:.2f} s" if latency.exact else f"> {latency.seconds:.1f} s"
    return told if latency.seconds <= latency_seconds else f"[red]{told}[/]"


def _kept(phase: PhaseFigures) -> str:
    return "100 %" if phase.kept_share == 1 else f"{100 * phase.kept_share:.1f} %"


def _answers(account: Account) -> Table:
    """Say how far the answers can be trusted."""
    table = Table(title="Penstock's answers, by campaign and window, against the truth", title_justify="left")
    table.add_column("answers")
    rows: dict[str, Callable[[AnswerFigures], str]] = {
        "nothing shed: exact": lambda told: f"{told.whole - told.whole_wrong:,} of {told.whole:,}",
        "shed: truth inside the 95 % bounds": lambda told: f"{told.bounded - told.outside:,} of {told.bounded:,}",
        "shed: bounds, in the median": lambda told: (
            "-" if told.median_bound is None else f"± {100 * told.median_bound:.1f} %"
        ),
        "shed: too few rows left for bounds": lambda told: f"{told.without_bounds:,}",
        "less than a tenth shed: not judged": lambda told: f"{told.barely_shed:,}",
    }
    for told in account.answers:
        table.add_column(told.aggregate, justify="right")
    for words, cell in rows.items():
        table.add_row(words, *(cell(told) for told in account.answers))
    return table


def _claim(claim: Claim) -> str:
    value = f"{claim.value:,.0f}" if claim.value >= 1_000 else f"{claim.value:.3g}"
    return f"{claim.text}: {value} ({claim.bound})"
