"""A ledger that cannot be written, a slow disk, and sampling that was changed under a checkpoint."""

import os
import time
from pathlib import Path

import pytest
from pyspark.sql import functions as F

import penstock as ps
from penstock.model.errors import PlanLogError
from penstock.spark.judge.sampling import row_hash, threshold_of
from penstock.spark.plan.log import PlanLog
from penstock.spark.plan.planner import ShedPlanner
from penstock.spark.run import control
from penstock.spark.run.ledger import Ledger
from penstock.spark.run.reports import Reports
from penstock.spark.store.folder import folder_at
from tests.spark.streams import always_shedding, finish_batches, numbers, stage_of

pytestmark = pytest.mark.spark

ROWS = 1_000


def start_halves(spark, checkpoint, out):
    shedder = always_shedding(checkpoint, ps.Uniform(keep=0.5))
    kept = numbers(spark, rows_per_batch=ROWS).transform(shedder)
    return shedder.start(kept.writeStream.format("parquet").option("path", str(out)))


def wait_for(true, seconds=120):
    ends_at = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < ends_at, "it never came to that"
        time.sleep(0.05)


def entries(checkpoint):
    return {batch.batch_id: batch for batch in Ledger(Path(checkpoint, "penstock", "shed", "ledger")).batches()}


def written(spark, out):
    """Rows in the sink by batch."""
    rows = spark.read.parquet(str(out)).groupBy(F.floor(F.col("value") / ROWS).alias("batch")).count().collect()
    return {row.batch: row["count"] for row in rows}


def test_a_ledger_that_cannot_be_written_is_said_and_made_up_for_later(
    spark, checkpoint, tmp_path, monkeypatch, caplog
):
    broken = {"yes": True}
    append = Ledger.append

    def fail(self, batch):
        if broken["yes"]:
            raise OSError(28, "No space left on device")
        return append(self, batch)

    monkeypatch.setattr(Ledger, "append", fail)
    run = start_halves(spark, checkpoint, tmp_path / "out")
    wait_for(lambda: len(run.batches) >= 3)
    status = run.status
    assert status.active
    assert status.controlled
    assert "batches cannot be entered in the ledger" in status.note
    assert entries(checkpoint) == {}
    broken["yes"] = False
    wait_for(lambda: run.status.note == "")
    run.stop()
    assert list(entries(checkpoint)) == [batch.batch_id for batch in run.batches] == list(range(len(run.batches)))
    assert {number: batch.kept for number, batch in entries(checkpoint).items()}.items() <= written(
        spark, tmp_path / "out"
    ).items()
    assert caplog.text.count("No space left on device") < 5  # said, not shouted


def test_a_poison_batch_is_passed_and_counted_again_beside_the_running_query(spark, checkpoint, tmp_path, monkeypatch):
    read = control.read_progress

    def fail(report):
        if report["batchId"] == 1:
            raise KeyError("sources")
        return read(report)

    monkeypatch.setattr(control, "read_progress", fail)
    run = start_halves(spark, checkpoint, tmp_path / "out")
    wait_for(lambda: {0, 1, 2, 3} <= entries(checkpoint).keys())
    assert run.status.note == ""
    assert run.status.controlled
    run.stop()
    entered = entries(checkpoint)
    assert [number for number, batch in entered.items() if batch.recounted] == [1]
    assert all(batch.offered == batch.kept + batch.shed == ROWS for batch in entered.values())
    assert {number: batch.kept for number, batch in entered.items()}.items() <= written(spark, tmp_path / "out").items()


def test_batches_whose_reports_spark_has_dropped_are_counted_again_while_the_query_runs(
    spark, checkpoint, tmp_path, monkeypatch
):
    blind, due = {"yes": False}, Reports.due
    monkeypatch.setattr(Reports, "due", lambda self: not blind["yes"] and due(self))
    commits = Path(checkpoint, "commits")
    remembered = spark.conf.get("spark.sql.streaming.numRecentProgressUpdates")
    spark.conf.set("spark.sql.streaming.numRecentProgressUpdates", "2")
    try:
        run = start_halves(spark, checkpoint, tmp_path / "out")
        next(run.watch())
        blind["yes"] = True
        before = len(folder_at(commits).ids())
        wait_for(lambda: len(folder_at(commits).ids()) >= before + 6)
        blind["yes"] = False
        newest = folder_at(commits).ids()[-1]
        wait_for(lambda: set(range(newest + 1)) <= entries(checkpoint).keys())
        run.stop()
    finally:
        spark.conf.set("spark.sql.streaming.numRecentProgressUpdates", remembered)
    entered = entries(checkpoint)
    assert sum(batch.recounted for batch in entered.values()) >= 2
    assert all(batch.offered == batch.kept + batch.shed == ROWS for batch in entered.values())
    assert {number: batch.kept for number, batch in entered.items()}.items() <= written(spark, tmp_path / "out").items()
    assert run.gaps == []


def slow_planner(planner, seconds):
    """A planner whose every write takes so long; its class is local, so that workers get it by value."""

    class SlowPlanner(ShedPlanner):
        @property
        def log(self):
            return SlowLog(self.checkpoint / "penstock" / self.name)

    class SlowLog(PlanLog):
        def decide(self, batch_id, make):
            synced = os.fsync

            def slow(descriptor):
                time.sleep(seconds)
                synced(descriptor)

            os.fsync = slow
            try:
                return super().decide(batch_id, make)
            finally:
                os.fsync = synced

    return SlowPlanner(checkpoint=planner.checkpoint, governor=planner.governor, name=planner.name)


@pytest.mark.parametrize("each_batch", [False, True], ids=["in the query", "foreachBatch"])
def test_a_slow_disk_for_the_plan_log_holds_batches_up_and_loses_none(spark, checkpoint, tmp_path, each_batch):
    shedder = always_shedding(checkpoint, ps.Uniform(keep=0.5))
    shedder._planner = slow_planner(shedder._planner, seconds=0.5)
    events, out = numbers(spark, rows_per_batch=1_000), str(tmp_path / "out")
    if each_batch:
        run = shedder.start_each_batch(events, lambda rows, _: rows.write.mode("append").parquet(out))
    else:
        run = shedder.start(events.transform(shedder).writeStream.format("parquet").option("path", out))
    batches = finish_batches(run, 3)

    assert [batch.batch_id for batch in batches] == list(range(len(batches)))
    logged = PlanLog(Path(checkpoint, "penstock", "shed"))
    assert all(logged.decision(batch.batch_id).plan.keep == 0.5 for batch in batches)
    numbered = spark.range(len(batches) * 1_000).withColumnRenamed("id", "value")
    kept = numbered.where(row_hash([F.col("value")], stage_of(checkpoint)) < threshold_of(0.5))
    written = spark.read.parquet(out).select("value").where(F.col("value") < len(batches) * 1_000)
    assert sorted(written.collect()) == sorted(kept.collect())
    assert sum(batch.kept for batch in batches) == kept.count()


def test_another_row_id_key_or_seed_on_the_same_checkpoint_is_refused(spark, checkpoint):
    def start(**options):
        shedder = ps.shed(latency_seconds=5, checkpoint=checkpoint, **{"row_id": "value", **options})
        return shedder.start(numbers(spark).transform(shedder).writeStream.format("noop"))

    finish_batches(start(), 1)
    with pytest.raises(PlanLogError, match=r"made with seed=0; with another one a replayed batch would keep other"):
        start(seed=1)
    with pytest.raises(PlanLogError, match=r"made with row_id=\['value'\]"):
        start(row_id="timestamp")
    assert finish_batches(start(), 1)[0].offered == 5_000
