"""Weighted aggregates as native Spark expressions: a value, its bounds, and what it rests on.

Each function gives a column for ``agg(...)``: a struct with the fields ``value``, ``lower``, ``upper``,
``relative_error``, ``share`` and ``reliable``. Sums are Spark's own; the formulas over them are those of
:mod:`penstock.estimate`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pyspark.sql import Column
from pyspark.sql import functions as F

from penstock.estimate.interval import Aggregate, Within, interval, needed
from penstock.estimate.interval import require as require_interval
from penstock.model.error_target import MaxError
from penstock.model.errors import (
    InvalidInputError,
    NotSupportedError,
    TargetMissedError,
    require_fraction,
    require_kind,
)
from penstock.spark.answers.formulas import Columns, Moments, compute_once, moment_columns
from penstock.spark.checks import require_expression

ANSWER_TYPE = (
    "struct<value: double, lower: double, upper: double, relative_error: double, share: double, reliable: boolean>"
)

Value = str | Column
Confidence = float | None


def count(
    value: Value | None = None,
    *,
    weight: Value = "weight",
    confidence: Confidence = None,
    method: str | None = None,
    target: MaxError | None = None,
) -> Column:
    """Count rows, or values that are not missing, with bounds.

    Parameters
    ----------
    value
        Column or SQL expression; by default every row counts.
    weight
        The column that shedding added.
    confidence, method
        As in :func:`penstock.estimate.answer.estimate`; by default those of the target, else 0.95 and "normal".
    target
        How wrong the answer may be, and what becomes of one that is worse.

    Examples
    --------
    >>> import penstock as ps
    >>> spark = ps.local_session()
    >>> rows = spark.range(400).selectExpr("id", "5.0D AS weight")
    >>> rows.agg(ps.count().alias("n")).select("n.value", "n.share", "n.reliable").first()
    Row(value=2000.0, share=0.2, reliable=True)
    """
    counted = None if value is None else _column("value", value)
    one = F.lit(1.0) if counted is None else F.when(counted.isNotNull(), F.lit(1.0))
    return _answer("count", one, weight, confidence=confidence, method=method, target=target)


def sum(
    value: Value,
    *,
    weight: Value = "weight",
    confidence: Confidence = None,
    method: str | None = None,
    within: Within = None,
    target: MaxError | None = None,
) -> Column:
    """Sum values, with bounds; parameters as in :func:`count`, and ``within``: the least and largest value possible.

    Values that are null, NaN or infinite are left out.
    """
    return _answer("sum", value, weight, confidence=confidence, method=method, within=within, target=target)


def avg(
    value: Value,
    *,
    weight: Value = "weight",
    confidence: Confidence = None,
    method: str | None = None,
    within: Within = None,
    target: MaxError | None = None,
) -> Column:
    """Average values, with bounds; parameters as in :func:`sum`."""
    return _answer("avg", value, weight, confidence=confidence, method=method, within=within, target=target)


def variance(
    value: Value,
    *,
    weight: Value = "weight",
    confidence: Confidence = None,
    method: str | None = None,
    within: Within = None,
    target: MaxError | None = None,
) -> Column:
    """Take the variance of values (of the population), with bounds only where ``within`` is known.

    Parameters are those of :func:`sum`.
    """
    return _answer("variance", value, weight, confidence=confidence, method=method, within=within, target=target)


def quantile(value: Value, share: float, *, weight: Value = "weight") -> Column:
    """Find the value below which a share of the tuples lies; without bounds, unless nothing was shed.

    Spark's ``percentile`` of values that occur as often as their weights say (to 1/1024): sound for any weights. It
    keeps every distinct value of a group in memory; where all rows of a group weigh the same, ``F.percentile_approx``
    of the survivors is as sound and smaller.

    >>> import penstock as ps
    >>> spark = ps.local_session()
    >>> rows = spark.createDataFrame([(1.0, 8.0), (5.0, 1.0), (9.0, 1.0)], "v double, weight double")
    >>> rows.agg(ps.quantile("v", 0.5).alias("q")).select("q.value", "q.reliable").first()
    Row(value=1.0, reliable=False)
    """
    require_fraction("share", share, meaning="the share of tuples below the value to find")
    number, weighs = _column("value", value).cast("double"), _column("weight", weight).cast("double")
    present = F.when(F.abs(number) < float("inf"), number)
    often = F.round(weighs * 1024).cast("long")
    found = F.percentile(present, share, often)
    heaviest, tuples = F.max(F.when(present.isNotNull(), weighs)), F.count(present)
    rests_on = F.try_divide(tuples, F.sum(F.when(present.isNotNull(), weighs)))

    def stated(sums: Column) -> Column:
        exact = F.coalesce(sums["heaviest"] <= 1, F.lit(False))
        bound = F.when(exact, sums["found"])
        return Columns().answer(
            value=sums["found"],
            lower=bound,
            upper=bound,
            relative_error=F.when(exact, F.lit(0.0)),
            share=sums["share"],
            reliable=exact,
        )

    return compute_once(F.struct(found.alias("found"), heaviest.alias("heaviest"), rests_on.alias("share")), stated)


def count_distinct(value: Value, *_: Any, **__: Any) -> Column:
    """Refuse: what was dropped may hold values that no survivor has, and weights cannot tell how many."""
    raise NotSupportedError(
        f"the distinct values of {value!r} cannot be counted from a sample: weights do not tell how many were dropped "
        "whole. Shed by that column instead (row_id of just that column): then all rows of a value share their fate, "
        "and F.approx_count_distinct divided by the keep rate is unbiased"
    )


def answer_from(
    fields: Callable[[str], Column],
    aggregate: Aggregate,
    *,
    confidence: Confidence = None,
    method: str | None = None,
    within: Within = None,
    target: MaxError | None = None,
    name: str = "",
) -> Column:
    """Make the struct of an answer from sums, fetched by the names that :func:`moment_columns` gave them."""
    confidence, method = settled(confidence, method, target)
    moments = Moments(fields, method)
    answered: Column = interval(moments, aggregate, Columns(), confidence=confidence, method=method, within=within)
    return answered if target is None else held_to(answered, target, name=name or aggregate)


def held_to(answer: Column, target: MaxError, *, name: str) -> Column:
    """Do with an answer that misses its target what the target says; a warning is left to the run."""
    if target.otherwise == "warn":
        return answer

    def judged(given: Column) -> Column:
        met = meets(given, target)
        if target.otherwise == "null":
            return given.withField("value", F.when(met, given["value"]))
        # In this form the run finds our own error in what Spark wraps around it.
        told = F.concat(
            F.lit(f"{TargetMissedError.__module__}.{TargetMissedError.__name__}: {name} "),
            F.coalesce(
                F.concat(F.lit("has a relative error of "), F.round(given["relative_error"], 4).cast("string")),
                F.lit("rests on too few tuples to bound its error"),
            ),
            F.lit(
                f", and at most {target.relative:g} is allowed at a confidence of {target.confidence:g}; allow more, "
                "give the query more time or machines, or take otherwise='warn'"
            ),
        )
        return F.when(met, given).otherwise(F.raise_error(told).cast(ANSWER_TYPE))

    return compute_once(answer, judged)


def meets(answer: Column, target: MaxError) -> Column:
    """Whether an answer is as near as the target asks; as :meth:`MaxError.met_by` says."""
    return F.coalesce(answer["relative_error"] <= target.relative, F.lit(False))


def settled(confidence: Confidence, method: str | None, target: MaxError | None) -> tuple[float, str]:
    """Fill in what was not given from the target, and refuse what contradicts it."""
    if target is None:
        return 0.95 if confidence is None else confidence, "normal" if method is None else method
    require_kind("target", target, MaxError, called="a MaxError", example="MaxError(relative=0.05)")
    for given, wanted, role in ((confidence, target.confidence, "confidence"), (method, target.method, "method")):
        if given is not None and given != wanted:
            raise InvalidInputError(
                f"{role} is {given!r} and that of the target is {wanted!r}; give it once, in MaxError({role}=...)"
            )
    return target.confidence, target.method


def _answer(
    aggregate: Aggregate,
    value: Value,
    weight: Value,
    *,
    confidence: Confidence,
    method: str | None,
    within: Within = None,
    target: MaxError | None,
) -> Column:
    of = f"{aggregate}({value if isinstance(value, str) else 'rows' if aggregate == 'count' else 'values'})"
    confidence, method = settled(confidence, method, target)
    require_interval(aggregate, confidence=confidence, method=method, within=within)
    number, weighs = _column("value", value).cast("double"), _column("weight", weight).cast("double")
    sums = moment_columns(number, weighs, needed(aggregate, within=within), [method])

    def answered(struct: Column) -> Column:
        return answer_from(
            lambda name: struct[name],
            aggregate,
            confidence=confidence,
            method=method,
            within=within,
            target=target,
            name=of,
        )

    return compute_once(F.struct(*sums), answered)


def _column(role: str, value: Value) -> Column:
    require_expression(role, value)
    return F.expr(value) if isinstance(value, str) else value
