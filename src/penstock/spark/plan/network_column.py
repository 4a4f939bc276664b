"""The plan of a network inside the running query: a threshold and dropped ranges for every arc that may get a drop."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column, SparkSession

from penstock.control.governor import Decision
from penstock.model.errors import PlanLogError
from penstock.model.network import Arc
from penstock.spark.judge.sampling import WHOLE, threshold_of
from penstock.spark.plan.column import batch_column
from penstock.spark.plan.network_planner import NetworkPlanner

SQL_TYPE = "struct<thresholds: array<bigint>, ranges: array<array<struct<low: double, high: double>>>>"


def network_plan_column(spark: SparkSession, planner: NetworkPlanner, arcs: Sequence[Arc]) -> Column:
    """Make a column that holds, in every micro-batch, the drops for just that batch, in the order of ``arcs``."""
    listed, value = tuple(arcs), planner.value

    def to_row(decision: Decision) -> dict[str, object]:
        return drops_row(decision, listed, value=value)

    return batch_column(spark, planner, to_row, sql_type=SQL_TYPE)


def drops_row(decision: Decision, arcs: Sequence[Arc], *, value: str | None) -> dict[str, object]:
    """Lay the drops of a decision out by arc. A drop by value keeps all that lies outside of its ranges.

    ``value`` is the column that drops by value go by in the network as it is now.
    """
    plan = decision.plan.network
    if plan is not None and plan.value != value and any(drop.ranges for drop in plan.drops.values()):
        raise PlanLogError(
            f"batch {decision.batch_id} was planned with drops by the value of {plan.value!r}, and the value graphs of "
            f"this network go by {value!r}; go back to the former until that batch is committed, or start from a new "
            "checkpoint"
        )
    drops = [plan.drops.get(arc) if plan else None for arc in arcs]
    return {
        "thresholds": [WHOLE if drop is None or drop.ranges else threshold_of(drop.keep) for drop in drops],
        "ranges": [[{"low": low, "high": high} for low, high in drop.ranges] if drop else [] for drop in drops],
    }


def keep_all_row(arcs: Sequence[Arc]) -> dict[str, object]:
    """Lay out that nothing is dropped."""
    return {"thresholds": [WHOLE] * len(arcs), "ranges": [[] for _ in arcs]}
