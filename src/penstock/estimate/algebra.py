"""The few operations that formulas need beyond + - * and comparisons.

Formulas are written once, over anything that has these operations: NumPy arrays here, Spark columns in
``penstock.spark.answers.aggregates``. So what the simulations check is what a running query computes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

# A float, an array of them, or a Spark column: one formula serves all three, which the type checker cannot follow.
Number = Any


class Algebra(Protocol):
    """Operations on numbers of one kind; what is not defined comes out as missing (NaN, null), never as an error."""

    def sqrt(self, number: Number) -> Number:
        """Take the square root."""
        ...

    def ratio(self, over: Number, under: Number) -> Number:
        """Divide; missing where ``under`` is zero."""
        ...

    def larger(self, one: Number, other: Number) -> Number:
        """Take the larger of two."""
        ...

    def smaller(self, one: Number, other: Number) -> Number:
        """Take the smaller of two."""
        ...

    def where(self, holds: Number, then: Number, otherwise: Number) -> Number:
        """Choose."""
        ...

    def known(self, holds: Number, number: Number) -> Number:
        """Pass a number on where something holds; missing elsewhere."""
        ...

    def let(self, numbers: Sequence[Number], body: Callable[..., Any]) -> Any:
        """Compute numbers once, then what rests on them; a Spark formula would else repeat them wherever they occur."""
        ...

    def answer(self, **fields: Number) -> Any:
        """Put an answer together from its fields."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """An answer with bounds, as arrays; NaN where they cannot be given."""

    value: Number
    lower: Number
    upper: Number
    relative_error: Number
    share: Number
    reliable: Number


class NumPy:
    """The operations on floats and arrays."""

    def sqrt(self, number: Number) -> Number:
        """Take the square root."""
        return np.sqrt(number)

    def ratio(self, over: Number, under: Number) -> Number:
        """Divide; NaN where ``under`` is zero."""
        defined = np.asarray(under) != 0
        return np.where(defined, over, np.nan) / np.where(defined, under, 1.0)

    def larger(self, one: Number, other: Number) -> Number:
        """Take the larger of two."""
        return np.fmax(one, other)

    def smaller(self, one: Number, other: Number) -> Number:
        """Take the smaller of two."""
        return np.fmin(one, other)

    def where(self, holds: Number, then: Number, otherwise: Number) -> Number:
        """Choose."""
        return np.where(holds, then, otherwise)

    def known(self, holds: Number, number: Number) -> Number:
        """Pass a number on where something holds; NaN elsewhere."""
        return np.where(holds, number, np.nan)

    def let(self, numbers: Sequence[Number], body: Callable[..., Any]) -> Any:
        """Hand on what is computed already."""
        return body(*numbers)

    def answer(self, **fields: Number) -> Interval:
        """Put an answer together from its fields."""
        return Interval(**fields)
