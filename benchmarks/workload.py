"""Streams of a fixed batch size, the demo's query on them, and how long their batches take."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from copy import copy
from dataclasses import replace
from pathlib import Path
from statistics import median

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

import penstock as ps
from penstock.control.guidance import Guidance
from penstock.demo.clicks import answers, clicks_in_batches
from penstock.model.forecast import Forecast
from penstock.model.load import Cost, Load
from penstock.model.plan import Plan
from penstock.policy.contract import has_one_rate
from penstock.spark.plan.log import PlanLog
from penstock.spark.run.progress import read_progress
from penstock.spark.shed import Shedder

# The first batches of a query compile code and start workers; a stream runs for days.
WARM_UP_BATCHES = 5


def costly(rows: DataFrame, weight: str) -> DataFrame:
    """The demo's query: verify, then count and price by window and campaign."""
    return answers(rows, weight=F.expr(weight))


def light(rows: DataFrame, weight: str) -> DataFrame:
    """The same windows without the verifying: about as cheap as a stateful query gets."""
    window = F.window("arrived", "5 seconds").getField("start")
    return rows.groupBy(window, "campaign").agg(F.sum(F.expr(weight)), F.sum(F.expr(f"{weight} * price")))


def numbers(spark: SparkSession, rows: int) -> DataFrame:
    """What :func:`~penstock.demo.clicks.clicks_from` makes clicks of, within ten seconds."""
    return spark.range(rows).selectExpr("id AS value", f"timestamp_micros(id * 10000000 DIV {rows}) AS timestamp")


Query = Callable[[DataFrame, str], DataFrame]


def plain_batch_seconds(spark: SparkSession, query: Query, *, rows: int, batches: int) -> list[float]:
    """Run plain Spark back to back, and take the time of each batch."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        counted = query(clicks_in_batches(spark, rows_per_batch=rows), "1.0D")
        writer = counted.writeStream.outputMode("update").format("noop")
        running = writer.option("checkpointLocation", folder).start()
        return batch_seconds(running, batches)


def shed_batch_seconds(
    spark: SparkSession, query: Query, *, rows: int, batches: int, keep: float | None = None
) -> list[float]:
    """The same with Penstock attached: nothing to shed, or a keep rate enforced in every batch."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        shedder = shedder_at(folder, keep)
        counted = query(clicks_in_batches(spark, rows_per_batch=rows).transform(shedder), "weight")
        run = shedder.start(counted.writeStream.outputMode("update").format("noop"))
        seconds = batch_seconds(run.query, batches)
        run.stop()
        kept, offered = run.status.kept, run.status.offered
        expected = 1.0 if keep is None else keep
        if abs(kept / offered - expected) > 0.02:
            raise RuntimeError(f"the benchmark was to keep {expected} and kept {kept} of {offered}")
        return seconds


def too_much(policy: ps.Policy, headroom: float = 1e-9) -> ps.Policy:
    """Make a policy that takes every load for too much, so that it sheds whatever the machine can do."""

    class TooMuch(type(policy)):  # type: ignore[misc]
        __slots__ = ()
        ONE_RATE = has_one_rate(policy)

        def decide(self, load: Load) -> Plan:
            return super().decide(replace(load, headroom=headroom))

    made = copy(policy)
    object.__setattr__(made, "__class__", TooMuch)  # policies are frozen
    return made


def shedder_at(folder: str, keep: float | None, *, row_id: str = "id", spill: ps.Spill | None = None) -> Shedder:
    """A shedder whose target is far away, or one for which every load is too much."""
    if keep is None:
        return ps.shed(latency_seconds=600, checkpoint=folder, row_id=row_id, probe_tuples=10**9)
    cost = Cost(fixed_seconds=0.1, kept_seconds=1e-4)
    PlanLog(Path(folder) / "penstock" / "shed").publish(
        Guidance(
            published_at=time.time(), forecast=Forecast(cost=cost, noise=0.1, late_factor=1.25), tuples_per_unit=(1.0,)
        )
    )
    policy = too_much(ps.Uniform(keep=keep, min_keep=0.0))
    return ps.shed(latency_seconds=5, checkpoint=folder, row_id=row_id, policy=policy, spill=spill)


def batch_seconds(query: StreamingQuery, batches: int) -> list[float]:
    """Wait for some batches after the warm-up, stop the query, and tell how long each took."""
    try:
        while len(taken := _taken(query)) < WARM_UP_BATCHES + batches:
            if not query.isActive:
                raise RuntimeError("the query under measurement stopped") from query.exception()
            time.sleep(0.05)
    finally:
        query.stop()
    return taken[WARM_UP_BATCHES:][:batches]


def _taken(query: StreamingQuery) -> list[float]:
    reports = {report["batchId"]: read_progress(report) for report in query.recentProgress}
    return [progress.duration_seconds for progress in reports.values() if progress is not None]


def rows_for(seconds: float, spark: SparkSession, query: Query, *, first_guess: int) -> int:
    """Find the batch size at which plain Spark takes about so long, once warm."""
    rows = first_guess
    for _ in range(4):
        took = median(plain_batch_seconds(spark, query, rows=rows, batches=5))
        rows = int(rows * min(8.0, max(0.2, seconds / took)))
    return rows
