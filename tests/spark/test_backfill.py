"""After a burst: exact answers for every window in which rows were shed."""

import shutil
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace

import pytest
from pyspark.sql import functions as F

import penstock as ps
from penstock.cli import main
from penstock.demo.bursty import bursty_stream
from penstock.model.arrivals import Arrivals
from penstock.model.load import Cost
from tests.kafka import filled_topic
from tests.spark.streams import always_shedding, finish_batches, known_costs, numbers

pytestmark = [pytest.mark.spark, pytest.mark.slow]


def a_second():
    return F.window("arrived", "1 second")


def answers(rows):
    counted = rows.groupBy(a_second().alias("window"), "campaign").agg(
        F.sum("weight").alias("clicks"), F.sum(F.col("weight") * F.col("price")).alias("revenue")
    )
    return counted.select(F.col("window.start").alias("start"), "campaign", "clicks", "revenue")


def test_after_a_burst_every_window_is_made_exact_and_a_second_time_changes_nothing(spark, checkpoint, tmp_path):
    arrivals = Arrivals.of((2.0, 500), (2.0, 20_000), (5.0, 500))
    events = bursty_stream(spark, arrivals, epoch=time.time() + 1)
    # A millisecond a row, it says here: the burst is too much, the rest is not.
    known_costs(checkpoint, cost=Cost(fixed_seconds=0.0, kept_seconds=1e-3))
    shedder = ps.shed(latency_seconds=8, checkpoint=checkpoint, row_id="id", arrival="arrived")
    out = str(tmp_path / "out")
    kept = events.withWatermark("arrived", "1 second").transform(shedder)
    writer = answers(kept).writeStream.format("parquet").option("path", out)
    run = shedder.start(writer.trigger(processingTime="2 seconds"))
    for _ in run.watch():
        if run.status.offered == arrivals.total_tuples:
            break
    run.stop()
    assert run.status.shed > 0

    done = shedder.backfill(answers, window=a_second(), into=str(tmp_path / "backfill"))
    assert done.shed == run.status.shed
    everything = spark.read.parquet(*[str(path) for path in (tmp_path / "backfill" / "rows").iterdir()])
    assert everything.where("shed").count() == run.status.shed
    assert everything.where("shed").select("arc").distinct().collect()[0].arc == "shed"
    assert "load" in everything.where("shed").first().reason

    truth = {(row.start, row.campaign): row for row in answers(all_rows(spark, events, arrivals, tmp_path)).collect()}
    exact = {(row.start, row.campaign): row for row in done.answers.collect()}
    sampled_windows = {
        row.start for row in everything.where("sampled").select(a_second().start.alias("start")).distinct().collect()
    }
    assert {start for start, _ in exact} == sampled_windows
    assert len(sampled_windows) >= 2
    for key, row in truth.items():
        if key[0] in sampled_windows:
            assert exact[key].clicks == row.clicks
            assert exact[key].revenue == pytest.approx(row.revenue)

    corrected = done.correct(spark.read.parquet(out), on=["start"])
    for row in corrected.collect():
        assert row.clicks == truth[row.start, row.campaign].clicks

    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "backfill" / "rows").rglob("*.parquet")}
    again = shedder.backfill(answers, window=a_second(), into=str(tmp_path / "backfill"))
    assert {path: path.stat().st_mtime_ns for path in before} == before
    assert {(row.start, row.campaign): row for row in again.answers.collect()} == exact


def two_seconds():
    return F.window("timestamp", "2 seconds")


def counted(rows):
    """Two batches to a window, of a second of event time each, from 0 s on."""
    weighed = rows.groupBy(two_seconds().alias("window")).agg(F.sum("weight").alias("rows"))
    return weighed.select(F.unix_seconds("window.start").alias("start"), "rows")


def by_start(frame):
    return {row.start: row.rows for row in frame.collect()}


def first_answers(spark):
    """Wrong all over, so that it can be told which were replaced."""
    return spark.createDataFrame([(start, -1.0) for start in range(0, 8, 2)], "start BIGINT, rows DOUBLE")


def test_a_batch_that_is_gone_stops_no_other_and_its_windows_are_named_and_left_as_they_are(
    spark, checkpoint, tmp_path, monkeypatch, capsys
):
    spill = ps.Spill(str(tmp_path / "spill"), rows="all")
    shedder = always_shedding(checkpoint, ps.Uniform(keep=0.3), spill=spill)
    kept = numbers(spark, rows_per_batch=100).transform(shedder)
    run = shedder.start(kept.writeStream.format("noop"))
    finish_batches(run, 8)
    shutil.rmtree(Path(checkpoint, "offsets"))
    shutil.rmtree(next((tmp_path / "spill").glob("query=*/batch=3")))
    # Nobody knows what batch 3 held: something of the windows of batch 2, of batch 4, and what is between.
    span = {"window": two_seconds(), "until": "1970-01-01 00:00:08Z"}
    done = shedder.backfill(counted, into=str(tmp_path / "into"), **span)
    assert done.missing == (3,)
    (gap,) = done.gaps
    assert [gap.first.timestamp(), gap.last.timestamp()] == [2, 4]
    assert "batch 3 cannot be read again: Spark has dropped its offsets" in gap.reason
    assert by_start(done.answers) == {0: 200, 6: 200}
    approximate = done.approximate.select(F.unix_seconds("window.start").alias("start")).collect()
    assert {row.start for row in approximate} == {2, 4}
    corrected = done.correct(first_answers(spark), on=["start"])
    assert by_start(corrected) == {0: 200, 2: -1, 4: -1, 6: 200}

    # A stretch of time that the missing batch has no part in is exact, and only its batches are taken.
    span["since"] = datetime.fromtimestamp(6, UTC)
    done = shedder.backfill(counted, into=str(tmp_path / "into"), **span)
    assert (by_start(done.answers), done.gaps, done.batches, done.rows) == ({6: 200}, (), 2, 200)

    # From the command line: one batch more is gone, and said.
    shutil.rmtree(next((tmp_path / "spill").glob("query=*/batch=0")))
    job = SimpleNamespace(build=lambda _: (shedder, counted, two_seconds()))
    monkeypatch.setitem(sys.modules, "gap_job", job)
    command = ["backfill", "gap_job:build", "--into", str(tmp_path / "into"), "--until", span["until"]]
    assert main(command) == 0
    told = capsys.readouterr().out
    assert "batch 0 cannot be had, so windows to " in told
    assert "batch 3 cannot be had, so windows from " in told
    assert by_start(spark.read.parquet(str(tmp_path / "into" / "exact"))) == {6: 200}

    with pytest.raises(ps.InvalidInputError, match="nothing was shed in windows between since and until"):
        shedder.backfill(counted, window=two_seconds(), into=str(tmp_path / "into"), since="2999-01-01")
    with pytest.raises(ps.InvalidInputError, match="since must be a moment, got 'noon'; give a datetime"):
        shedder.backfill(counted, window=two_seconds(), into=str(tmp_path / "into"), since="noon")
    with pytest.raises(ps.InvalidInputError, match="since must lie before until"):
        shedder.backfill(counted, into=str(tmp_path / "into"), **span | {"since": "2000-01-01"})
    with pytest.raises(ps.InvalidInputError, match="window= gives int; give spans of time"):
        shedder.backfill(counted, into=str(tmp_path / "into"), **span | {"window": F.lit(0)})


def test_older_batches_whose_offsets_are_gone_do_not_stop_younger_ones(spark, checkpoint, tmp_path):
    shedder = always_shedding(checkpoint, ps.Uniform(keep=0.3))
    run = shedder.start(numbers(spark, rows_per_batch=100).transform(shedder).writeStream.format("noop"))
    finish_batches(run, 8)
    # As Spark does when it keeps the latest: the first that is left says where the next begins.
    for batch_id in range(3):
        Path(checkpoint, "offsets", str(batch_id)).unlink()
    done = shedder.backfill(counted, window=two_seconds(), into=str(tmp_path / "into"), until="1970-01-01 00:00:08Z")
    assert done.missing == (0, 1, 2, 3)
    assert [(gap.first, gap.last.timestamp()) for gap in done.gaps] == [(None, 4)]
    assert by_start(done.answers) == {6: 200}
    assert by_start(done.correct(first_answers(spark), on=["start"])) == {0: -1, 2: -1, 4: -1, 6: 200}


def all_rows(spark, events, arrivals, tmp_path):
    """The whole stream, read as Spark reads it, with nothing shed."""
    path = str(tmp_path / "whole")
    query = events.writeStream.format("parquet").option("path", path).option("checkpointLocation", f"{path}-c")
    query = query.trigger(availableNow=True).start()
    query.awaitTermination(60)
    rows = spark.read.parquet(path).withColumn("weight", F.lit(1.0))
    assert rows.count() == arrivals.total_tuples
    return rows


@pytest.mark.server
def test_what_was_not_even_read_is_backfilled_too(kafka_spark, broker, checkpoint, tmp_path):
    topic = filled_topic(broker, [20_000, 10_000])
    known_costs(checkpoint, cost=Cost(fixed_seconds=0.0, kept_seconds=2e-3, shed_seconds=1e-3))
    spill = ps.Spill(str(tmp_path / "spill"), rows="all")
    shedder = ps.shed(latency_seconds=20, checkpoint=checkpoint, row_id=["partition", "offset"], spill=spill)
    events = shedder.read_kafka(kafka_spark, servers=broker.servers, topic=topic, starting="earliest")

    def by_partition(rows):
        return rows.groupBy("partition").agg(F.sum("weight").alias("rows"))

    writer = by_partition(events.transform(shedder)).writeStream.format("noop").outputMode("update")
    (batch, *_) = finish_batches(shedder.start(writer), 1)
    assert batch.unread > 20_000
    done = shedder.backfill(by_partition, window=F.lit(0), into=str(tmp_path / "backfill"))
    assert {row.partition: row.rows for row in done.answers.collect()} == {0: 20_000, 1: 10_000}
    assert done.shed == batch.shed
    # What was read is in the spill, but nobody read the rest: the source it must be.
    assert shedder.spilled().where("batch = 0").count() == batch.read
    assert done.from_spill == 0


def test_without_anything_shed_there_is_nothing_to_backfill(spark, checkpoint, tmp_path):
    shedder = ps.shed(latency_seconds=8, checkpoint=checkpoint, row_id="id")
    with pytest.raises(ps.InvalidInputError, match="nothing was shed yet; apply this shedder"):
        shedder.backfill(answers, window=a_second(), into=str(tmp_path))
    bursty_stream(spark, Arrivals.of((1, 10)), epoch=time.time()).transform(shedder)
    with pytest.raises(ps.InvalidInputError, match="there is nothing to backfill"):
        shedder.backfill(answers, window=a_second(), into=str(tmp_path))


def test_the_command_says_what_cannot_be_imported(capsys):
    assert main(["backfill", "nowhere", "--into", "/tmp/x"]) == 2
    assert "name a function as module:function, got 'nowhere'" in capsys.readouterr().err
    assert main(["backfill", "no_such_module:build", "--into", "/tmp/x"]) == 2
    assert "cannot be imported" in capsys.readouterr().err
