"""What the tests of Spark Connect do, in a process that has no classic session: prints one line of JSON."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import sys
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import penstock as ps
from penstock.spark.run.ledger import Ledger
from tests.spark.streams import always_shedding, finish_batches, forget_last, numbers
from tests.spark.test_network import ROWS, events, overloaded, run_batches, six_outputs


def sums(spark: SparkSession, checkpoint: str, keep: float, out: str) -> ps.Run:
    shedder = always_shedding(checkpoint, ps.Uniform(keep=keep))
    counted = (
        numbers(spark)
        .transform(shedder)
        .withWatermark("timestamp", "0 seconds")
        .groupBy(F.window("timestamp", "1 second"))
        .agg(F.sum("weight").alias("rows"))
    )
    return shedder.start(counted.writeStream.format("parquet").option("path", out))


def entries(checkpoint: str) -> dict[int, ps.Batch]:
    ledger = Ledger(Path(checkpoint) / "penstock" / "shed" / "ledger")
    return {batch.batch_id: batch for batch in ledger.batches()}


def error_of(action) -> str:
    try:
        action()
    except Exception as error:
        return f"{type(error).__name__}: {error}"[:400]
    return "nothing was raised"


def aggregates(spark: SparkSession, folder: str) -> list[float]:
    """Answers with bounds: the count of every window, between its bounds."""
    shedder = always_shedding(f"{folder}/bounds", ps.Uniform(keep=0.4))
    kept = numbers(spark).transform(shedder).withWatermark("timestamp", "0 seconds")
    counted = kept.groupBy(F.window("timestamp", "1 second")).agg(ps.count().alias("n"), ps.sum("value").alias("s"))
    out = f"{folder}/bounds-out"
    writer = counted.select("n.*", F.col("s.value").alias("total")).writeStream.format("parquet").option("path", out)
    finish_batches(shedder.start(writer), 4)
    row = spark.read.parquet(out).orderBy("total").first()
    return [row.lower, row.value, row.upper, row.share]


def spill(spark: SparkSession, folder: str) -> dict[str, list[int]]:
    """Rows that are stored on the server while they are shed: in all and shed, stored and by the ledger."""
    counted = {}
    for name in ("in the plan", "each batch"):
        checkpoint = f"{folder}/spill-{len(counted)}"
        options = {"spill": ps.Spill(f"{folder}/spill", rows="all")}
        shedder = always_shedding(checkpoint, ps.Uniform(keep=0.3), **options)
        if name == "in the plan":
            run = shedder.start(numbers(spark).transform(shedder).writeStream.format("noop"))
        else:
            run = shedder.start_each_batch(
                numbers(spark), lambda rows, _: rows.write.format("noop").mode("append").save()
            )
        finish_batches(run, 2)
        stored = shedder.spilled()
        batches = entries(checkpoint).values()
        counted[name] = [
            stored.count(), sum(batch.offered for batch in batches),
            stored.where("shed").count(), sum(batch.shed for batch in batches),
        ]  # fmt: skip
    return counted


def network(spark: SparkSession, folder: str) -> dict[str, object]:
    """Outputs of one query: windows, rows by value, a union and a join, with drops on their arcs."""
    built = ps.Network(checkpoint=f"{folder}/network", latency_seconds=5)
    six_outputs(built, events(spark), costly_map=True)
    overloaded(built, seconds_per_tuple=3.0 / ROWS)
    run = run_batches(built, f"{folder}/network-out", 7)
    arcs = [arc for batch in run.network.batches for arc in batch.arcs]
    answers = spark.read.parquet(f"{folder}/network-out")
    window = built.windows(answers, "counts").where("start = timestamp_seconds(10)").first()
    return {
        "outputs": sorted(row.output for row in answers.select("output").distinct().collect()),
        "first batch": sum(arc.shed for arc in run.network.batches[0].arcs),
        "balanced": all(arc.offered == arc.kept + arc.shed for arc in arcs),
        "window": [window["count"], window.count_error],
    }


def main(folder: str) -> None:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    spark = (
        SparkSession.builder.remote("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .getOrCreate()
    )
    found: dict[str, object] = {"session": type(spark).__module__}
    first = f"{folder}/first"
    run = sums(spark, first, 0.3, f"{folder}/out")
    finish_batches(run, 3)
    whole = entries(first)
    found["first"] = [[b.offered, b.kept, b.shed, b.keep, b.latency_seconds is not None] for b in whole.values()][:3]
    found["status"] = str(run.status)
    found["frame"] = run.ledger().count() == len(whole)
    # Counts that died with the client are made again, on the server, from the same offsets and plan.
    forget_last(Ledger(Path(first) / "penstock" / "shed" / "ledger"), 1)
    finish_batches(sums(spark, first, 0.8, f"{folder}/out"), 1)
    lost = max(whole)
    mended = entries(first)[lost]
    found["recounted"] = [mended.recounted, mended.kept == whole[lost].kept, mended.offered == whole[lost].offered]

    each = always_shedding(f"{folder}/each", ps.Uniform(keep=0.5))
    target = f"{folder}/each-out"
    stream = numbers(spark)
    batches = finish_batches(
        each.start_each_batch(stream, lambda rows, _: rows.write.mode("append").parquet(target)), 2
    )
    written = spark.read.parquet(target).where(F.col("value") < 5_000)
    found["each"] = [written.count() == batches[0].kept, written.agg(F.min("weight")).first()[0], batches[0].offered]

    found["spill"] = spill(spark, folder)
    found["aggregates"] = aggregates(spark, folder)
    found["network"] = network(spark, folder)
    plain = always_shedding(f"{folder}/plain", ps.Uniform(keep=0.5))
    found["collected"] = error_of(lambda: spark.range(5).transform(plain).collect())
    damaged = f"{folder}/damaged"
    shutil.copytree(first, damaged)
    last = sorted((Path(damaged) / "penstock" / "shed" / "plans").glob("*.json"), key=lambda f: int(f.stem))[-1]
    last.write_text(last.read_text()[:-9])
    found["damaged"] = error_of(lambda: sums(spark, damaged, 0.8, f"{folder}/other"))
    running = sums(spark, f"{folder}/broken", 0.8, f"{folder}/third")
    next(running.watch())
    for batch_id in range(1, 200):
        with contextlib.suppress(FileExistsError):
            (Path(f"{folder}/broken/penstock/shed/plans") / f"{batch_id}.json").open("x").close()
    found["in a worker"] = error_of(lambda: [running.await_termination(60), running.status])
    print(json.dumps(found))
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1])
