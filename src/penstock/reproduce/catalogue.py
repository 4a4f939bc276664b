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
    "aurora/fig8": Entry(
        title="Loss tolerance and predicates derived from a value graph (Table 1, Figure 8)",
        home="penstock.reproduce.aurora03:fig8",
    ),
    "aurora/fig9": Entry(
        title="Tuple utility lost by each policy as rates rise",
        home="penstock.reproduce.aurora03_loss:fig9",
    ),
    "aurora/fig10": Entry(
        title="Value utility lost by each policy as rates rise",
        home="penstock.reproduce.aurora03_loss:fig10",
    ),
    "aurora/fig11": Entry(
        title="Random against semantic drops, by skew of the utilities",
        home="penstock.reproduce.aurora03_skew:fig11",
    ),
    "aurora/fig12": Entry(
        title="Drops at the input against drops inside, with a shared operator",
        home="penstock.reproduce.aurora03_skew:fig12",
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
