"""Four window aggregates over one real stream at three times the load: least error against uniform at the source."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from rich.progress import Progress
from rich.table import Table

import penstock as ps
from lab.reproduce.skewed import column_values, data_file
from lab.streams.replay import replay_stream
from penstock.model.arrivals import Arrivals
from penstock.spark.shed import Shedder

SEED = 4
COLUMNS = ("scheduling_class", "event_type", "cpu_request", "memory_request")
LATENCY_SECONDS = 8.0
WINDOW_SECONDS = 3
QUIET_SECONDS, OVERLOAD_SECONDS, OVERLOAD = 15, 60, 3.0
# The first batches of the overload, in which rates and costs are found, count in nothing but the latency.
SETTLING_SECONDS = 12
# How capacity is measured: rates that sway, so that fixed cost and cost per row are told apart.
SWAY_SECONDS, MEASURED_SWAYS = 4.0, 5
# Iterated SHA-256 on the way to every output, as when a record is checked: about 30 microseconds.
CHECKED = "aggregate(sequence(1, 45), cast(id AS STRING), (digest, _) -> sha2(digest, 256)) != ''"

OUTPUTS = {
    "events": ("count", None, None),
    "submitted_cpu": ("sum", "cpu_request", "event_type = 0"),
    "class3_memory": ("sum", "memory_request", "scheduling_class = 3"),
    "class2_cpu": ("sum", "cpu_request", "scheduling_class = 2 AND event_type = 0"),
}


@dataclass(frozen=True)
class Outcome:
    """Answers of one policy beside the truth, and the latencies of its batches under overload."""

    answers: pd.DataFrame
    latencies: list[float]
    keep: float
    reasons: list[str]


def aggregates() -> list[ps.WindowAggregate]:
    return [
        ps.WindowAggregate(
            name=name,
            aggregate=aggregate,
            value=f"if({CHECKED}, {value or '1.0D'}, null)",
            where=where,
            confidence=0.95,
        )
        for name, (aggregate, value, where) in OUTPUTS.items()
    ]


def outputs_under_overload(
    spark: SparkSession, progress: Progress, *, policies: dict[str, ps.Policy] | None = None
) -> list[Table]:
    """Run both policies on the same rows and timetable, one by one, and compare their answers with the truth."""
    path, source = _rows()
    task = progress.add_task("four window aggregates at 3x", total=3)
    rate = _capacity(spark, path)
    progress.advance(task)
    outcomes = {}
    for name, policy in (policies or {"least error": ps.LeastError(), "uniform": ps.Uniform()}).items():
        outcomes[name] = _run(spark, path, rate, policy)
        progress.advance(task)
    return _tables(outcomes, rate, source)


def _rows() -> tuple[str, str]:
    """Lay the stream out as a file that workers read: the real one if it is here, else one of the same shape."""
    folder = Path(tempfile.mkdtemp(prefix="penstock-outputs-"))
    path = folder / "rows.parquet"
    real = data_file("google_task_events")
    if real is not None:
        table = pq.read_table(real, columns=["ts_us", *COLUMNS])
        table = table.filter(pa.compute.greater(table["ts_us"], 0)).select(COLUMNS)
        pq.write_table(table.slice(0, 1_500_000), path)
        return str(path), "google_task_events"
    random = np.random.default_rng(SEED)
    cpu, _ = column_values("google_task_events", "cpu_request", seed=SEED)
    size = len(cpu)
    made = {
        "scheduling_class": pa.array(random.choice(4, p=[0.74, 0.13, 0.124, 0.006], size=size), pa.int8()),
        "event_type": pa.array(random.choice([0, 1, 4], p=[0.35, 0.35, 0.3], size=size), pa.int8()),
        "cpu_request": pa.array(cpu, pa.float32()),
        "memory_request": pa.array(random.permutation(cpu) / 2, pa.float32()),
    }
    pq.write_table(pa.table(made), path)
    return str(path), "made up in the shape of google_task_events: the data set is not here"


def _capacity(spark: SparkSession, path: str) -> float:
    """Rows a second that fit in batches of half the target when nothing is shed, from batches of different sizes."""
    arrivals = Arrivals.of(*((SWAY_SECONDS, rate) for _ in range(MEASURED_SWAYS) for rate in (5_000, 30_000)))
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        shedder = ps.shed(latency_seconds=600, checkpoint=folder, row_id="id", policy=ps.KeepAll(), probe_tuples=10**9)
        events = replay_stream(spark, path, COLUMNS, arrivals, epoch=time.time() + 3)
        writer = _query(events, shedder).writeStream.outputMode("append").format("noop")
        with shedder.start(writer) as run:
            finished = _watched(run, until=lambda _: False, limit_seconds=arrivals.total_seconds + 3)
    # The first half ran while Java was still compiling.
    warm = [batch for batch in finished[len(finished) // 2 :] if batch.duration_seconds]
    per_row, fixed = np.polyfit([b.offered for b in warm], [b.duration_seconds or 0.0 for b in warm], 1)
    return float((1 - fixed / (LATENCY_SECONDS / 2)) / per_row)


def _query(events: DataFrame, shedder: Shedder) -> DataFrame:
    kept = events.withWatermark("arrived", "0 seconds").transform(shedder)
    return kept.transform(shedder.answers(*aggregates(), time="arrived", window=f"{WINDOW_SECONDS} seconds"))


def _run(spark: SparkSession, path: str, rate: float, policy: ps.Policy) -> Outcome:
    arrivals = Arrivals.of((QUIET_SECONDS, round(rate / 2)), (OVERLOAD_SECONDS, round(rate * OVERLOAD)), (600, 10))
    # Windows start on whole multiples of their length: so that both runs cut the stream at the same rows.
    epoch = float((int(time.time()) + 3) // WINDOW_SECONDS * WINDOW_SECONDS + WINDOW_SECONDS)
    table = f"answers_{int(epoch)}"
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        shedder = ps.shed(
            latency_seconds=LATENCY_SECONDS, checkpoint=folder, row_id="id", arrival="arrived", policy=policy, seed=SEED
        )
        events = replay_stream(spark, path, COLUMNS, arrivals, epoch=epoch)
        writer = _query(events, shedder).writeStream.outputMode("append").format("memory").queryName(table)
        ends = epoch + QUIET_SECONDS + OVERLOAD_SECONDS
        with shedder.start(writer) as run:
            # Append mode gives a window out once the batch after it is through.
            finished = _watched(run, until=lambda _: time.time() > ends + 8, limit_seconds=ends + 20 - time.time())
    starts = epoch + QUIET_SECONDS
    heavy = [batch for batch in finished if batch.started_at and starts <= batch.started_at < ends]
    answers = spark.table(table).selectExpr("window.start AS start", "output", "answer.*").toPandas()
    answers["second"] = answers["start"].map(_epoch_seconds)
    counted = answers[(answers.second >= starts + SETTLING_SECONDS) & (answers.second + WINDOW_SECONDS <= ends)]
    return Outcome(
        answers=counted.merge(_truth(path, arrivals, epoch), on=["second", "output"]),
        latencies=[batch.latency_seconds for batch in heavy if batch.latency_seconds is not None],
        keep=sum(batch.kept for batch in heavy) / max(1, sum(batch.offered for batch in heavy)),
        reasons=[f"{batch.duration_seconds or 0:.2f} s; {batch.reason}" for batch in heavy],
    )


def _epoch_seconds(start: pd.Timestamp) -> float:
    return start.tz_localize("UTC").timestamp() if start.tzinfo is None else start.timestamp()


def _watched(run: ps.Run, *, until: Callable[[list[ps.Batch]], bool], limit_seconds: float) -> list[ps.Batch]:
    """Let a query run until enough is seen, and stop waiting if it fails or takes too long."""
    gives_up_at = time.time() + limit_seconds
    while not until(run.batches) and time.time() < gives_up_at:
        if run.await_termination(timeout_seconds=0.2):
            raise RuntimeError("the query under measurement stopped")
    return run.batches


def _truth(path: str, arrivals: Arrivals, epoch: float) -> pd.DataFrame:
    rows = pq.read_table(path).to_pandas()
    total = arrivals.count_at(QUIET_SECONDS + OVERLOAD_SECONDS)
    ids = np.arange(total)
    at = ((epoch + arrivals.arrival_seconds(ids)) * 1e6).astype(np.int64)
    frame = rows.iloc[ids % len(rows)].reset_index(drop=True)
    frame["second"] = at // (WINDOW_SECONDS * 10**6) * float(WINDOW_SECONDS)
    truths = []
    for name, (_, value, where) in OUTPUTS.items():
        chosen = frame if where is None else frame.query(where.replace(" = ", " == ").replace("AND", "and"))
        values = pd.Series(1.0, index=chosen.index) if value is None else chosen[value].astype(float)
        summed = values.groupby(chosen["second"]).sum().rename("truth").reset_index()
        truths.append(summed.assign(output=name))
    return pd.concat(truths)


def _tables(outcomes: dict[str, Outcome], rate: float, source: str) -> list[Table]:
    table = Table(
        title=f"Four window aggregates, {source}, {OVERLOAD:g}x of {rate:,.0f} rows/s, windows of {WINDOW_SECONDS} s",
        title_justify="left",
    )
    for heading in (
        "policy",
        "output",
        "answers",
        "bounded",
        "share",
        "error: rms",
        "max",
        "stated",
        "truth in bounds",
    ):
        table.add_column(heading, justify="right")
    run = Table(title="The same runs", title_justify="left")
    for heading in (
        "policy", "worst output: rms error", "largest error of all", "truth in bounds", "latency p50", "p95", "max",
        "target", "kept at the source",
    ):  # fmt: skip
        run.add_column(heading, justify="right")
    for policy, outcome in outcomes.items():
        worst = 0.0
        answers = outcome.answers.assign(error=lambda a: (a.value / a.truth - 1).abs())
        answers["inside"] = (answers.lower <= answers.truth * (1 + 1e-9)) & (
            answers.truth * (1 - 1e-9) <= answers.upper
        )
        for name in OUTPUTS:
            of = answers[answers.output == name]
            rms = float(np.sqrt((of.error**2).mean()))
            worst = max(worst, rms)
            bounded = of[of.reliable]
            table.add_row(
                policy, name, str(len(of)), f"{len(bounded) / max(1, len(of)):.0%}", f"{of.share.mean():.3f}",
                f"{rms:.2%}", f"{of.error.max():.2%}", f"{bounded.relative_error.mean():.2%}",
                f"{bounded.inside.mean():.1%}",
            )  # fmt: skip
        bounded = answers[answers.reliable]
        late = np.array(outcome.latencies or [np.nan])
        run.add_row(
            policy, f"{worst:.2%}", f"{answers.error.max():.2%}",
            f"{bounded.inside.sum()} of {len(bounded)} ({bounded.inside.mean():.1%})",
            f"{np.median(late):.2f} s", f"{np.quantile(late, 0.95):.2f} s", f"{late.max():.2f} s",
            f"{LATENCY_SECONDS:g} s", f"{outcome.keep:.3f}",
        )  # fmt: skip
    plans = Table(title="Plans under overload: the first, the middle and the last", title_justify="left")
    for heading in ("policy", "batch took, and why so"):
        plans.add_column(heading)
    for policy, outcome in outcomes.items():
        for reason in outcome.reasons[:: max(1, len(outcome.reasons) // 2)] or ["no batch"]:
            plans.add_row(policy, reason)
    return [table, run, plans]
