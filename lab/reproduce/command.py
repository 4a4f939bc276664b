"""``penstock reproduce``: compute a paper's figure again and hold it against what the paper says."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from lab.reproduce.catalogue import FIGURES, find
from penstock.model.errors import InvalidInputError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of the command."""
    parser.add_argument("figure", nargs="?", metavar="PAPER/FIGURE", help="the figure to compute; see --list")
    parser.add_argument("--list", action="store_true", help="list the figures")
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--quick", action="store_true", help="in seconds (the default)")
    size.add_argument("--full", action="store_true", help="at the paper's size")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figure as JSON")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="draw the figure")
    parser.add_argument(
        "--report", type=Path, metavar="FILE", help="write every figure to a Markdown page, or renew one on it"
    )


def run(chosen: argparse.Namespace) -> int:
    """Run the command; 0 if every claim is held, 1 if one is not."""
    asked = chosen.figure is not None or chosen.report is not None
    if chosen.list == asked:
        raise InvalidInputError(
            "reproduce takes PAPER/FIGURE, --report FILE or both, or else --list; "
            "for the names of the figures, run: penstock reproduce --list"
        )
    if (chosen.figure is None or chosen.report) and (chosen.json or chosen.plot):
        raise InvalidInputError(
            "--json and --plot are for one figure without --report; name it, as in: "
            "penstock reproduce sampling/example1 --plot FILE"
        )
    if chosen.list:
        width = max(map(len, FIGURES))
        for name, entry in FIGURES.items():
            print(f"{name:{width}}  {entry.title}")
        return 0
    try:
        return _report(chosen) if chosen.report else _figure(chosen)
    except OSError as cause:
        raise InvalidInputError(f"cannot write: {cause}; name a file where you may write") from cause


def _figure(chosen: argparse.Namespace) -> int:
    entry = find(chosen.figure)

    from rich.console import Console

    from lab.reproduce.plot import plot_figure
    from lab.reproduce.show import show_figure
    from penstock.demo.plot import require_matplotlib

    if chosen.plot:
        require_matplotlib()
    figure = entry.compute(full=chosen.full)
    show_figure(Console(), figure, title=entry.title)
    if chosen.json:
        chosen.json.parent.mkdir(parents=True, exist_ok=True)
        chosen.json.write_text(json.dumps(figure.to_json(), indent=2, allow_nan=False) + "\n", encoding="utf-8")
    if chosen.plot:
        plot_figure(figure, chosen.plot, title=entry.title)
    return 0 if figure.held else 1


def _report(chosen: argparse.Namespace) -> int:
    from rich.console import Console
    from rich.progress import Progress

    from lab.reproduce.figure import Figure
    from lab.reproduce.page import write_page
    from lab.reproduce.show import show_figure

    if chosen.figure is not None:
        find(chosen.figure)
    names = list(FIGURES) if chosen.figure is None else [chosen.figure]
    console = Console()
    with Progress(console=console, transient=True) as progress:
        task = progress.add_task("figures", total=len(names))

        def show(figure: Figure) -> None:
            show_figure(console, figure, title=FIGURES[figure.figure].title)
            progress.advance(task)

        figures = write_page(chosen.report, full=chosen.full, names=names, show=show)
    print(f"written: {chosen.report}, its plots: {chosen.report.with_suffix('')}")
    return 0 if all(figure.held for figure in figures) else 1
