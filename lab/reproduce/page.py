"""The page in the documentation that holds every figure, its settings and its claims."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from lab.reproduce.catalogue import FIGURES
from lab.reproduce.figure import Figure
from lab.reproduce.plot import plot_figure
from penstock.demo.plot import require_matplotlib
from penstock.model.errors import InvalidInputError


def write_page(
    path: Path, *, full: bool, names: list[str], show: Callable[[Figure], None] = lambda figure: None
) -> list[Figure]:
    """Compute figures and write the page; plots and claims go to a folder of the same name beside it.

    The page is put together from that folder, so one figure can be computed again without all others.
    """
    if path.suffix != ".md":
        raise InvalidInputError(
            f"the report must be a file that ends in .md, got {str(path)!r}; "
            "its plots go to the folder with that name less the ending"
        )
    require_matplotlib()
    folder = path.with_suffix("")
    figures = []
    for name in names:
        figure = FIGURES[name].compute(full=full)
        plot_figure(figure, folder / _file(name, "png"), title=FIGURES[name].title)
        # Curves are in the plot, and can be long.
        told = {key: value for key, value in figure.to_json().items() if key != "series"} | {"full": full}
        (folder / _file(name, "json")).write_text(json.dumps(told, indent=2, allow_nan=False) + "\n", encoding="utf-8")
        figures.append(figure)
        show(figure)
    path.write_text(_page(folder), encoding="utf-8")
    return figures


def _page(folder: Path) -> str:
    stored = [folder / _file(name, "json") for name in FIGURES]
    figures = [json.loads(file.read_text(encoding="utf-8")) for file in stored if file.exists()]
    claims = [claim for figure in figures for claim in figure["claims"]]
    parts = [
        "# Reproduction",
        f"The papers' figures, computed by Penstock's own code. Figures: {len(figures)}; "
        f"claims held: {sum(claim['held'] for claim in claims)} of {len(claims)}. "
        "`penstock reproduce --report FILE` writes this page; `penstock reproduce PAPER/FIGURE` computes one figure, "
        "and with `--report FILE` renews it on the page.",
    ]
    for figure in figures:
        title = FIGURES[figure["figure"]].title
        command = f"penstock reproduce {figure['figure']}{' --full' if figure['full'] else ''}"
        parts += [
            f"## {figure['figure']}",
            f"{title}. Printed by `{command}`.",
            f"![{title}]({folder.name}/{_file(figure['figure'], 'png')})",
            _table(("claim", "value", "bound", ""), [_claim(claim) for claim in figure["claims"]]),
            _table(("setting", "value"), [(name, _shown(value)) for name, value in figure["settings"].items()]),
        ]
    return "\n\n".join(parts) + "\n"


def _claim(claim: Mapping[str, Any]) -> tuple[str, ...]:
    return claim["text"], _shown(claim["value"]), claim["bound"], "held" if claim["held"] else "**not held**"


def _file(figure: str, ending: str) -> str:
    return f"{figure.replace('/', '-')}.{ending}"


def _shown(value: object) -> str:
    # Six digits, as the last ones depend on the machine.
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _table(headings: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    lines = [headings, tuple("---" for _ in headings), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)
