"""Streams as [LAS20] section 5.1 draws them: skewed items, each with its own cost, faster than the operator."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from penstock.sketch.hashing import Items, items_of

TUPLES, ITEMS, COST_VALUES, HIGHEST_SECONDS = 32_768, 4_096, 64, 6.4e-3
CALM_TUPLES, CALM_LOAD = 4_096, 0.9


@dataclass(frozen=True, slots=True)
class TupleStream:
    """Tuples in the order of arrival: item, instant and true cost of each.

    The first ``calm`` tuples are the learning phase: the load fits there, as [LAS20] section 3.3 assumes for the time
    right after a start. What is measured is measured on the others.
    """

    items: Items
    arrived_at: NDArray[np.float64]
    costs_seconds: NDArray[np.float64]
    calm: int

    @property
    def mean_seconds(self) -> float:
        """Mean cost of a tuple (W-bar in [LAS20])."""
        return float(self.costs_seconds.mean())

    @staticmethod
    def draw(
        *,
        seed: int,
        under_provisioned: float = 0.25,
        skew: float = 1.0,
        highest_seconds: float = HIGHEST_SECONDS,
        tuples: int = TUPLES,
        calm: int = CALM_TUPLES,
    ) -> TupleStream:
        """Draw a stream: items by Zipf, costs at constant distance and shuffled over the items.

        Under-provisioning u means that capacity over offered load is ``1 - u``; below 0 there is room to spare.
        """
        rng = np.random.default_rng(seed)
        numbers = zipf_numbers(rng, tuples + calm, skew=skew)
        costs = item_costs(rng, highest_seconds=highest_seconds)[numbers]
        gaps = np.full(tuples + calm, costs.mean() * (1 - under_provisioned))
        gaps[:calm] = costs.mean() / CALM_LOAD
        return TupleStream(items_of(numbers), np.cumsum(gaps), costs, calm)


def zipf_numbers(rng: np.random.Generator, tuples: int, *, skew: float, items: int = ITEMS) -> NDArray[np.int64]:
    """Draw item numbers whose frequency falls with their rank; without skew all are equally frequent."""
    shares = np.arange(1, items + 1) ** -float(skew)
    edges = np.cumsum(shares)
    return np.searchsorted(edges / edges[-1], rng.random(tuples), side="right").clip(max=items - 1).astype(np.int64)


def item_costs(rng: np.random.Generator, *, highest_seconds: float, items: int = ITEMS) -> NDArray[np.float64]:
    """Give as many items each of 64 costs, from a 64th of the highest up to it, in random order."""
    values = np.linspace(highest_seconds / COST_VALUES, highest_seconds, COST_VALUES)
    return rng.permutation(np.repeat(values, items // COST_VALUES))


PHASE_TUPLES = 20_000
PHASES = ("A", "B", "C", "D", "E", "F", "G")
# Time between tuples, in mean costs of phase A; what costs are multiplied by; whether the frequent item is expensive.
_GAPS = {"A": 1.0, "B": 0.5, "C": 1.0, "D": 1.0, "E": 1.5, "F": 1.0, "G": 1.0}
_SLOWER = {"F": 2.0}
_SWAPPED = ("D", "E", "F")


def seven_phases(
    *, seed: int, phase_tuples: int = PHASE_TUPLES, highest_seconds: float = HIGHEST_SECONDS
) -> TupleStream:
    """Draw the stream of [LAS20] figure 9, without a calm of its own: the learning phase lies in phase A."""
    numbers, costs, gaps = phase_numbers(seed=seed, phase_tuples=phase_tuples, highest_seconds=highest_seconds)
    return TupleStream(items_of(numbers), np.cumsum(gaps), costs, 0)


def phase_numbers(
    *, seed: int, phase_tuples: int, highest_seconds: float
) -> tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.float64]]:
    """Draw item numbers, costs and gaps of seven phases: load, distribution and costs change abruptly.

    A and C fit exactly; B brings twice as many tuples; from D to F the most frequent item changes places with one of
    the highest cost; E leaves room to spare; F doubles every cost; G is A again.
    """
    rng = np.random.default_rng(seed)
    costs_of = item_costs(rng, highest_seconds=highest_seconds)
    expensive = int(np.flatnonzero(costs_of == costs_of.max())[-1])
    numbers = [zipf_numbers(rng, phase_tuples, skew=1.0) for _ in PHASES]
    mean_seconds = costs_of[numbers[0]].mean()
    costs, gaps = [], []
    for phase, drawn in zip(PHASES, numbers, strict=True):
        if phase in _SWAPPED:
            frequent, rare = drawn == 0, drawn == expensive
            drawn[frequent], drawn[rare] = expensive, 0
        costs.append(costs_of[drawn] * _SLOWER.get(phase, 1.0))
        gaps.append(np.full(phase_tuples, mean_seconds * _GAPS[phase]))
    return np.concatenate(numbers), np.concatenate(costs), np.concatenate(gaps)
