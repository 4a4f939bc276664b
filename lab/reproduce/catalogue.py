"""Every figure by its name, and where it is computed."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import Protocol, cast

from lab.reproduce.figure import Figure
from penstock.model.errors import InvalidInputError


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
        home="lab.reproduce.sampling03:example1",
    ),
    "sampling/tradeoff": Entry(
        title="Largest relative error against load, for three ways to sample",
        home="lab.reproduce.sampling03_tradeoff:tradeoff",
    ),
    "sampling/coverage": Entry(
        title="Stated against observed coverage of the intervals",
        home="lab.reproduce.sampling03_coverage:coverage",
    ),
    "las/fig4": Entry(
        title="Latency and drops against the under-provisioning",
        home="lab.reproduce.las20:fig4",
    ),
    "las/fig5": Entry(
        title="Latency and drops against the threshold",
        home="lab.reproduce.las20:fig5",
    ),
    "las/fig6": Entry(
        title="Latency and drops against the highest cost",
        home="lab.reproduce.las20:fig6",
    ),
    "las/fig7": Entry(
        title="Latency and drops against the skew of the items",
        home="lab.reproduce.las20:fig7",
    ),
    "las/fig8": Entry(
        title="Latency, drops and learning time against the precision of the sketches",
        home="lab.reproduce.las20:fig8",
    ),
    "las/fig9": Entry(
        title="Seven phases of changing load, items and costs, simulated",
        home="lab.reproduce.las_phases:fig9",
    ),
    "las/fig10": Entry(
        title="Seven phases on Spark, target two seconds",
        home="lab.reproduce.las_spark:fig10",
    ),
    "las/fig11": Entry(
        title="Mentions in tweets on Spark, costs of 1, 5 and 25 ms",
        home="lab.reproduce.las_spark:fig11",
    ),
    "cod/fig2": Entry(
        title="Concept drift, and shedding when the concept is swapped (Fig. 2)",
        home="lab.reproduce.cod_drift:fig2",
    ),
    "cod/fig7": Entry(
        title="Window latency on one and two cores (Fig. 7)",
        home="lab.reproduce.cod_latency:fig7",
    ),
    "cod/fig8": Entry(
        title="Window latency by stream, 97 % shed (Fig. 8)",
        home="lab.reproduce.cod_latency:fig8",
    ),
    "cod/fig9": Entry(
        title="Error of Concept-Driven shedding and of Uniform, at the same volume (Fig. 9)",
        home="lab.reproduce.cod_accuracy:fig9",
    ),
    "cod/fig10": Entry(
        title="Error against processed volume, by route (Fig. 10)",
        home="lab.reproduce.cod_accuracy:fig10",
    ),
    "aurora/fig8": Entry(
        title="Loss tolerance and predicates derived from a value graph (Table 1, Figure 8)",
        home="lab.reproduce.aurora03:fig8",
    ),
    "aurora/fig9": Entry(
        title="Tuple utility lost by each policy as rates rise",
        home="lab.reproduce.aurora03_loss:fig9",
    ),
    "aurora/fig10": Entry(
        title="Value utility lost by each policy as rates rise",
        home="lab.reproduce.aurora03_loss:fig10",
    ),
    "aurora/fig11": Entry(
        title="Random against semantic drops, by skew of the utilities",
        home="lab.reproduce.aurora03_skew:fig11",
    ),
    "aurora/fig12": Entry(
        title="Drops at the input against drops inside, with a shared operator",
        home="lab.reproduce.aurora03_skew:fig12",
    ),
    "ours/control": Entry(
        title="The controller on machines that change, against one who knows them",
        home="lab.reproduce.control:control",
    ),
    "las/partitions": Entry(
        title="Two partitions of different load on Spark (not in the paper)",
        home="lab.reproduce.las_spark:partitions",
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
