"""Learn which sources of a query feed the shedder, and how many tuples a unit of their offsets holds."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import nnls

from penstock.control.guidance import fade

# A source that brings less than this share of the tuples is foreign: it feeds another part of the query.
FOREIGN_SHARE = 0.01
# Which source feeds the shedder does not change, so many batches tell. How many tuples a unit holds may change at any
# time, with a filter ahead of the shedder, so the last few count.
REMEMBERED, RECENT_WEIGHT = 0.98, 0.3
# What is believed of a source gives way by its share of the tuples, at least by this one: to the batches where they are
# exact, hardly where they are off by chance.
LEAST_MOVE = 0.05
PRIOR_WEIGHT = 0.1
LEAST_NOISE = 1e-7


class SourceLearner:
    """Fit ``tuples = sum(tuples_per_unit * units)`` over the sources of a query to the batches so far.

    Nothing is known at first, and then every source is thought to feed the shedder, with one tuple per unit. Sources
    that rise and fall together cannot be told apart. As soon as one does something of its own they are, and that is
    not forgotten.

    A source whose units cannot be counted is taken to bring the same number of tuples whenever it moves. That does not
    foresee its batches, but it tells whether they matter.

    Parameters
    ----------
    tuples_per_unit
        What an earlier run has learned. It is forgotten if the query has another number of sources now.

    Examples
    --------
    The shedder stands behind the first of two sources. The second bursts, and no more tuples come of it:

    >>> learner = SourceLearner()
    >>> for units in ((5_000, 5_000), (5_100, 4_900), (5_000, 500_000)):
    ...     learner.learn(units, tuples=units[0])
    >>> [round(each, 2) for each in learner.tuples_per_unit]
    [1.0, 0.0]
    """

    def __init__(self, tuples_per_unit: Sequence[float] = ()) -> None:
        self._known = tuple(tuples_per_unit)
        self._counted: tuple[bool, ...] = ()

    @property
    def tuples_per_unit(self) -> tuple[float, ...]:
        """Tuples per unit by source, 0 for a foreign one; empty until measured.

        A source that feeds the shedder and cannot be counted has 1, as any source of which nothing is known.
        """
        return self._known

    def learn(self, units_by_source: Sequence[float | None], *, tuples: float) -> None:
        """Take in how far each source moved in a batch (None: that cannot be counted), and how many tuples came."""
        units = np.array([1.0 if each is None else each for each in units_by_source])
        # An empty batch says nothing about how many tuples a unit holds; a rate of zero would lock.
        if not tuples or not units.any():
            return
        counted = tuple(each is not None for each in units_by_source)
        if len(counted) != len(self._counted) or any(
            now and not before for now, before in zip(counted, self._counted, strict=True)
        ):
            self._begin(counted, units, tuples)
        if counted == self._counted:
            # Else a source that can be counted was not, this once.
            self._take_in(units, tuples)

    def _begin(self, counted: tuple[bool, ...], units: NDArray[np.float64], tuples: float) -> None:
        """Start from what an earlier run has learned, or from the belief that every source feeds the shedder."""
        resumed = not self._counted and len(self._known) == len(counted)
        believed = np.array(self._known if resumed else (1.0,) * len(counted))
        self._counted = counted
        self._shape = np.where(counted, believed, np.sign(believed) * tuples)
        # Sums over the batches: their number, units by units, units by tuples, and tuples squared.
        self._weight = self._total = 0.0
        self._squares = np.zeros((len(counted), len(counted)))
        self._products = np.zeros(len(counted))
        self._typical_tuples: float | None = None
        self._recent_units = units / units.sum()
        self._recent_tuples: float | None = float(self._shape @ self._recent_units) if resumed else None

    def _take_in(self, units: NDArray[np.float64], tuples: float) -> None:
        # Ratios are faded, not sums: a large batch tells no more than any other.
        total = float(units.sum())
        self._recent_units += RECENT_WEIGHT * (units / total - self._recent_units)
        self._recent_tuples = fade(self._recent_tuples, tuples / total, weight=RECENT_WEIGHT)
        # Errors are relative to the size of a batch, but those of tiny batches are mostly chance.
        self._typical_tuples = fade(self._typical_tuples, tuples)
        scale = max(tuples, self._typical_tuples)
        self._weight = REMEMBERED * self._weight + 1
        self._total = REMEMBERED * self._total + (tuples / scale) ** 2
        self._squares = REMEMBERED * self._squares + np.outer(units, units) / scale**2
        self._products = REMEMBERED * self._products + units * tuples / scale**2
        self._shape = self._fitted()
        brought = self._shape * self._products
        foreign = (self._products > 0) & (brought < FOREIGN_SHARE * brought.sum())
        self._known = self._at_present(np.where(foreign, 0.0, self._shape))

    def _fitted(self) -> NDArray[np.float64]:
        """Fit by non-negative least squares, close to what was believed before where the batches do not tell.

        They tell little where they are off by chance anyway: a filter that opens is not taken for another source.
        """
        sizes = np.sqrt(self._squares.diagonal() / self._weight)
        sizes[sizes == 0] = 1.0  # a source that has not moved yet
        squares = self._squares / self._weight / np.outer(sizes, sizes)
        products = self._products / self._weight / sizes
        believed = sizes * self._shape
        free = _nearest(squares, products, believed, np.full(len(sizes), LEAST_NOISE))
        noise = max(self._total / self._weight - 2 * free @ products + free @ squares @ free, LEAST_NOISE)
        brought = believed * products
        share = np.maximum(brought / brought.sum() if brought.any() else brought, LEAST_MOVE)
        return _nearest(squares, products, believed, PRIOR_WEIGHT * noise / share**2) / sizes

    def _at_present(self, shape: NDArray[np.float64]) -> tuple[float, ...]:
        """Scale what the sources bring relative to one another to what they brought of late."""
        shape = shape / shape.max()
        explained = float(shape @ self._recent_units)
        level = (self._recent_tuples or 0.0) / explained if explained else 1.0
        return tuple(np.where((shape == 0) | np.array(self._counted), level * shape, 1.0).tolist())


def _nearest(
    squares: NDArray[np.float64],
    products: NDArray[np.float64],
    believed: NDArray[np.float64],
    held: NDArray[np.float64],
) -> NDArray[np.float64]:
    """Solve the normal equations with no coefficient below zero, held to what is believed by these weights."""
    root = np.linalg.cholesky(squares + np.diag(held))
    solved, _ = nnls(root.T, np.linalg.solve(root, products + held * believed))
    return np.asarray(solved)
