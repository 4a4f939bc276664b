"""Show a figure's settings, seeds and claims to a person."""

from __future__ import annotations

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from lab.reproduce.figure import Figure


def show_figure(console: Console, figure: Figure, *, title: str) -> None:
    """Print a table of claims below the settings."""
    console.print(f"[bold]{escape(figure.figure)}[/]: {escape(title)}", highlight=False)
    for name, value in figure.settings.items():
        console.print(f"  {escape(f'{name}: {value}')}", highlight=False)
    seeds = ", ".join(f"{name} {value}" for name, value in figure.seeds.items())
    console.print(f"seeds: {escape(seeds) or 'none; nothing is drawn at random'}", highlight=False)
    table = Table()
    table.add_column("claim")
    table.add_column("value", justify="right")
    table.add_column("bound", no_wrap=True)
    table.add_column("", no_wrap=True)
    for claim in figure.claims:
        mark = "[green]held[/]" if claim.held else "[red]not held[/]"
        table.add_row(escape(claim.text), f"{claim.value:.6g}", escape(claim.bound), mark)
    console.print(table)
