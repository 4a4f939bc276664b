"""Six queries over task events at three times the capacity: the road map against admission control and no shedding."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

import numpy as np
from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F
from rich.progress import Progress
from rich.table import Table

import penstock as ps
from benchmarks.task_events import prepare, task_events
from penstock.model.arrivals import Arrivals
from penstock.spark.network_stream import Stream

TARGET_SECONDS = 10.0
TIMES = 3.0
CALM_SECONDS, STEP_SECONDS, AFTER_SECONDS = 10.0, 80.0, 10.0
# Costs of operators are told apart by drops, hence only under load: the first seconds of the step do not count.
SETTLING_SECONDS = 25.0
MEASURED_BATCHES, MEASURED_SECONDS = 8, 150.0
SUBMIT, SCHEDULE = 0, 1


def build(network: ps.Network, events: Stream) -> None:
    """Two window aggregates, two kinds of rows, one output by value and a join, behind one shared check."""
    # Lateness costs all outputs alike: from the target on, until nothing is left at twice of it.
    late = ps.LatencyGraph.of((TARGET_SECONDS, 1.0), (2 * TARGET_SECONDS, 0.0))
    checked = events.filter("checked", _digest(F.concat_ws("-", "job_id", "task_index"), 20) != "")
    submits = checked.filter("submits", F.col("event_type") == SUBMIT)
    cpu = submits.aggregate("cpu", by="scheduling_class", of=F.col("cpu_request"), window_seconds=10, slide_seconds=5)
    cpu.output("cpu by class", loss=ps.LossTolerance.of((1, 1), (0.2, 0.95)), latency=late)
    users = checked.aggregate("users", by="user", window_seconds=5)
    users.output("events by user", loss=ps.LossTolerance.of((1, 1), (0.6, 0.85)), latency=late)
    scored = checked.map("scored", score=_digest(F.col("user"), 100))
    graph = ps.ValueGraph.of((0, 8, 0.05), (8, 12, 1.0))
    scored.output("scored by priority", columns=["id", "priority", "score"], value={"priority": graph}, latency=late)
    failures = checked.filter("failed", F.col("event_type").isin(2, 3, 5))
    failures.output("failures", columns=["id", "job_id"], latency=late, importance=2.0)
    costly = submits.map("audited", audit=_digest(F.col("id").cast("string"), 100))
    costly.output("audit", columns=["id", "audit"], loss=ps.LossTolerance.of((1, 0.5), (0.5, 0.45)), latency=late)
    starts = checked.filter("starts", F.col("event_type") == SCHEDULE)
    waits = submits.join("waits", starts, on=["job_id", "task_index"], within_seconds=5)
    waits.output("waiting times", columns=["job_id", "task_index"], latency=late)


def _digest(text: Column, rounds: int) -> Column:
    """Work that no optimiser can skip: iterated SHA-256."""
    return F.aggregate(F.sequence(F.lit(1), F.lit(rounds)), text, lambda digest, _: F.sha2(digest, 256))


def run_policy(
    spark: SparkSession, shedding: str, path: Path, arrivals: Arrivals, *, most_batches: int = 10**9
) -> ps.Run:
    """Run one policy over the timetable, or for some batches."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        network = ps.Network(checkpoint=folder, latency_seconds=TARGET_SECONDS, shedding=shedding)  # type: ignore[arg-type]
        epoch = time.time() + 3.0
        frame = task_events(spark, path, arrivals, epoch=epoch)
        build(network, network.source("events", frame, row_id="id", arrival="arrived", event_time="arrived"))
        answers = network.answers()
        run = network.start(answers.writeStream.format("noop").outputMode("append").trigger(processingTime="1 second"))
        with run:
            while not run.await_termination(0.5):
                if time.time() > epoch + arrivals.total_seconds or len(run.batches) >= most_batches:
                    break
        return run


def capacity_tuples_per_second(spark: SparkSession, path: Path) -> float:
    """Rows a second that fit in batches of half the target, from the costs that a run without shedding learns."""
    swaying = Arrivals.of(*((3.0, rate) for _ in range(int(MEASURED_SECONDS / 6)) for rate in (1_000, 5_000)))
    cost = run_policy(spark, "none", path, swaying, most_batches=MEASURED_BATCHES).network.learned_cost
    if cost is None:
        raise RuntimeError(
            f"no costs were learned in {MEASURED_SECONDS:g} s: the machine is too slow for this benchmark"
        )
    return float((1 - cost.fixed_seconds / (TARGET_SECONDS / 2)) / cost.kept_seconds)


def networks(spark: SparkSession, progress: Progress) -> list[Table]:
    """Half of the capacity, three times of it, half again; every policy on the same timetable."""
    path, origin = prepare()
    policies = {"no shedding": "none", "Input-Uniform": "uniform", "Random-LS": "random", "Semantic-LS": "semantic"}
    task = progress.add_task("networks at three times the capacity", total=1 + len(policies))
    capacity = capacity_tuples_per_second(spark, path)
    progress.advance(task)
    arrivals = Arrivals.of(
        (CALM_SECONDS, capacity / 2), (STEP_SECONDS, TIMES * capacity), (AFTER_SECONDS, capacity / 2)
    )
    title = (
        f"Six outputs, {origin}; calm, then {TIMES:g}x the capacity of {capacity:,.0f} rows/s; "
        f"target {TARGET_SECONDS:g} s; from {SETTLING_SECONDS:g} s after the step"
    )
    summary = Table(title=title, title_justify="left")
    for heading in (
        "policy", "utility of 6.5 under load", "latency p50, s", "p95, s", "late batches", "plans", "sheds after",
        "restarts", "scans per row", "shared operator per row",
    ):  # fmt: skip
        summary.add_column(heading, justify="right")
    detail = Table(title="Delivered share (and utility) of each output under load", title_justify="left")
    detail.add_column("policy", justify="right")
    for number, (name, shedding) in enumerate(policies.items()):
        run = run_policy(spark, shedding, path, arrivals)
        _report(name, run, summary, detail, first=number == 0)
        progress.advance(task)
    return [summary, detail]


def _report(name: str, run: ps.Run, summary: Table, detail: Table, *, first: bool) -> None:
    done = [b for b in run.network.batches if b.batch.offered]
    # Under load: batches that were put together while the step lasted, once costs were told apart.
    began = (done[0].batch.started_at or 0.0) + CALM_SECONDS
    loaded = [b for b in done if SETTLING_SECONDS <= (b.batch.started_at or 0.0) - began <= STEP_SECONDS] or done[-1:]
    sizes = np.array([b.batch.offered for b in loaded], dtype=float)
    latencies = np.array([b.batch.latency_seconds or 0.0 for b in loaded])
    utility = float(np.average([b.utility for b in loaded], weights=sizes))
    shared = sum(b.operator_tuples["checked"] for b in done) / sum(b.arcs[0].kept for b in done)
    reports = run.query.recentProgress
    by_id = {report["batchId"]: report["numInputRows"] or 0 for report in reports}
    restarts = len({report["runId"] for report in reports}) - 1
    scanned = sum(by_id.get(b.batch.batch_id, 0) for b in done) / sum(b.batch.offered for b in done)
    plans = len({tuple(sorted(b.plan.drops)) for b in done})
    summary.add_row(
        name, f"{utility:.2f}", f"{np.median(latencies):.1f}", f"{np.percentile(latencies, 95):.1f}",
        f"{int((latencies > TARGET_SECONDS).sum())} of {len(loaded)}", f"{plans}",
        "yes" if done[-1].plan.sheds else "no", f"{restarts}", f"{scanned:.2f}", f"{shared:.2f}",
    )  # fmt: skip
    names = [output.name for output in done[0].outputs]
    if first:
        for output in names:
            detail.add_column(output, justify="right")
    cells = []
    for number in range(len(names)):
        share = float(np.average([b.outputs[number].delivered for b in loaded], weights=sizes))
        worth = float(np.average([b.outputs[number].utility for b in loaded], weights=sizes))
        cells.append(f"{share:.0%} ({worth:.2f})")
    detail.add_row(name, *cells)
