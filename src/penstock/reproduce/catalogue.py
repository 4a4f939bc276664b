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
    "sampling/tradeoff": Entry(
        title="Largest relative error against load, for three ways to sample",
        home="penstock.reproduce.sampling03_tradeoff:tradeoff",
    ),
    "sampling/coverage": Entry(
        title="Stated against observed coverage of the intervals",
        home="penstock.reproduce.sampling03_coverage:coverage",
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
