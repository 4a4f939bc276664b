"""The page in the documentation that holds every figure, its settings and its claims."""

from __future__ import annotations

from pathlib import Path

from penstock.model.errors import InvalidInputError
from penstock.reproduce.catalogue import FIGURES
from penstock.reproduce.figure import Claim, Figure
from penstock.reproduce.plot import plot_figure, require_matplotlib


def write_page(path: Path, *, full: bool) -> list[Figure]:
    """Compute every figure; write the page, and the plots to a folder of the same name beside it."""
    if path.suffix != ".md":
        raise InvalidInputError(
            f"the report must be a file that ends in .md, got {str(path)!r}; "
            "its plots go to the folder with that name less the ending"
        )
    require_matplotlib()
    figures = []
    for name, entry in FIGURES.items():
        figure = entry.compute(full=full)
        plot_figure(figure, path.with_suffix("") / _plot_name(name), title=entry.title)
        figures.append(figure)
    path.write_text(_page(figures, folder=path.stem, full=full), encoding="utf-8")
    return figures


def _page(figures: list[Figure], *, folder: str, full: bool) -> str:
    claims = [claim for figure in figures for claim in figure.claims]
    parts = [
        "# Reproduction",
        f"The papers' figures, computed by Penstock's own code. Figures: {len(figures)}; "
        f"claims held: {sum(claim.held for claim in claims)} of {len(claims)}. "
        f"`penstock reproduce --report FILE{' --full' if full else ''}` writes this page; "
        f"`penstock reproduce PAPER/FIGURE` computes one figure.",
    ]
    for figure in figures:
        title = FIGURES[figure.figure].title
        parts += [
            f"## {figure.figure}",
            f"{title}.",
            f"![{title}]({folder}/{_plot_name(figure.figure)})",
            _table(("claim", "value", "bound", ""), [_claim(claim) for claim in figure.claims]),
            _table(("setting", "value"), [(name, _shown(value)) for name, value in figure.settings.items()]),
        ]
    return "\n\n".join(parts) + "\n"


def _claim(claim: Claim) -> tuple[str, ...]:
    return claim.text, _shown(claim.value), claim.bound, "held" if claim.held else "**not held**"


def _plot_name(figure: str) -> str:
    return figure.replace("/", "-") + ".png"


def _shown(value: object) -> str:
    # Six digits, as the last ones depend on the machine.
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _table(headings: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    lines = [headings, tuple("---" for _ in headings), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)
