"""Weighted moments: all that an answer needs to know of the tuples that survived, and they add up."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from penstock.estimate.algebra import Number
from penstock.estimate.interval import METHODS, PEAKS, Aggregate
from penstock.model.errors import InvalidInputError

Array = npt.NDArray[np.float64]
WEIGHTED, SPREAD = 3, 5  # powers of the values: 0 to 2 for the answers, 0 to 4 for their spread


@dataclass(frozen=True, slots=True, kw_only=True)
class Moments:
    """Sums over surviving tuples, each of which stands for ``weight`` tuples and was kept or dropped on its own.

    Fields are floats, or arrays with an entry per group or sample. Moments of parts add to the moments of the whole.

    Attributes
    ----------
    rows, row_weight
        How many survived, with a value or without, and ``sum of weight`` over them.
    tuples
        How many survived with a value. Those that are missing (NaN) or not finite are left out, as SQL leaves out NULL.
    weighted
        ``sum of weight * value**k`` for k = 0, 1, 2.
    spread
        By method, ``sum of factor(weight) * value**k`` for k = 0 to 4; see :mod:`penstock.estimate.interval`.
    peak
        By method, the largest single ``factor(weight) * value**k`` of a tuple not sure to be kept, for k = 0 and 2.
    low, high
        Smallest and largest value; NaN if there is none.
    heaviest
        Largest weight; 0 if there is none.

    Examples
    --------
    >>> halves = Moments.of([10.0, 30.0], weights=[2.0, 2.0])
    >>> halves.tuples, halves.weighted
    (2.0, (4.0, 80.0, 2000.0))
    >>> (halves + Moments.of([5.0])).weighted[1]
    85.0
    """

    rows: Number
    row_weight: Number
    tuples: Number
    weighted: tuple[Number, ...]
    spread: dict[str, tuple[Number, ...]]
    peak: dict[str, dict[int, Number]]
    low: Number
    high: Number
    heaviest: Number

    @staticmethod
    def of(
        values: npt.ArrayLike, *, weights: npt.ArrayLike | None = None, kept: npt.ArrayLike | None = None
    ) -> Moments:
        """Sum over the last axis.

        Without weights nothing was shed. A row without a value (NaN) is a row all the same; one that was not ``kept``
        is none. By default all were, and only survivors are given.
        """
        value = np.asarray(values, dtype=float)
        weight = np.ones_like(value) if weights is None else np.broadcast_to(np.asarray(weights, float), value.shape)
        require_weights(weight)
        survived = np.ones(value.shape, bool) if kept is None else np.broadcast_to(np.asarray(kept, bool), value.shape)
        rows, row_weight = survived.sum(axis=-1), np.where(survived, weight, 0.0).sum(axis=-1)
        present = np.isfinite(value) & survived
        weight, value = np.where(present, weight, 0.0), np.where(present, value, 0.0)
        none = ~present.any(axis=-1)
        powers = [np.ones_like(value)]
        for _ in range(SPREAD - 1):
            powers.append(powers[-1] * value)
        factors = {name: method.factor(weight) * (weight > 1) for name, method in METHODS.items()}
        return Moments(
            rows=_plain(rows),
            row_weight=_plain(row_weight),
            tuples=_plain(present.sum(axis=-1)),
            weighted=tuple(_plain((weight * power).sum(axis=-1)) for power in powers[:WEIGHTED]),
            spread={
                name: tuple(_plain((factor * power).sum(axis=-1)) for power in powers)
                for name, factor in factors.items()
            },
            peak={
                name: {k: _plain((factor * powers[k]).max(axis=-1, initial=0.0)) for k in PEAKS.values()}
                for name, factor in factors.items()
            },
            low=_plain(np.where(none, np.nan, np.where(present, value, np.inf).min(axis=-1, initial=np.inf))),
            high=_plain(np.where(none, np.nan, np.where(present, value, -np.inf).max(axis=-1, initial=-np.inf))),
            heaviest=_plain(weight.max(axis=-1, initial=0.0)),
        )

    @staticmethod
    def by_group(
        groups: npt.ArrayLike, values: npt.ArrayLike, *, weights: npt.ArrayLike | None = None
    ) -> dict[Hashable, Moments]:
        """Sum apart for every group.

        >>> fares = Moments.by_group(["a", "b", "a"], [1.0, 2.0, 3.0])
        >>> {group: moments.weighted[1] for group, moments in fares.items()}
        {'a': 4.0, 'b': 2.0}
        """
        names, index = np.unique(np.asarray(groups), return_inverse=True)
        value = np.asarray(values, dtype=float)
        weight = np.ones_like(value) if weights is None else np.broadcast_to(np.asarray(weights, float), value.shape)
        return {
            name: Moments.of(value[index == number], weights=weight[index == number])
            for number, name in enumerate(names.tolist())
        }

    def any_value(self, _: Aggregate) -> Number:
        """Whether there is anything to answer from."""
        return self.tuples > 0

    def __add__(self, other: Moments) -> Moments:
        return Moments(
            rows=self.rows + other.rows,
            row_weight=self.row_weight + other.row_weight,
            tuples=self.tuples + other.tuples,
            weighted=tuple(one + two for one, two in zip(self.weighted, other.weighted, strict=True)),
            spread={
                name: tuple(one + two for one, two in zip(sums, other.spread[name], strict=True))
                for name, sums in self.spread.items()
            },
            peak={
                name: {k: _plain(np.fmax(peak, other.peak[name][k])) for k, peak in peaks.items()}
                for name, peaks in self.peak.items()
            },
            low=_plain(np.fmin(self.low, other.low)),
            high=_plain(np.fmax(self.high, other.high)),
            heaviest=_plain(np.fmax(self.heaviest, other.heaviest)),
        )


def require_weights(weights: Array) -> None:
    """Refuse a weight that no keep rate can have given."""
    if not np.all(np.isfinite(weights) & (weights >= 1)):
        wrong = weights[~(np.isfinite(weights) & (weights >= 1))].flat[0]
        raise InvalidInputError(
            f"weights must be finite and at least 1, got {wrong!r}; a weight is the inverse of a keep rate: "
            "the tuples that a survivor stands for, itself included"
        )


def _plain(number: Any) -> Any:
    """Give a float where there is but one number."""
    return float(number) if np.ndim(number) == 0 else np.asarray(number, dtype=float)
