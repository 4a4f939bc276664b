"""After a burst: exact answers for every window in which rows were shed."""

import time

import pytest
from pyspark.sql import functions as F

import penstock as ps
from penstock.cli import main
from penstock.demo.bursty import bursty_stream
from penstock.model.arrivals import Arrivals
from tests.kafka import filled_topic
from tests.spark.streams import finish_batches, known_costs

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
    known_costs(checkpoint, cost=ps.Cost(fixed_seconds=0.0, kept_seconds=1e-3))
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
    known_costs(checkpoint, cost=ps.Cost(fixed_seconds=0.0, kept_seconds=2e-3, shed_seconds=1e-3))
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
