"""Restarts, replays, lost counts and a controller that dies."""

import logging
import shutil
import time
from pathlib import Path

import pytest
from pyspark.sql import functions as F

import penstock as ps
from penstock.control.controller import Controller
from penstock.demo.bursty import bursty_stream
from penstock.model.arrivals import Arrivals
from penstock.model.load import Cost
from penstock.spark.plan.column import BATCH_ID
from penstock.spark.run.ledger import Ledger
from penstock.spark.store.folder import Folder
from tests.spark.streams import always_shedding, finish_batches, forget_last, known_costs, numbers

pytestmark = pytest.mark.spark


def ledger_of(checkpoint):
    return Ledger(Path(checkpoint) / "penstock" / "shed" / "ledger")


def start_sums(spark, checkpoint, keep, out):
    shedder = always_shedding(checkpoint, ps.Uniform(keep=keep))
    kept = numbers(spark).transform(shedder)
    return shedder.start(kept.writeStream.format("parquet").option("path", str(out)))


def uncommit(checkpoint):
    """Take back the last commit, as if the driver had been killed just before it."""
    last = Folder(Path(checkpoint, "commits")).ids()[-1]
    later = [number for number in Folder(Path(checkpoint, "offsets")).ids() if number > last]
    for kind, numbers_ in (("commits", [last]), ("offsets", later)):
        for number in numbers_:
            for name in (f"{number}", f".{number}.crc"):
                Path(checkpoint, kind, name).unlink(missing_ok=True)
    return last


def test_the_batch_id_that_plans_hang_on_reaches_the_tasks(spark, checkpoint):
    """The local property is internal to Spark: this pins it."""

    @F.udf("string")
    def seen(_):
        from pyspark import TaskContext

        return TaskContext.get().getLocalProperty(BATCH_ID)

    tagged = numbers(spark, rows_per_batch=10).select(seen("value").alias("batch"), F.col("value"))
    query = tagged.writeStream.format("memory").queryName("batch_ids").option("checkpointLocation", checkpoint).start()
    while (query.lastProgress or {"batchId": 0})["batchId"] < 2:
        time.sleep(0.05)
    query.stop()
    rows = spark.table("batch_ids").where("value < 30").collect()
    assert {(int(row.batch), row.value // 10) for row in rows} == {(0, 0), (1, 1), (2, 2)}


def test_a_replayed_batch_keeps_its_plan_whatever_the_plan_is_by_then(spark, checkpoint, tmp_path):
    first = finish_batches(start_sums(spark, checkpoint, 0.2, tmp_path / "out"), 3)
    last = uncommit(checkpoint)
    finish_batches(start_sums(spark, checkpoint, 0.9, tmp_path / "out"), 2)
    entered = {batch.batch_id: batch for batch in ledger_of(checkpoint).batches()}
    assert entered[last].keep == 0.2
    assert entered[max(entered)].keep == 0.9
    rows = spark.read.parquet(str(tmp_path / "out")).groupBy(F.floor(F.col("value") / 5_000).alias("b")).count()
    written = {row.b: row["count"] for row in rows.collect()}
    assert {b: entered[b].kept for b in entered} == {b: written[b] for b in entered}
    assert first[0].kept == entered[0].kept


def test_a_replay_that_the_sink_skips_is_counted_all_the_same(spark, checkpoint, tmp_path):
    """The file sink remembers batches: killed between sink and commit, it skips the replay and nothing is observed."""
    finish_batches(start_sums(spark, checkpoint, 0.2, tmp_path / "out"), 3)
    whole = list(ledger_of(checkpoint).batches())
    forget_last(ledger_of(checkpoint), 1)
    last = uncommit(checkpoint)
    assert whole[-1].batch_id == last
    finish_batches(start_sums(spark, checkpoint, 0.9, tmp_path / "out"), 2)
    (mended,) = [batch for batch in ledger_of(checkpoint).batches() if batch.batch_id == last]
    assert mended.recounted
    assert (mended.offered, mended.kept) == (whole[-1].offered, whole[-1].kept)


def test_counts_that_died_with_the_driver_are_made_again_from_the_same_offsets_and_plan(spark, checkpoint, tmp_path):
    finish_batches(start_sums(spark, checkpoint, 0.3, tmp_path / "out"), 4)
    whole = list(ledger_of(checkpoint).batches())
    forget_last(ledger_of(checkpoint), 2)
    finish_batches(start_sums(spark, checkpoint, 0.8, tmp_path / "out"), 1)
    mended = {batch.batch_id: batch for batch in ledger_of(checkpoint).batches()}
    for batch in whole:
        assert (mended[batch.batch_id].offered, mended[batch.batch_id].kept) == (batch.offered, batch.kept)
    assert [b.batch_id for b in mended.values() if b.recounted] == [b.batch_id for b in whole[-2:]]


def test_a_gap_that_can_no_longer_be_read_is_said_and_left_open(spark, checkpoint, tmp_path, caplog):
    finish_batches(start_sums(spark, checkpoint, 0.3, tmp_path / "out"), 3)
    shutil.rmtree(ledger_of(checkpoint).path)
    for name in ("0", ".0.crc"):
        Path(checkpoint, "offsets", name).unlink(missing_ok=True)
    with caplog.at_level(logging.WARNING):
        finish_batches(start_sums(spark, checkpoint, 0.3, tmp_path / "out"), 1)
    # Where batch 1 began is where batch 0 ended, so that one is lost to the ledger too.
    assert "batch 0 was committed and not entered: its rows can no longer be read" in caplog.text
    assert "batch 1 was committed and not entered: its rows can no longer be read" in caplog.text
    assert next(ledger_of(checkpoint).batches()).batch_id == 2


def test_a_controller_that_fails_leaves_the_query_keeping_all_says_so_and_comes_back(
    spark, checkpoint, monkeypatch, caplog
):
    learn, broken = Controller.learn, {"yes": True}

    def fail(*arguments, **named):
        if broken["yes"]:
            raise ArithmeticError("injected")
        learn(*arguments, **named)

    monkeypatch.setattr(Controller, "learn", fail)
    shedder = always_shedding(checkpoint, ps.Uniform(keep=0.5), grace_seconds=2.0)
    run = shedder.start(numbers(spark).transform(shedder).writeStream.format("noop"))
    reasons = []
    watched = run.watch()
    for batch in watched:
        reasons.append(batch.reason)
        if batch.keep == 1.0:
            break
    status = run.status
    broken["yes"] = False
    for batch in watched:
        if "the controller has been silent" not in batch.reason:
            break
    mended = run.status
    run.stop()
    assert "load" in reasons[0]
    assert "the controller has been silent" in reasons[-1]
    assert not status.controlled
    assert status.active
    assert "costs cannot be learned from batch" in status.note
    assert "ArithmeticError('injected')" in status.note
    assert "goes on with the last guidance for 2 s, then keeps all" in status.note
    assert "ArithmeticError('injected')" in caplog.text
    assert mended.controlled
    assert mended.note == ""
    # The counting goes on through all of it.
    entered = [batch.batch_id for batch in ledger_of(checkpoint).batches()]
    assert entered == list(range(len(run.batches)))


def test_a_cold_start_on_a_backlog_takes_a_bounded_first_batch(spark, checkpoint):
    backlog = Arrivals.of((1.0, 300_000), (60.0, 100))
    events = bursty_stream(spark, backlog, epoch=time.time() - 10)
    shedder = ps.shed(latency_seconds=5, checkpoint=checkpoint, row_id="id", arrival="arrived", probe_tuples=10_000)
    first, *_ = finish_batches(shedder.start(events.transform(shedder).writeStream.format("noop")), 2)
    assert first.offered >= 300_000
    assert 9_000 < first.kept < 11_000
    assert first.reason.startswith("cold start: costs not learned yet, trying 10,000 of 30")


def test_a_restart_after_downtime_uses_the_costs_learned_before(spark, checkpoint):
    known_costs(checkpoint, cost=Cost(fixed_seconds=0.0, kept_seconds=1e-3))
    backlog = Arrivals.of((1.0, 100_000), (60.0, 100))
    events = bursty_stream(spark, backlog, epoch=time.time() - 3600)
    shedder = ps.shed(latency_seconds=5, checkpoint=checkpoint, row_id="id")
    first, *_ = finish_batches(shedder.start(events.transform(shedder).writeStream.format("noop")), 1)
    # 2.5 s at headroom 0.8 are 2,000 tuples of a millisecond each.
    assert abs(first.keep - 2_000 / first.offered) < 0.001


def test_empty_batches_and_pauses_do_not_lock_the_controller(spark, checkpoint):
    pauses = Arrivals.of((1.0, 2_000), (2.0, 0), (1.0, 2_000), (2.0, 0), (30.0, 2_000))
    events = bursty_stream(spark, pauses, epoch=time.time() + 2)
    shedder = ps.shed(latency_seconds=30, checkpoint=checkpoint, row_id="id", arrival="arrived")
    counted = events.transform(shedder).withWatermark("arrived", "1 second").groupBy(F.window("arrived", "1 second"))
    run = shedder.start(counted.count().writeStream.format("noop").outputMode("append"))
    offered = 0
    for batch in run.watch():
        offered += batch.offered
        if offered > 8_000:
            break
    run.stop()
    assert all(batch.shed == 0 for batch in run.batches)
    assert [batch.batch_id for batch in run.batches] == [batch.batch_id for batch in ledger_of(checkpoint).batches()]
