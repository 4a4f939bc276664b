"""Concept-Driven shedding: window latency against none and Uniform, intake of windows, cost of rates per key."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from statistics import median

import numpy as np
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery
from rich.progress import Progress
from rich.table import Table

import penstock as ps
from benchmarks.turns import WARM_UP_TURNS, in_turns, plain, ratios, told, triggered
from benchmarks.workload import numbers
from lab.reproduce.cod_replay import Replayed, replay, write_panes
from lab.reproduce.cod_streams import routes, users
from penstock.control.guidance import Guidance
from penstock.model.forecast import Forecast
from penstock.model.load import Cost, Load
from penstock.model.plan import Plan
from penstock.spark.plan.log import PlanLog

KEEP = 0.03
POLICIES = (
    ("none", ps.KeepAll()),
    ("Uniform", ps.Uniform(keep=KEEP)),
    ("CoD", ps.ConceptDriven(keep=KEEP)),
)
ROUNDS = 3
WINDOWS = 10
INTAKE_COPIES = 12
NATIVE_ROWS = 2_000_000
NATIVE_KEYS = 1_000
NATIVE_TURNS = 25


def window_latency(spark: SparkSession, progress: Progress) -> Table:
    """A weighted median by user and by route, 97 % shed: none, Uniform and the concept in turn."""
    table = Table(
        title="Windows of a user-defined median, 97 % shed; latency from the watermark to the answer",
        title_justify="left",
    )
    for heading in (
        "stream", "rows a window", "p95 none", "p95 Uniform", "p95 CoD", "none / CoD",
        "window, CoD / Uniform", "95 % interval", "all batches, CoD / Uniform", "processed",
    ):  # fmt: skip
        table.add_column(heading, justify="right")
    # Copies that make windows of both streams about as large: some 300,000 rows.
    for stream, copies in ((users(), 2), (routes(), 4)):
        task = progress.add_task(f"windows, {stream.name}", total=3 * ROUNDS)
        taken: dict[str, list[Replayed]] = {"none": [], "Uniform": [], "CoD": []}
        with tempfile.TemporaryDirectory() as folder:
            rows = write_panes(stream, Path(folder), windows=WINDOWS, copies=copies)
            for round_number in range(ROUNDS):
                for name, policy in POLICIES[round_number % 3 :] + POLICIES[: round_number % 3]:
                    taken[name].append(replay(spark, stream, Path(folder), policy))
                    progress.advance(task)
        seconds = {name: np.concatenate([run.window_seconds for run in runs]) for name, runs in taken.items()}
        p95 = {name: float(np.percentile(each, 95)) for name, each in seconds.items()}
        batches = {name: sum(run.batch_seconds[2:].sum() for run in runs) for name, runs in taken.items()}
        slides = stream.size_seconds / stream.slide_seconds
        table.add_row(
            stream.name, f"{rows / (WINDOWS + slides - 1) * slides:,.0f}",
            *(f"{p95[name] * 1e3:.0f} ms" for name in ("none", "Uniform", "CoD")),
            f"{p95['none'] / p95['CoD']:.2f}", *told(ratios(seconds["CoD"].tolist(), seconds["Uniform"].tolist())),
            f"{batches['CoD'] / batches['Uniform']:.3f}", f"{100 * taken['CoD'][0].kept_share:.2f} %",
        )  # fmt: skip
    return table


def window_intake(spark: SparkSession, progress: Progress) -> Table:
    """Rows a second that the window path takes in, windows answered meanwhile included."""
    table = Table(title="Intake of the window path, back to back", title_justify="left")
    for heading in ("stream", "rows a batch", "batch", "rows a second"):
        table.add_column(heading, justify="right")
    task = progress.add_task("intake", total=1)
    stream = users()
    with tempfile.TemporaryDirectory() as folder:
        write_panes(stream, Path(folder), windows=8, copies=INTAKE_COPIES)
        run = replay(spark, stream, Path(folder), ps.ConceptDriven(keep=KEEP))
    # The first batches start workers, the last close windows without rows.
    full = np.flatnonzero(run.batch_rows > run.batch_rows.max() / 4)[2:]
    rows, seconds = run.batch_rows[full].sum(), run.batch_seconds[full].sum()
    progress.advance(task)
    table.add_row(
        stream.name, f"{run.batch_rows[full].mean():,.0f}", f"{run.batch_seconds[full].mean():.2f} s",
        f"{rows / seconds:,.0f}",
    )  # fmt: skip
    return table


class RatesForAll(ps.ConceptDriven):
    """A rate of its own for every key, so close to 1 that nothing is gained."""

    def decide(self, load: Load) -> Plan:
        rates = {f"key-{number}": 0.999999 for number in range(NATIVE_KEYS)}
        return Plan(keep=1.0, key_keep=rates, reason=f"{load.explain()}; rates for every key")


def native_rates(spark: SparkSession, progress: Progress) -> Table:
    """Spark's own window aggregation by key, plain and behind rates per key, keys sampled, everything counted."""
    rows = numbers(spark, NATIVE_ROWS)
    taken = in_turns(spark, progress, "rates per key", rows, {"plain": _plain, "rated": _rated}, turns=NATIVE_TURNS)
    table = Table(
        title=f"Native window averages by key: {NATIVE_KEYS:,} rates per key, nothing shed", title_justify="left"
    )
    for heading in ("rows a batch", "plain batch", "with rates", "throughput ratio", "95 % interval"):
        table.add_column(heading, justify="right")
    table.add_row(
        f"{NATIVE_ROWS:,}", f"{median(taken['plain']):.2f} s", f"{median(taken['rated']):.2f} s",
        *told(ratios(taken["plain"], taken["rated"])),
    )  # fmt: skip
    return table


def _keyed(rows: DataFrame) -> DataFrame:
    return rows.selectExpr(
        "value", "timestamp", f"concat('key-', pmod(xxhash64(value), {NATIVE_KEYS})) AS key",
        "pmod(xxhash64(value, 1), 1000) / 1000.0D AS price",
    )  # fmt: skip


def _averages(rows: DataFrame, weight: str) -> DataFrame:
    window = F.window("timestamp", "3 seconds", "1 second")
    weighed = F.expr(weight)
    return rows.groupBy(window, "key").agg(
        F.sum(weighed), (F.sum(weighed * F.col("price")) / F.sum(weighed)).alias("average"), F.max("price")
    )


def _plain(rows: DataFrame, checkpoint: str) -> AbstractContextManager[StreamingQuery]:
    averages = _averages(_keyed(rows), "1.0D")
    return plain(averages.writeStream.outputMode("update").format("noop"), checkpoint)


@contextmanager
def _rated(rows: DataFrame, checkpoint: str) -> Iterator[StreamingQuery]:
    cost = Cost(fixed_seconds=0.1, kept_seconds=1e-4)
    log = PlanLog(Path(checkpoint) / "penstock" / "shed")
    log.publish(
        Guidance(
            published_at=time.time(), forecast=Forecast(cost=cost, noise=0.1, late_factor=1.25), tuples_per_unit=(1.0,)
        )
    )
    shedder = ps.shed(latency_seconds=5, checkpoint=checkpoint, row_id="value", key="key", policy=RatesForAll())
    averages = _averages(_keyed(rows).transform(shedder), "weight")
    with shedder.start(triggered(averages.writeStream.outputMode("update").format("noop"))) as run:
        yield run.query
        # How many rows a file brings is not known before the first.
        if not all(batch.listed_offered == batch.offered for batch in run.batches[WARM_UP_TURNS:]):
            raise RuntimeError("the benchmark was to look every key up, and some batches did not")
