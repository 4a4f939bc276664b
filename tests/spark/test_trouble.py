"""A ledger that cannot be written, a slow disk, and sampling that was changed under a checkpoint."""

import os
import time
from pathlib import Path

import pytest
from pyspark.sql import functions as F

import penstock as ps
from penstock.spark.judge.sampling import row_hash, threshold_of
from penstock.spark.plan.log import PlanLog
from penstock.spark.plan.planner import ShedPlanner
from penstock.spark.run.ledger import Ledger
from tests.spark.streams import always_shedding, finish_batches, numbers, stage_of

pytestmark = pytest.mark.spark


def test_a_ledger_that_cannot_be_written_is_said_and_made_up_for_later(spark, checkpoint, monkeypatch, caplog):
    broken = {"yes": True}
    append = Ledger.append

    def fail(self, batch):
        if broken["yes"]:
            raise OSError(28, "No space left on device")
        return append(self, batch)

    monkeypatch.setattr(Ledger, "append", fail)
    shedder = always_shedding(checkpoint, ps.Uniform(keep=0.5))
    run = shedder.start(numbers(spark, rows_per_batch=100).transform(shedder).writeStream.format("noop"))
    while not run.status.note:
        time.sleep(0.05)
    assert run.status.active
    assert not run.await_termination(1.0)  # the query goes on
    assert "batches cannot be entered in the ledger" in run.status.note
    broken["yes"] = False
    batches = finish_batches(run, 3)
    assert run.status.note == ""
    assert [batch.batch_id for batch in batches] == list(range(len(batches)))
    assert caplog.text.count("No space left on device") < 5  # said, not shouted


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
    with pytest.raises(ps.PlanLogError, match=r"made with seed=0; with another one a replayed batch would keep other"):
        start(seed=1)
    with pytest.raises(ps.PlanLogError, match=r"made with row_id=\['value'\]"):
        start(row_id="timestamp")
    assert finish_batches(start(), 1)[0].offered == 5_000
