"""What the test of all features does on a cluster: ``spark-submit cluster_features.py SHARED``; writes JSON.

It stands alone: executors import nothing from here, and see nothing of the driver's disk but SHARED.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pandas as pd
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import penstock as ps
from penstock.control.guidance import Guidance
from penstock.model.forecast import Forecast
from penstock.model.load import Cost
from penstock.spark.compile.layout import planner_of
from penstock.spark.plan.log import PlanLog
from penstock.spark.session import SHORT_BATCHES
from penstock.spark.windows.shedder import WindowShedder

ROWS = 2_000
SPECULATION = {
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.minTaskRuntime": "200ms",
    "spark.speculation.multiplier": "1.5",
    "spark.speculation.quantile": "0.5",
}


def numbers(spark: SparkSession) -> DataFrame:
    """0, 1, 2, ... with a second of event time and as many rows in every batch."""
    source = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", ROWS).option("numPartitions", 2)
    stream = source.option("startTimestamp", 10_000).option("advanceMillisPerBatch", 1_000).load()
    return stream.withColumn("kind", (F.col("value") % 7).cast("string"))


def dear(path: Path, *, seconds_per_tuple: float = 1e-2) -> None:
    """Leave guidance behind by which a batch does not fit."""
    cost = Cost(fixed_seconds=0.1, kept_seconds=seconds_per_tuple)
    PlanLog(path).publish(
        Guidance(
            published_at=time.time(), forecast=Forecast(cost=cost, noise=0.1, late_factor=1.25), tuples_per_unit=(1.0,)
        )
    )


def finish(run: ps.Run, count: int = 2) -> list[ps.Batch]:
    """Let a query finish some batches, and stop it."""
    watched = run.watch()
    for _ in range(count):
        next(watched)
    run.stop()
    return run.batches


def counts(batches: list[ps.Batch]) -> list[list[int]]:
    return [[batch.offered, batch.kept, batch.shed] for batch in batches]


def network(spark: SparkSession, folder: str) -> object:
    built = ps.Network(checkpoint=f"{folder}/checkpoint", latency_seconds=5)
    source = built.source("events", numbers(spark), row_id="value", event_time="timestamp", watermark="1 second")
    shared = source.filter("shared", F.col("kind") > "1")
    tolerant = ps.LossTolerance.of((1, 1), (0.2, 0.9))  # a sample of the rows is nearly as good as all of them
    shared.aggregate("all", window_seconds=1, of=F.col("value")).output("sums", loss=tolerant)
    shared.filter("second", F.col("kind") == "2").output("rows", columns=["value"])
    dear(planner_of(built).log.path, seconds_per_tuple=2e-3)
    run = built.start(built.answers().writeStream.format("parquet").option("path", f"{folder}/out"))
    finish(run, 4)  # the first window is closed by the third batch
    arcs = [[arc.offered, arc.kept, arc.shed] for batch in run.network.batches for arc in batch.arcs]
    outputs = spark.read.parquet(f"{folder}/out").select("output").distinct().collect()
    return {"arcs": arcs, "outputs": sorted(row.output for row in outputs)}


def operator(spark: SparkSession, folder: str) -> object:
    def work(row: dict[str, object]) -> dict[str, object]:
        time.sleep(0.001)
        return {"value": row["value"]}

    worker = ps.operator(work, key="kind", returns="value BIGINT", latency=0.4, checkpoint=f"{folder}/checkpoint")
    kept = numbers(spark).transform(worker)
    batches = finish(worker.start(kept.writeStream.format("parquet").option("path", f"{folder}/out")), 2)
    return counts(batches)


def concept(spark: SparkSession, folder: str) -> object:
    dear(Path(folder, "checkpoint", "penstock", "shed"))
    shedder = ps.shed(
        latency_seconds=5,
        checkpoint=f"{folder}/checkpoint",
        row_id="value",
        key="kind",
        policy=ps.ConceptDriven(keep=0.5),
    )
    kept = numbers(spark).transform(shedder)
    batches = finish(shedder.start(kept.writeStream.format("parquet").option("path", f"{folder}/out")), 2)
    return counts(batches)


def outputs(spark: SparkSession, folder: str) -> object:
    dear(Path(folder, "checkpoint", "penstock", "shed"))
    shedder = ps.shed(latency_seconds=5, checkpoint=f"{folder}/checkpoint", row_id="value", policy=ps.LeastError())
    asked = (ps.WindowAggregate(name="every"), ps.WindowAggregate(name="tens", where="value % 10 = 0"))
    kept = numbers(spark).transform(shedder).withWatermark("timestamp", "0 seconds")
    answered = kept.transform(shedder.answers(*asked, time="timestamp", window="1 second"))
    out = f"{folder}/out"
    batches = finish(shedder.start(answered.writeStream.format("parquet").option("path", out)), 3)
    names = spark.read.parquet(out).select("output").distinct().collect()
    return {"counts": counts(batches), "outputs": sorted(row.output for row in names)}


def windows(spark: SparkSession, folder: str) -> object:
    def largest(rows: pd.DataFrame) -> pd.DataFrame:
        most = rows.groupby("kind")["value"].max()
        return pd.DataFrame({"kind": most.index, "most": most.to_numpy()})

    shed = ps.shed_windows(
        largest,
        "kind STRING, most BIGINT",
        time="timestamp",
        size_seconds=1,
        key="kind",
        row_id="value",
        policy=ps.ConceptDriven(keep=0.1),
        latency_seconds=60,
        checkpoint=f"{folder}/checkpoint",
    )
    answers = numbers(spark).withWatermark("timestamp", "0 seconds").transform(shed)
    return _first_windows(spark, shed, answers, folder, ["kind"])


def join(spark: SparkSession, folder: str) -> object:
    def pairs(one: pd.DataFrame, other: pd.DataFrame) -> pd.DataFrame:
        both = ps.join_pairs(one, other, on="kind")
        weights = both.groupby("kind")["weight"].sum()
        return pd.DataFrame({"kind": weights.index, "pairs": weights.to_numpy()})

    streams = [numbers(spark).withWatermark("timestamp", "0 seconds") for _ in range(2)]
    shed = ps.shed_join(
        pairs,
        "kind STRING, pairs DOUBLE",
        time="timestamp",
        size_seconds=1,
        key="kind",
        value="value",
        row_id="value",
        policy=ps.ConceptDriven(keep=0.1),
        latency_seconds=60,
        checkpoint=f"{folder}/checkpoint",
    )
    return _first_windows(spark, shed, streams[0].transform(shed, streams[1]), folder, ["kind", "pairs"])


def _first_windows(
    spark: SparkSession, shed: WindowShedder, answers: DataFrame, folder: str, columns: list[str]
) -> object:
    """Run until some windows are written; give the answers of the first."""
    finish(shed.start(answers.writeStream.format("parquet").option("path", f"{folder}/out")), 3)
    answered = spark.read.parquet(f"{folder}/out")
    first = answered.agg(F.min("window")).first()[0]
    rows = answered.where(F.col("window.start") == first.start).orderBy("kind")
    return [list(row) for row in rows.select(*columns).collect()]


def faults(spark: SparkSession, folder: str) -> object:
    """A task that fails at first and one that hangs at first, against an undisturbed run with the same plan log."""
    disturbed = _faulty(spark, f"{folder}/disturbed", disturb=True)
    # With the plans, what the draws begin with: else another checkpoint keeps other rows.
    log = "checkpoint/penstock/shed"
    shutil.copytree(f"{folder}/disturbed/{log}/plans", f"{folder}/quiet/{log}/plans")
    shutil.copy(f"{folder}/disturbed/{log}/sampling.json", f"{folder}/quiet/{log}")
    quiet = _faulty(spark, f"{folder}/quiet", disturb=False)
    common = min(len(disturbed), len(quiet))
    rows = []
    for run in ("disturbed", "quiet"):
        written = spark.read.parquet(f"{folder}/{run}/out").where(F.col("value") < common * ROWS)
        # What is compared is the answer; which attempt of a task gave it may differ.
        rows.append(sorted((row.value, row.weight) for row in written.select("value", "weight").collect()))
        if run == "disturbed":
            attempts = {(row.batch, row.attempt) for row in written.select("batch", "attempt").distinct().collect()}
    return {
        "same": rows[0] == rows[1],
        "rows": len(rows[0]),
        "counts": [counts(disturbed[:common]), counts(quiet[:common])],
        "attempts": sorted(attempts),
    }


def _faulty(spark: SparkSession, folder: str, *, disturb: bool) -> list[ps.Batch]:
    copied = Path(folder, "copied")

    @F.udf("struct<batch: bigint, attempt: int>")
    def tag(_: int) -> tuple[int, int]:
        context = TaskContext.get()
        batch, attempt = int(context.getLocalProperty("streaming.sql.batchId")), context.attemptNumber()
        if disturb and context.partitionId() == 0:
            if batch == 1 and attempt == 0:
                raise ValueError("this attempt fails")
            if batch == 2 and attempt == 1:
                copied.touch()
            elif batch == 2 and not copied.exists():
                gives_up_at = time.monotonic() + 60
                while not copied.exists() and time.monotonic() < gives_up_at:
                    time.sleep(0.1)
                time.sleep(20)  # the copy is on its way, and this attempt is ended when it is done
        return batch, attempt

    dear(Path(folder, "checkpoint", "penstock", "shed"))
    shedder = ps.shed(
        latency_seconds=5,
        checkpoint=f"{folder}/checkpoint",
        row_id="value",
        policy=ps.Uniform(keep=0.3),
    )
    kept = numbers(spark).transform(shedder).withColumn("tag", tag("value")).select("value", "weight", "tag.*")
    return finish(shedder.start(kept.writeStream.format("parquet").option("path", f"{folder}/out")), 3)


def main(shared: str) -> None:
    builder = SparkSession.builder.appName("features")
    for name, value in {**SHORT_BATCHES, **SPECULATION, "spark.sql.shuffle.partitions": "2"}.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.range(1_000).repartition(2).count()  # waits until the executors are there
    # What an executor sees of the folder in which the driver works.
    seen = spark.range(2).repartition(2).select(F.udf(_listed, "string")(F.lit(os.getcwd()))).first()[0]
    # Some at a time: while the driver plans a batch of one, the executors work for another. Each in a session of its
    # own, since a network is started under settings that the others must not get.
    with ThreadPoolExecutor(max_workers=4) as pool:
        features = (faults, network, operator, windows, outputs, join, concept)
        running = {
            each.__name__: pool.submit(each, spark.newSession(), f"{shared}/{each.__name__}") for each in features
        }
    found = {name: each.result() for name, each in running.items()}
    found["seen"] = seen
    Path(shared, "found.json").write_text(json.dumps(found))
    spark.stop()


def _listed(folder: str) -> str:
    return ",".join(sorted(os.listdir(folder)))


if __name__ == "__main__":
    main(sys.argv[1])
