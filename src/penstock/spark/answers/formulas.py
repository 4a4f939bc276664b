"""Formulas over Spark columns: the sums that answers rest on, and what :mod:`penstock.estimate` does with them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import Column
from pyspark.sql import functions as F

from penstock.estimate.algebra import Number
from penstock.estimate.interval import METHODS, Aggregate


@dataclass(frozen=True, slots=True)
class Moments:
    """Columns in the place of :class:`penstock.estimate.moments.Moments`, each fetched when a formula asks for it."""

    fields: Callable[[str], Column]
    method: str

    @property
    def rows(self) -> Column:
        """How many survived."""
        return self.fields("rows0")

    @property
    def row_weight(self) -> Column:
        """Sum of their weights."""
        return self.fields("row_weight0")

    @property
    def tuples(self) -> Column:
        """How many survived with a value."""
        return self.fields("tuples0")

    @property
    def weighted(self) -> Mapping[int, Column]:
        """Weighted sums by power of the value."""
        return _Fetched(self.fields, "weighted")

    @property
    def spread(self) -> Mapping[str, Mapping[int, Column]]:
        """Sums of the spread, by power of the value."""
        return {self.method: _Fetched(self.fields, f"{self.method}_spread")}

    @property
    def peak(self) -> Mapping[str, Mapping[int, Column]]:
        """Largest contributions to the spread, by power of the value."""
        return {self.method: _Fetched(self.fields, f"{self.method}_peak")}

    @property
    def low(self) -> Column:
        """Smallest value."""
        return self.fields("low0")

    @property
    def high(self) -> Column:
        """Largest value."""
        return self.fields("high0")

    @property
    def heaviest(self) -> Column:
        """Largest weight."""
        return self.fields("heaviest0")

    def any_value(self, aggregate: Aggregate) -> Column:
        """Whether there is anything to answer from; the sum of no value is null."""
        return self.fields("weighted1").isNotNull() if aggregate == "sum" else self.tuples > 0


class _Fetched(Mapping[int, Column]):
    def __init__(self, fields: Callable[[str], Column], prefix: str) -> None:
        self._fields, self._prefix = fields, prefix

    def __getitem__(self, power: int) -> Column:
        return self._fields(f"{self._prefix}{power}")

    def __iter__(self) -> Iterator[int]:
        raise NotImplementedError

    def __len__(self) -> int:
        raise NotImplementedError


class Columns:
    """The operations that formulas need, on Spark columns; null stands for what is missing."""

    def sqrt(self, number: Number) -> Number:
        """Take the square root."""
        return F.sqrt(number)

    def ratio(self, over: Number, under: Number) -> Number:
        """Divide; null where ``under`` is zero."""
        return F.try_divide(_lit(over), _lit(under))

    def larger(self, one: Number, other: Number) -> Number:
        """Take the larger of two; the other one where one is null."""
        return F.greatest(_lit(one), _lit(other))

    def smaller(self, one: Number, other: Number) -> Number:
        """Take the smaller of two; the other one where one is null."""
        return F.least(_lit(one), _lit(other))

    def where(self, holds: Number, then: Number, otherwise: Number) -> Number:
        """Choose; null does not hold."""
        return F.when(holds, _lit(then)).otherwise(_lit(otherwise))

    def known(self, holds: Number, number: Number) -> Number:
        """Pass a number on where something holds; null elsewhere."""
        return F.when(holds, _lit(number))

    def let(self, numbers: Sequence[Number], body: Callable[..., Any]) -> Any:
        """Compute columns once: they become the fields of a struct that a lambda takes."""
        bound = [number for number in numbers if isinstance(number, Column)]
        fields = F.struct(*(number.alias(f"_{position}") for position, number in enumerate(bound)))

        def with_fields(struct: Column) -> Column:
            at = iter(range(len(bound)))
            given = [struct[f"_{next(at)}"] if isinstance(number, Column) else number for number in numbers]
            return body(*given)  # type: ignore[no-any-return]

        return compute_once(fields, with_fields)

    def answer(self, **fields: Number) -> Column:
        """Put an answer together as a struct."""
        return F.struct(*(_lit(number).alias(name) for name, number in fields.items()))


def moment_columns(
    value: Column, weight: Column, needed: Collection[tuple[str, int]], methods: Collection[str]
) -> list[Column]:
    """Make sums for ``agg``, under the names by which :class:`Moments` asks for them.

    A row without a number counts as nothing: its value is 0, and where no value takes part, its weight. Sums over
    columns without nulls are a third cheaper in Spark than over columns with them, and where every row has a number,
    nothing is left of the asking.
    """
    # Infinity less itself is not a number, as NaN is; this is the cheapest way to ask for both.
    there = value - value == 0.0
    y = F.coalesce(F.when(there, value), F.lit(0.0))
    w = F.coalesce(weight, F.lit(0.0))
    own = F.when(there, w).otherwise(F.lit(0.0))
    powers = [None, y, y * y, y * y * y, y * y * y * y]
    sums = []
    for field, power in sorted(needed):
        weighs = w if power else own
        if field == "rows":
            sums.append(F.count(F.lit(1)).cast("double").alias("rows0"))
        elif field == "row_weight":
            sums.append(F.sum(w).alias("row_weight0"))
        elif field == "tuples":
            sums.append(F.count(F.when(there, F.lit(1))).cast("double").alias("tuples0"))
        elif (field, power) == ("weighted", 1):
            # Null over no value, which tells that there is none.
            sums.append(F.sum(F.when(there, w * value)).alias("weighted1"))
        elif field == "weighted":
            # Over no row at all a sum is null in Spark, and taken for 0.
            sums.append(F.coalesce(F.sum(_times(weighs, powers[power])), F.lit(0.0)).alias(f"weighted{power}"))
        elif field in ("low", "high"):
            sums.append((F.min if field == "low" else F.max)(F.when(there, value)).alias(f"{field}0"))
        elif field == "heaviest":
            sums.append(F.max(own).alias("heaviest0"))
        else:
            summed = F.sum if field == "spread" else F.max
            for method in sorted(methods):
                sums.append(summed(_times(_factor(method, weighs), powers[power])).alias(f"{method}_{field}{power}"))
    return sums


def _factor(method: str, w: Column) -> Column:
    factor: Column = METHODS[method].factor(w)
    # What is sure to be kept (weight 1) adds nothing to the spread; the normal factor is 0 there by itself.
    return factor if method == "normal" else F.when(w > 1, factor).otherwise(F.lit(0.0))


def compute_once(struct: Column, body: Callable[[Column], Column]) -> Column:
    """Compute a struct once and hand it to an expression: a lambda over an array of one."""
    return F.get(F.transform(F.array(struct), body), F.lit(0))


def _times(one: Column, other: Column | None) -> Column:
    return one if other is None else one * other


def _lit(number: Number) -> Column:
    return number if isinstance(number, Column) else F.lit(number)
