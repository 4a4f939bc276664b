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
    "las/fig4": Entry(
        title="Latency and drops against the under-provisioning",
        home="penstock.reproduce.las20:fig4",
    ),
    "las/fig5": Entry(
        title="Latency and drops against the threshold",
        home="penstock.reproduce.las20:fig5",
    ),
    "las/fig6": Entry(
        title="Latency and drops against the highest cost",
        home="penstock.reproduce.las20:fig6",
    ),
    "las/fig7": Entry(
        title="Latency and drops against the skew of the items",
        home="penstock.reproduce.las20:fig7",
    ),
    "las/fig8": Entry(
        title="Latency, drops and learning time against the precision of the sketches",
        home="penstock.reproduce.las20:fig8",
    ),
    "las/fig9": Entry(
        title="Seven phases of changing load, items and costs, simulated",
        home="penstock.reproduce.las_phases:fig9",
    ),
    "las/fig10": Entry(
        title="Seven phases on Spark, target two seconds",
        home="penstock.reproduce.las_spark:fig10",
    ),
    "las/fig11": Entry(
        title="Mentions in tweets on Spark, costs of 1, 5 and 25 ms",
        home="penstock.reproduce.las_spark:fig11",
    ),
    "las/partitions": Entry(
        title="Two partitions of different load on Spark (not in the paper)",
        home="penstock.reproduce.las_spark:partitions",
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
