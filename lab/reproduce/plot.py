"""Draw a figure: lines over numbers, bars over names, the claims below."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Any

import numpy as np

from lab.reproduce.figure import Figure, Series
from penstock.demo.plot import require_matplotlib
from penstock.model.errors import InvalidInputError

# More labels than this run into each other.
MOST_LABELLED_BARS = 12


def plot_figure(figure: Figure, path: Path, *, title: str) -> None:
    """Write the plot in the format that the file's ending names; the same figure gives the same bytes."""
    require_matplotlib()
    from matplotlib import pyplot as plt

    panels: dict[tuple[str, str], list[Series]] = {}
    for series in figure.series:
        panels.setdefault((series.x_label, series.y_label), []).append(series)
    captions = [
        textwrap.fill(
            f"{'held' if claim.held else 'NOT HELD'}: {claim.text}: {claim.value:.6g} ({claim.bound})",
            width=45 * max(2, len(panels)),
            subsequent_indent="    ",
        )
        for claim in figure.claims
    ]
    lines = sum(caption.count("\n") + 1 for caption in captions)
    size = (max(6.5, 4.2 * len(panels)), 3.6 + 0.2 * lines)
    drawing, all_axes = plt.subplots(1, max(1, len(panels)), figsize=size, squeeze=False, layout="constrained")
    # A name has the same colour in every panel.
    colours = {name: f"C{number % 10}" for number, name in enumerate(dict.fromkeys(s.name for s in figure.series))}
    for axes, ((x_label, y_label), together) in zip(all_axes[0], panels.items(), strict=False):
        _draw(axes, together, colours)
        axes.set_xlabel(x_label)
        axes.set_ylabel(y_label)
        axes.spines[["top", "right"]].set_visible(False)
        if len(together) > 1:
            # Above the axes, where no line or bar is in its way.
            axes.legend(frameon=False, fontsize="small", loc="lower left", bbox_to_anchor=(0, 1), ncols=2)
        else:
            axes.set_title(together[0].name, fontsize="medium")
    drawing.suptitle(f"{figure.figure}: {title}", x=0.01, ha="left")
    drawing.supxlabel("\n".join(captions), x=0.01, ha="left", fontsize="small", linespacing=1.4)
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        # Without the name and version of the program that drew it; with a long legend that reaches beyond its panel.
        metadata = {"Software": None} if path.suffix == ".png" else None
        drawing.savefig(path, dpi=120, metadata=metadata, bbox_inches="tight")
    except ValueError as cause:
        raise InvalidInputError(f"cannot plot to {str(path)!r}: {cause}; name a file that ends in .png") from cause
    finally:
        plt.close(drawing)


def _draw(axes: Any, together: list[Series], colours: dict[str, str]) -> None:
    if not any(isinstance(x, str) for series in together for x in series.x):
        for series in together:
            lone = len(series.x) == 1
            look = {"color": colours[series.name], "label": series.name, "ms": 9 if lone else 5, "lw": 1.5}
            axes.plot(series.x, series.y, "o" if lone else ".-", **look)
        return
    names = list(dict.fromkeys(str(x) for series in together for x in series.x))
    width = 0.7 / len(together)
    for number, series in enumerate(together):
        centres = np.array([names.index(str(x)) for x in series.x]) + (number - (len(together) - 1) / 2) * width
        bars = axes.bar(centres, series.y, width, label=series.name, color=colours[series.name])
        if len(names) * len(together) <= MOST_LABELLED_BARS:
            axes.bar_label(bars, fmt="%.3g", fontsize="small")
    axes.set_xticks(range(len(names)), names)
