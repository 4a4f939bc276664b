"""The query that ``make soak`` disturbs: ``spark-submit benchmarks/soak_job.py FOLDER``, with this project on the path.

Every click has a key of its own that never comes again; bursts are 50 times the quiet rate.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import penstock as ps
from benchmarks import switches as faults
from benchmarks.soak_plan import GRACE_SECONDS, TARGET_SECONDS, timetable
from penstock.control.controller import Controller
from penstock.demo.bursty import bursty_stream
from penstock.spark.run.ledger import Ledger
from penstock.spark.session import SHORT_BATCHES
from penstock.spark.store.paths import place

ROOT = str(Path(__file__).resolve().parents[1])
SPECULATION = {
    "spark.speculation": "true",
    "spark.speculation.interval": "200ms",
    "spark.speculation.quantile": "0.5",
    "spark.speculation.minTaskRuntime": "1s",
    # A stage of one task, such as the one that fetches the plan, has no others to be compared with.
    "spark.speculation.task.duration.threshold": "1s",
}


def switches_of(folder: str) -> Path:
    """Where the faults of a job are switched on."""
    return Path(folder, "switches")


def epoch_of(folder: str) -> float | None:
    """When the stream began (seconds since the epoch); None if it has not yet."""
    noted = Path(folder, "epoch")
    return float(noted.read_text()) if noted.exists() else None


def begin(folder: str) -> float:
    """Let the stream begin, unless a driver before this one has."""
    if (epoch := epoch_of(folder)) is None:
        epoch = time.time()
        aside = Path(folder, "epoch.new")
        aside.write_text(repr(epoch))
        aside.replace(Path(folder, "epoch"))
    return epoch


def mortal(switches: faults.Switches) -> None:
    """Let the controller fail when it is switched so."""
    learn = Controller.learn

    def fail_or_learn(*arguments: object, **named: object) -> None:
        if switches.value(faults.CONTROLLER) is not None:
            switches.note(faults.CONTROLLER)
            raise ArithmeticError("injected")
        learn(*arguments, **named)  # type: ignore[arg-type]

    Controller.learn = fail_or_learn  # type: ignore[method-assign, assignment]


def main(folder: str) -> None:
    mortal(faults.install(switches_of(folder)))
    builder = SparkSession.builder.appName("soak")
    settings = {
        **SHORT_BATCHES,
        **SPECULATION,
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.streaming.minBatchesToRetain": "10000",
        "spark.python.daemon.module": faults.__name__,
        "spark.executorEnv.PYTHONPATH": ROOT,
        f"spark.executorEnv.{faults.VARIABLE}": str(switches_of(folder)),
    }
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.range(1_000).repartition(2).count()  # waits until the executors are there
    arrivals = timetable()
    shedder = ps.shed(
        latency_seconds=TARGET_SECONDS,
        checkpoint=f"{folder}/checkpoint",
        row_id="id",
        key="id",
        arrival="arrived",
        policy=ps.Priority(keep={"no such key": 1.0}),
        grace_seconds=GRACE_SECONDS,
    )
    windows = (
        bursty_stream(spark, arrivals, epoch=begin(folder))
        .transform(shedder)
        .withWatermark("arrived", "1 second")
        .groupBy(F.window("arrived", "1 second"))
        .agg(
            F.sum("weight").alias("clicks"),
            F.count("*").alias("rows"),
            F.bit_xor(F.xxhash64("id")).alias("fingerprint"),
        )
        .select(F.col("window.start").alias("start"), "clicks", "rows", "fingerprint")
    )
    writer = windows.writeStream.format("parquet").option("path", f"{folder}/clicks").trigger(processingTime="1 second")
    with shedder.start(writer) as run:
        for _ in run.watch():
            offered = sum(batch.offered for batch in Ledger(place(run.ledger_path)).batches())
            if offered >= arrivals.total_tuples:
                break
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1])
