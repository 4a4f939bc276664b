"""Formulas over Spark columns: the sums that answers rest on, and what :mod:`penstock.estimate` does with them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import Column
from pyspark.sql import functions as F

from penstock.estimate.algebra import Number
from penstock.estimate.interval import METHODS, NEEDED, Aggregate


@dataclass(frozen=True, slots=True)
class Moments:
    """Columns in the place of :class:`penstock.estimate.moments.Moments`."""

    tuples: Column
    weighted: Mapping[int, Column]
    spread: Mapping[str, Mapping[int, Column]]
    low: Column
    high: Column
    heaviest: Column


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
    value: Column, weight: Column, aggregates: Sequence[Aggregate], methods: Sequence[str]
) -> list[Column]:
    """Make the sums that these aggregates need, as columns for ``agg``, under names that :func:`moments_in` knows."""
    present = F.when(F.abs(value) < float("inf"), value)
    weighs = F.when(present.isNotNull(), weight)
    powers: list[Column | None] = [None, present]
    for _ in range(3):
        powers.append(powers[-1] * present)  # type: ignore[operator]
    sums = [F.count(present).alias("n"), F.max(weighs).alias("heaviest")]
    if set(aggregates) - {"count"}:
        sums += [F.min(present).alias("low"), F.max(present).alias("high")]
    for k in sorted({k for aggregate in aggregates for k in NEEDED[aggregate][0]}):
        sums.append(F.sum(_times(weighs, powers[k])).alias(f"w{k}"))
    for method in sorted(set(methods)):
        # What is sure to be kept (weight 1) adds nothing to the spread.
        factor = F.when(weighs > 1, METHODS[method].factor(weighs)).otherwise(F.when(present.isNotNull(), F.lit(0.0)))
        for k in sorted({k for aggregate in aggregates for k in NEEDED[aggregate][1]}):
            sums.append(F.sum(_times(factor, powers[k])).alias(f"{method}{k}"))
    return sums


def moments_in(fields: Callable[[str], Column], aggregate: Aggregate, method: str) -> Moments:
    """Read the sums of :func:`moment_columns` from where they were put."""
    weighted, spread = NEEDED[aggregate]
    none = F.lit(1.0)
    return Moments(
        tuples=fields("n"),
        # Without a row Spark's sums are null; a count is then 0.
        weighted={k: F.coalesce(fields(f"w{k}"), F.lit(0.0)) if k == 0 else fields(f"w{k}") for k in weighted},
        spread={method: {k: fields(f"{method}{k}") for k in spread}},
        low=none if aggregate == "count" else fields("low"),
        high=none if aggregate == "count" else fields("high"),
        heaviest=F.coalesce(fields("heaviest"), F.lit(0.0)),
    )


def compute_once(struct: Column, body: Callable[[Column], Column]) -> Column:
    """Compute a struct once and hand it to an expression: a lambda over an array of one."""
    return F.get(F.transform(F.array(struct), body), F.lit(0))


def _times(one: Column, other: Column | None) -> Column:
    return one if other is None else one * other


def _lit(number: Number) -> Column:
    return number if isinstance(number, Column) else F.lit(number)
