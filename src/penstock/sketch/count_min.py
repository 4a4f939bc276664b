"""Count-min: how often each item came, never too low ([LAS20] section 3.2, after Cormode and Muthukrishnan)."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from penstock.model.errors import InvalidInputError, is_number
from penstock.sketch.hashing import HashFamily, Items, column_of
from penstock.sketch.jit import compiled


@compiled
def add_amounts(
    cells: NDArray[np.float64], coefficients: NDArray[np.uint64], items: Items, amounts: NDArray[np.float64]
) -> None:
    """Add an amount for each item."""
    rows, columns = cells.shape
    for index in range(items.size):
        for row in range(rows):
            cells[row, column_of(items[index], coefficients, row, np.uint64(columns))] += amounts[index]


@compiled
def smallest_cells(cells: NDArray[np.float64], coefficients: NDArray[np.uint64], items: Items) -> NDArray[np.float64]:
    """Look up the smallest cell of each item."""
    rows, columns = cells.shape
    found = np.empty(items.size)
    for index in range(items.size):
        least = np.inf
        for row in range(rows):
            least = min(least, cells[row, column_of(items[index], coefficients, row, np.uint64(columns))])
        found[index] = least
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """Size of a sketch: how many rows and columns, and the hash functions between.

    Examples
    --------
    >>> Shape.of(eps=0.05, delta=0.1)
    Shape(rows=4, columns=55, seed=0)
    """

    rows: int
    columns: int
    seed: int = 0

    def __post_init__(self) -> None:
        self.family()

    @staticmethod
    def of(*, eps: float, delta: float, seed: int = 0) -> Shape:
        """Size for an error of ``eps`` times the stream, exceeded with probability ``delta``.

        ``ceil(log2(1 / delta))`` rows and ``ceil(e / eps)`` columns. [LAS20] says 54 columns for 0.05 in section 5.1
        and computes with 55 in section 4.2; the formula gives 55.
        """
        for name, value in (("eps", eps), ("delta", delta)):
            if not is_number(value) or not 0 < value < (math.e if name == "eps" else 1):
                raise InvalidInputError(f"{name} must be above 0 and below 1, got {value!r}; it bounds the error")
        return Shape(rows=max(1, math.ceil(math.log2(1 / delta))), columns=math.ceil(math.e / eps), seed=seed)

    def family(self) -> HashFamily:
        """Make the hash functions."""
        return HashFamily(rows=self.rows, columns=self.columns, seed=self.seed)


class CountMin:
    """Count items in a few kilobytes; an estimate is never below the truth.

    Examples
    --------
    >>> counts = CountMin(Shape.of(eps=0.05, delta=0.1))
    >>> counts.update(np.array([3, 3, 5], dtype=np.uint64))
    >>> counts.estimate(np.array([3, 5], dtype=np.uint64)) >= [2, 1]
    array([ True,  True])
    """

    def __init__(self, shape: Shape) -> None:
        self.shape = shape
        self.cells = np.zeros((shape.rows, shape.columns))
        self._family = shape.family()

    def update(self, items: Items, amounts: NDArray[np.float64] | None = None) -> None:
        """Count each item once, or add an amount for each."""
        amounts = np.ones(items.size) if amounts is None else amounts
        if amounts.size != items.size or (amounts.size and amounts.min() < 0):
            raise InvalidInputError("amounts must be one for each item and not below 0, or estimates could be too low")
        add_amounts(self.cells, self._family.coefficients, items, amounts)

    def estimate(self, items: Items) -> NDArray[np.float64]:
        """Estimate how often each item came: at least as often as it did."""
        return smallest_cells(self.cells, self._family.coefficients, items)

    def merge(self, other: CountMin) -> CountMin:
        """Add up two sketches of two streams: the sketch of both."""
        require_same_shape(self.shape, other.shape)
        merged = CountMin(self.shape)
        merged.cells[:] = self.cells + other.cells
        return merged


def require_same_shape(one: Shape, other: Shape) -> None:
    """Refuse to add sketches whose hash functions differ."""
    if one != other:
        raise InvalidInputError(
            f"sketches can only be merged if shape and seed are the same, got {one} and {other}; "
            "make both from one Shape"
        )
