"""Every figure by its name, and where it is computed."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import Protocol, cast

from penstock.model.errors import InvalidInputError
from penstock.reproduce.figure import Figure


class Compute(Protocol):
    """Computes one figure: in seconds, or in full as the paper has it."""

    def __call__(self, *, full: bool) -> Figure:
        """Compute it."""
        ...


@dataclass(frozen=True, slots=True)
class Entry:
    """What a figure shows, and its function as ``module:function``, imported only when it is computed."""

    title: str
    home: str

    def compute(self, *, full: bool) -> Figure:
        """Import the function and run it."""
        module, _, name = self.home.partition(":")
        return cast(Compute, getattr(import_module(module), name))(full=full)


FIGURES: dict[str, Entry] = {
    "sampling/example1": Entry(
        title="Where two queries that share an operator shed (Example 1)",
        home="penstock.reproduce.sampling03:example1",
    ),
    "cod/fig2": Entry(
        title="Concept drift, and shedding when the concept is swapped (Fig. 2)",
        home="penstock.reproduce.cod_drift:fig2",
    ),
    "cod/fig7": Entry(
        title="Window latency on one and two cores (Fig. 7)",
        home="penstock.reproduce.cod_latency:fig7",
    ),
    "cod/fig8": Entry(
        title="Window latency by stream, 97 % shed (Fig. 8)",
        home="penstock.reproduce.cod_latency:fig8",
    ),
    "cod/fig9": Entry(
        title="Error of Concept-Driven shedding and of Uniform, at the same volume (Fig. 9)",
        home="penstock.reproduce.cod_accuracy:fig9",
    ),
    "cod/fig10": Entry(
        title="Error against processed volume, by route (Fig. 10)",
        home="penstock.reproduce.cod_accuracy:fig10",
    ),
}


def find(figure: str) -> Entry:
    """Look a figure up by its name."""
    try:
        return FIGURES[figure]
    except KeyError:
        known = "\n  ".join(FIGURES)
        raise InvalidInputError(
            f"there is no figure {figure!r}; figures are named PAPER/FIGURE, and these are known:\n  {known}"
        ) from None
