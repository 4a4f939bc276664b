"""What a batch shows of its outputs in Spark's progress: how it is asked for, and how it is read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from penstock.model.branches import BranchCount, BranchCounts
from penstock.model.error_target import MaxError
from penstock.spark.answers.aggregates import meets
from penstock.spark.names import quoted

MISSES = "penstock_misses"
OUTPUT_METRICS = "_outputs"


def window_metrics(time: str, window_seconds: float) -> list[Column]:
    """Aggregates over all rows: how far event time went, and how long a window is."""
    micros = F.unix_micros(F.col(quoted(time)).cast("timestamp"))
    return [
        F.min(micros).alias("first_micros"),
        F.max(micros).alias("last_micros"),
        F.max(F.lit(window_seconds)).alias("window_seconds"),
    ]


def drop_metrics(name: str, *, belongs: Column, passes: Column, weight: Column, value: Column) -> list[Column]:
    """Aggregates of one output: what reached its drop, what passed, and weighted sums of the values that passed."""
    present = F.abs(value) < float("inf")
    weighted = F.when(present, weight * value)
    return [
        F.count_if(belongs).alias(f"{name}__offered"),
        F.count_if(passes).alias(f"{name}__kept"),
        F.count_if(belongs & ~passes).alias(f"{name}__shed"),
        F.sum(F.when(passes & present, weight)).alias(f"{name}__weight"),
        F.sum(weighted).alias(f"{name}__total"),
        F.sum(weighted * value).alias(f"{name}__squares"),
    ]


def group_metric(name: str, group: Column) -> Column:
    """Count the groups of an output, about."""
    return F.approx_count_distinct(group).cast("double").alias(f"{name}__groups")


def observe_misses(frame: DataFrame, targets: Mapping[str, MaxError], metrics: str) -> DataFrame:
    """Count the answers of each output, and those that miss its target."""
    counted = []
    for name, target in targets.items():
        own = F.col("output") == name
        counted += [
            F.count_if(own).alias(f"{name}__answers"),
            F.count_if(own & ~meets(F.col("answer"), target)).alias(f"{name}__missed"),
        ]
    return frame.observe(metrics, *counted)


def read_branches(observed: Mapping[str, Any] | None) -> BranchCounts | None:
    """Read what a batch showed of its outputs from Spark's progress; None where it has none."""
    if not observed or observed.get("window_seconds") is None:
        return None
    names = [field.removesuffix("__offered") for field in observed if field.endswith("__offered")]
    first, last = observed.get("first_micros"), observed.get("last_micros")
    return BranchCounts(
        first_event_at=None if first is None else first / 1e6,
        last_event_at=None if last is None else last / 1e6,
        window_seconds=observed["window_seconds"],
        outputs={
            name: BranchCount(
                offered=int(observed[f"{name}__offered"] or 0),
                kept=int(observed[f"{name}__kept"] or 0),
                shed=int(observed[f"{name}__shed"] or 0),
                weight=observed[f"{name}__weight"] or 0.0,
                total=observed[f"{name}__total"] or 0.0,
                squares=observed[f"{name}__squares"] or 0.0,
                groups=observed.get(f"{name}__groups") or 1.0,
            )
            for name in names
        },
    )


def read_misses(observed: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Say which outputs gave answers in this batch that miss their targets."""
    told = []
    for metrics, fields in observed.items():
        if metrics.startswith(MISSES):
            missed = {
                name.removesuffix("__missed"): count for name, count in fields.items() if name.endswith("__missed")
            }
            told += [
                f"{count} of {fields[f'{name}__answers']} answers of {name} miss their target"
                for name, count in missed.items()
                if count
            ]
    return told
