"""Several window aggregates of one stream as one query: one drop before what they share, one before each of them.

A row has one hash. It passes the drop before the shared part if the hash is below the largest threshold of all
outputs, and the drop of an output if it is below that output's own. So the samples are nested: what an output keeps is
among what passed before, its effective rate is just the one that the plan states, and its weight the inverse of that.

Rows are tagged with the outputs that they go to, and one stateful aggregation by output, window and group keeps the
sums of all: the source is read once and the shared part runs once.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from penstock.estimate.interval import Aggregate, Within, needed, require
from penstock.model.error_target import MaxError
from penstock.model.errors import InvalidInputError, NotSupportedError, require_kind, require_text
from penstock.spark.answers.aggregates import answer_from, settled
from penstock.spark.answers.formulas import moment_columns
from penstock.spark.answers.metrics import MISSES, drop_metrics, group_metric, observe_misses, window_metrics
from penstock.spark.judge.marking import Marking
from penstock.spark.judge.sampling import WHOLE, key_hash, listed_threshold
from penstock.spark.names import quoted
from penstock.spark.plan.column import PlanColumns

SECONDS = {"second": 1.0, "minute": 60.0, "hour": 3600.0, "day": 86400.0}


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowAggregate:
    """One aggregate over windows of the stream, for :meth:`Shedder.answers <penstock.spark.shed.Shedder.answers>`.

    Parameters
    ----------
    name
        Of the output.
    aggregate
        ``"count"``, ``"sum"``, ``"avg"`` or ``"variance"``.
    value
        SQL expression of what is aggregated; it is evaluated only for rows that the output's drop lets through. A count
        without one counts rows.
    where
        SQL condition on the rows that belong to it.
    group
        SQL expression to group by.
    confidence, method, within, target
        As in :func:`penstock.sum`.
    """

    name: str
    aggregate: Aggregate = "count"
    value: str | None = None
    where: str | None = None
    group: str | None = None
    confidence: float | None = None
    method: str | None = None
    within: Within = None
    target: MaxError | None = None

    def __post_init__(self) -> None:
        given: object = self.name
        if not isinstance(given, str) or not re.fullmatch(r"\w+", given):
            raise InvalidInputError(
                f"the name of an output must be letters, digits and '_', got {self.name!r}; as 'trips'"
            )
        for role in ("value", "where", "group"):
            if (text := getattr(self, role)) is not None:
                require_text(f"{role} of output {self.name!r}", text, meaning="an SQL expression over the stream")
        confidence, method = settled(self.confidence, self.method, self.target)
        require(self.aggregate, confidence=confidence, method=method, within=self.within)
        if self.value is None and self.aggregate != "count":
            raise InvalidInputError(
                f"output {self.name!r} is a {self.aggregate} of nothing; give value=..., an SQL expression"
            )
        object.__setattr__(self, "confidence", confidence)
        object.__setattr__(self, "method", method)


@dataclass(frozen=True, slots=True, kw_only=True)
class Windows:
    """The time column and the windows over it."""

    time: str
    length: str
    slide: str | None = None

    def __post_init__(self) -> None:
        require_text("time", self.time, meaning="the column with the event time, such as 'timestamp'")
        length = interval_seconds(self.length)
        if self.slide is not None and interval_seconds(self.slide) > length:
            raise InvalidInputError(
                f"slide must be at most window, got {self.slide!r} and {self.length!r}; rows between the windows would "
                "belong to none"
            )

    @property
    def seconds(self) -> float:
        """Length of a window."""
        return interval_seconds(self.length)

    def column(self) -> Column:
        """The window of a row."""
        time = quoted(self.time)
        return F.window(time, self.length, self.slide) if self.slide else F.window(time, self.length)


def answer_outputs(
    kept: DataFrame,
    *,
    plan: PlanColumns,
    marking: Marking,
    outputs: Sequence[WindowAggregate],
    windows: Windows,
    metrics: str,
) -> DataFrame:
    """Drop by output, aggregate, and answer; ``kept`` is what passed the first drop and the shared part."""
    _check(kept, marking, windows)
    tagged = _tag(_branch(kept, plan, marking, outputs), outputs, windows, metrics)
    sums = frozenset().union(*(needed(output.aggregate, within=output.within) for output in outputs))
    methods = {str(output.method) for output in outputs}
    answered = tagged.groupBy(windows.column().alias("window"), "output", "group").agg(
        *moment_columns(F.col("value"), F.col("weight"), sums, methods)
    )
    frame = answered.select("window", "output", "group", _answers(outputs).alias("answer"))
    targets = {output.name: output.target for output in outputs if output.target}
    return observe_misses(frame, targets, f"{MISSES}_{metrics}") if targets else frame


def _answers(outputs: Sequence[WindowAggregate]) -> Column:
    """Choose the formula by output; outputs that are answered alike share one, for Spark plans each in every batch."""
    alike: dict[tuple[Any, ...], list[WindowAggregate]] = {}
    for output in outputs:
        # Who stops the query is named.
        named = output.name if output.target and output.target.otherwise == "stop" else None
        asked = (output.aggregate, output.confidence, output.method, output.within, output.target, named)
        alike.setdefault(asked, []).append(output)
    answer = F.lit(None)
    for together in alike.values():
        first = together[0]
        formula = answer_from(
            F.col,
            first.aggregate,
            confidence=first.confidence,
            method=first.method,
            within=first.within,
            target=first.target,
            name=first.name,
        )
        answer = F.when(F.col("output").isin([output.name for output in together]), formula).otherwise(answer)
    return answer


def interval_seconds(text: str) -> float:
    """Turn Spark's notation of a time span into seconds.

    >>> interval_seconds("10 minutes"), interval_seconds("1 hour 30 seconds")
    (600.0, 3630.0)
    """
    given: object = text
    parts = re.findall(r"(\d+(?:\.\d+)?)\s*([a-z]+?)s?\b", given.lower()) if isinstance(given, str) else []
    if not parts or any(unit not in SECONDS for _, unit in parts):
        raise InvalidInputError(
            f"cannot read the time span {text!r}; give seconds, minutes, hours or days, as in '10 minutes'"
        )
    if not (seconds := sum(float(number) * SECONDS[unit] for number, unit in parts)):
        raise InvalidInputError(f"the time span {text!r} is none; give one above 0, as in '10 minutes'")
    return seconds


def require_outputs(outputs: Sequence[WindowAggregate]) -> None:
    """Refuse anything but window aggregates of different names."""
    if not outputs:
        raise InvalidInputError("no output was named; give a WindowAggregate for each, as in answers(trips, ...)")
    for output in outputs:
        require_kind(
            "an output", output, WindowAggregate, called="a WindowAggregate", example="WindowAggregate(name='trips')"
        )
    names = [output.name for output in outputs]
    if len(set(names)) < len(names):
        raise InvalidInputError(f"outputs must have names of their own, got {names}; rename those that share one")


def _check(kept: DataFrame, marking: Marking, windows: Windows) -> None:
    if marking.key:
        raise NotSupportedError("rates per output and rates per key cannot be mixed; leave shed(key=...) out")
    if not marking.row_id:
        raise InvalidInputError("answers needs shed(row_id=...): the hash of the same columns decides at every drop")
    for name in (*marking.row_id, windows.time, marking.weight):
        if name not in kept.columns:
            raise InvalidInputError(
                f"the column {name!r} is gone before the outputs; keep row id, time and weight until answers(...)"
            )


def _output_threshold(plan: PlanColumns, output: WindowAggregate) -> Column:
    if plan.table is None:
        return plan.threshold
    return F.coalesce(listed_threshold(F.lit(key_hash(output.name)), *plan.table), plan.threshold)


def _branch(
    kept: DataFrame,
    plan: PlanColumns,
    marking: Marking,
    outputs: Sequence[WindowAggregate],
) -> DataFrame:
    """Add for every output whether the row belongs to it and passes its drop, and its weight, value and group there."""
    hashed = F.col("__penstock_hash")
    frame = kept.withColumn("__penstock_hash", marking.drawn(kept))
    belongs, passes = {}, {}
    for output in outputs:
        belongs[f"__{output.name}_belongs"] = (
            F.lit(True) if output.where is None else F.coalesce(F.expr(output.where), F.lit(False))
        )
        passes[f"__{output.name}_threshold"] = _output_threshold(plan, output)
    frame = frame.withColumns({**belongs, **passes})
    chosen = {}
    for output in outputs:
        threshold = F.col(f"__{output.name}_threshold")
        passed = F.col(f"__{output.name}_belongs") & ((threshold >= WHOLE) | (hashed < threshold))
        chosen[f"__{output.name}_passes"] = passed
        # The first drop gave the inverse of the common rate; this one makes it the inverse of the output's.
        chosen[f"__{output.name}_weight"] = F.col(quoted(marking.weight)) * F.try_divide(plan.threshold, threshold)
    frame = frame.withColumns(chosen)
    worked = {}
    for output in outputs:
        passes_here = F.col(f"__{output.name}_passes")
        value = F.lit(1.0) if output.value is None else F.expr(output.value).cast("double")
        if output.aggregate == "count" and output.value is not None:
            value = F.when(F.expr(output.value).isNotNull(), F.lit(1.0))
        worked[f"__{output.name}_value"] = F.when(passes_here, value)
        group = F.lit(None).cast("string") if output.group is None else F.expr(output.group).cast("string")
        worked[f"__{output.name}_group"] = F.when(passes_here, group)
    return frame.withColumns(worked)


def _tag(frame: DataFrame, outputs: Sequence[WindowAggregate], windows: Windows, metrics: str) -> DataFrame:
    """Count what reaches and passes each drop, then make a row for every output that a row goes to."""
    counted = window_metrics(windows.time, windows.seconds)
    tags = []
    for output in outputs:
        belongs, passes, weight, value, group = (
            F.col(f"__{output.name}_{part}") for part in ("belongs", "passes", "weight", "value", "group")
        )
        counted += drop_metrics(output.name, belongs=belongs, passes=passes, weight=weight, value=value)
        if output.group is not None:
            counted.append(group_metric(output.name, group))
        tag = {"output": F.lit(output.name), "group": group, "value": value, "weight": weight}
        tags.append(F.when(passes, F.struct(*(column.alias(name) for name, column in tag.items()))))
    tagged = frame.observe(metrics, *counted)
    exploded = tagged.select(F.col(quoted(windows.time)), F.explode(F.array_compact(F.array(*tags))).alias("tag"))
    return exploded.select(F.col(quoted(windows.time)), "tag.output", "tag.group", "tag.value", "tag.weight")
