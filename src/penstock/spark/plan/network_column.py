"""The plan of a network inside the running query: a threshold and dropped ranges for every arc that may get a drop."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column, SparkSession

from penstock.control.governor import Decision
from penstock.model.network import Arc
from penstock.spark.judge.sampling import WHOLE, threshold_of
from penstock.spark.plan.column import batch_column
from penstock.spark.plan.planner import Planner

SQL_TYPE = "struct<thresholds: array<bigint>, ranges: array<array<struct<low: double, high: double>>>>"


def network_plan_column(spark: SparkSession, planner: Planner, arcs: Sequence[Arc]) -> Column:
    """Make a column that holds, in every micro-batch, the drops for just that batch, in the order of ``arcs``."""
    listed = tuple(arcs)

    def to_row(decision: Decision) -> dict[str, object]:
        return drops_row(decision, listed)

    return batch_column(spark, planner, to_row, sql_type=SQL_TYPE)


def drops_row(decision: Decision, arcs: Sequence[Arc]) -> dict[str, object]:
    """Lay the drops of a decision out by arc. A drop by value keeps all that lies outside of its ranges."""
    plan = decision.plan.network
    drops = [plan.drops.get(arc) if plan else None for arc in arcs]
    return {
        "thresholds": [WHOLE if drop is None or drop.ranges else threshold_of(drop.keep) for drop in drops],
        "ranges": [[{"low": low, "high": high} for low, high in drop.ranges] if drop else [] for drop in drops],
    }


def keep_all_row(arcs: Sequence[Arc]) -> dict[str, object]:
    """Lay out that nothing is dropped."""
    return {"thresholds": [WHOLE] * len(arcs), "ranges": [[] for _ in arcs]}
