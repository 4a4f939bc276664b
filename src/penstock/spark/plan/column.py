"""The plan inside the running query: a scalar subquery that Spark evaluates anew in every micro-batch."""

from __future__ import annotations

import gc
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal, cast

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.functions import arrow_udf

from penstock.control.concept_memory import SAMPLE_TUPLES
from penstock.control.governor import Decision
from penstock.model.errors import NotSupportedError, PlanLogError
from penstock.spark.judge.sampling import table_of, threshold_of
from penstock.spark.plan.planner import Planner

# A batch whose size nobody foresees is sampled as if it had so many rows.
UNKNOWN_TUPLES = 1_000_000.0

# Spark's own name for the id of the micro-batch that a task belongs to. Internal, hence pinned by a test.
BATCH_ID = "streaming.sql.batchId"

# One rate for all rows. In a struct even so: Spark would write a bare number into the code that it generates, and
# compile that anew with every plan.
RATE_TYPE = "struct<threshold: bigint>"
PLAN_TYPE = "struct<threshold: bigint, hashes: array<bigint>, thresholds: array<bigint>, sample: bigint>"
_ARROW_TYPE = pa.struct(
    [
        ("threshold", pa.int64()),
        ("hashes", pa.list_(pa.int64())),
        ("thresholds", pa.list_(pa.int64())),
        ("sample", pa.int64()),
    ]
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanColumns:
    """The plan of the running batch, as columns of the query.

    Attributes
    ----------
    threshold
        The common keep rate.
    table
        Hashes of the names that have a rate of their own, keys or outputs, and those rates.
    sample
        Below it, rows are sampled to count their keys.
    """

    threshold: Column
    table: tuple[Column, Column] | None = None
    sample: Column | None = None


def plan_columns(spark: SparkSession, planner: Planner, *, rates: Literal["one", "by output", "by key"]) -> PlanColumns:
    """Make columns that hold, in every micro-batch, the plan for just that batch.

    One row through one Python worker: the rest of the query stays native and may keep state. One rate is a single
    number, so that Spark has less code to generate around it in every batch; rates by key may be thousands, which Arrow
    carries better.
    """
    if rates == "one":
        return PlanColumns(threshold=batch_column(spark, planner, rate_row, sql_type=RATE_TYPE)["threshold"])
    by_arrow = _ARROW_TYPE if rates == "by key" else None
    plan = batch_column(spark, planner, plan_row, sql_type=PLAN_TYPE, arrow_type=by_arrow)
    return PlanColumns(threshold=plan["threshold"], table=(plan["hashes"], plan["thresholds"]), sample=plan["sample"])


def batch_column(
    spark: SparkSession,
    planner: Planner,
    to_row: Callable[[Decision], dict[str, object]],
    *,
    sql_type: str,
    arrow_type: pa.DataType | None = None,
) -> Column:
    """Make a column that holds, in every micro-batch, what ``to_row`` makes of the decision for just that batch.

    A small row comes sooner without Arrow: setting up a stream of it takes a third of what Penstock adds to a batch.
    It must come from a relation: Spark inlines a subquery without FROM, and would ask for the plan once per row. Of all
    relations with one row, a literal one takes Spark the least work.
    """

    def read_row(_: int) -> dict[str, object]:
        settle_worker()
        return to_row(planner.decide(current_batch_id()))

    def read_array(ticks: pa.Array) -> pa.Array:
        return pa.array([read_row(0)] * len(ticks), type=arrow_type)

    # PySpark takes the kind from the type hints, and its stubs do not know that form.
    read = (
        F.udf(read_row, sql_type, useArrow=False)
        if arrow_type is None
        else cast("Any", arrow_udf)(read_array, sql_type)
    )
    one_row = spark.sql("SELECT id FROM VALUES (0L) AS one(id)")
    plan: Column = one_row.select(read(F.col("id")).alias("plan")).scalar()
    return plan


@cache
def settle_worker() -> None:
    """Keep Python from looking through everything it has loaded after every task, once per worker.

    Spark has a worker collect garbage whenever a task is done. That takes a core which the batch wants at just that
    moment, and nearly all of it goes into modules, which stay.
    """
    gc.collect()
    gc.freeze()


def current_batch_id() -> int:
    """Ask the running task which micro-batch it belongs to."""
    context = TaskContext.get()
    batch_id = context.getLocalProperty(BATCH_ID) if context else None
    if batch_id is None:
        raise NotSupportedError(
            "a shed DataFrame can only run inside a streaming query: no micro-batch id was found. "
            "Start it with shedder.start(...), and do not collect it as a batch"
        )
    return int(batch_id)


def rate_row(decision: Decision) -> dict[str, object]:
    """Lay a plan with one rate out for the native filter."""
    if decision.plan.key_keep:
        raise PlanLogError(
            f"batch {decision.batch_id} was planned with rates by key or output, and this query was built for plans "
            "with one rate; build it again on events.transform(shedder), then start it"
        )
    return {"threshold": _common_threshold(decision)}


def plan_row(decision: Decision) -> dict[str, object]:
    """Lay a plan out for the native filter."""
    table = table_of(decision.plan)
    return {
        "threshold": _common_threshold(decision),
        "hashes": table.hashes.tolist(),
        "thresholds": table.thresholds.tolist(),
        "sample": sample_threshold(decision),
    }


def _common_threshold(decision: Decision) -> int:
    if decision.plan.by_group is not None and decision.plan.sheds:
        raise PlanLogError(
            f"batch {decision.batch_id} was planned to be shed by its own groups, counted in a first pass (passes=2), "
            "which only start_each_batch can do; start the query that way until the batch is committed, or start from "
            "a new checkpoint"
        )
    return threshold_of(decision.plan.keep)


def sample_threshold(decision: Decision) -> int:
    """Threshold below which rows are sampled to count their keys: about as many rows whatever the batch's size."""
    expected = UNKNOWN_TUPLES if decision.expected_tuples is None else max(decision.expected_tuples, 1.0)
    return threshold_of(min(1.0, SAMPLE_TUPLES / expected))
