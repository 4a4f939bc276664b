"""Spark's own Kafka connector, and the source that passes ranges of offsets over, against a real broker."""

import shutil
from pathlib import Path

import pytest
from confluent_kafka import Producer
from pyspark.sql import functions as F

import penstock as ps
from penstock.model.load import Cost
from penstock.spark.judge.sampling import row_hash, threshold_of
from penstock.spark.run.ledger import Ledger
from penstock.spark.sources.offsets import read_ranges
from penstock.spark.store.folder import Folder
from tests.kafka import append, consume_all, filled_topic
from tests.spark.streams import always_shedding, finish_batches, known_costs, stage_of

pytestmark = [pytest.mark.spark, pytest.mark.server, pytest.mark.slow]

HOT = [4_000, 1_000, 1_000, 1_000]


def from_kafka(spark, broker, topic, **options):
    reader = spark.readStream.format("kafka").option("kafka.bootstrap.servers", broker.servers)
    return reader.option("subscribe", topic).options(**options).load()


def ledger_of(checkpoint):
    return list(Ledger(Path(checkpoint) / "penstock" / "shed" / "ledger").batches())


def test_a_new_query_at_earliest_takes_a_bounded_first_batch(kafka_spark, broker, checkpoint):
    topic = filled_topic(broker, HOT)
    shedder = ps.shed(
        latency_seconds=5,
        checkpoint=checkpoint,
        row_id=["partition", "offset"],
        arrival="timestamp",
        probe_tuples=2_000,
    )
    kept = from_kafka(kafka_spark, broker, topic, startingOffsets="earliest").transform(shedder)
    first, *_ = finish_batches(shedder.start(kept.writeStream.format("noop")), 1)
    assert first.offered == 7_000
    assert 1_800 < first.kept < 2_200
    assert first.reason == "cold start: costs not learned yet, trying 2,000 of 7,000 tuples"


def test_a_partition_that_is_hotter_or_behind_is_seen_while_the_total_looks_fine(kafka_spark, broker, checkpoint):
    topic = filled_topic(broker, [10, 10, 10, 10])

    def start():
        shedder = ps.shed(latency_seconds=30, checkpoint=checkpoint, row_id=["partition", "offset"])
        source = from_kafka(kafka_spark, broker, topic, startingOffsets="earliest", maxOffsetsPerTrigger=3_500)
        return shedder.start(source.transform(shedder).writeStream.format("noop").trigger(processingTime="1 minute"))

    finish_batches(start(), 1)
    append(broker, topic, HOT)  # while nobody reads, or a batch might begin in the middle of it
    run = start()
    second = next(run.watch())
    told = str(run.status)
    run.stop()
    assert second.partition_offered[f"{topic}-0"] == pytest.approx(2_000, abs=10)
    assert second.partition_backlog[f"{topic}-0"] == pytest.approx(2_000, abs=10)
    assert second.backlog_tuples == pytest.approx(3_500, abs=10)
    assert f"partition {topic}-0 brought 4.0 times as much as the others" in told
    assert f"partition {topic}-0 is behind by 4.0 times as much as the others" in told


def test_what_kafka_gets_is_what_the_plan_keeps_without_duplicates(kafka_spark, broker, checkpoint):
    """A consumer that is not Spark reads the answers back: ids, weights, no duplicates."""
    topic, out = filled_topic(broker, HOT), filled_topic(broker, [0])
    shedder = always_shedding(checkpoint, ps.Uniform(keep=0.25), row_id=["partition", "offset"])
    kept = from_kafka(kafka_spark, broker, topic, startingOffsets="earliest").transform(shedder)
    answers = kept.select(F.to_json(F.struct("partition", "offset", "weight")).alias("value"))
    writer = answers.writeStream.format("kafka").option("kafka.bootstrap.servers", broker.servers).option("topic", out)
    (batch, *_) = finish_batches(shedder.start(writer), 1)
    rows = consume_all(broker, out)
    ids = [(row["partition"], row["offset"]) for row in rows]
    assert len(set(ids)) == len(ids) == batch.kept
    assert {row["weight"] for row in rows} == {4.0}
    assert sum(row["weight"] for row in rows) == pytest.approx(7_000, rel=0.1)


def test_a_backlog_too_large_to_read_is_passed_over_in_part_and_counted(kafka_spark, broker, checkpoint):
    topic = filled_topic(broker, [40_000, 10_000, 10_000, 10_000])
    # Reading and dropping a row is said to take a millisecond: 70,000 of them are hopeless.
    known_costs(checkpoint, cost=Cost(fixed_seconds=0.0, kept_seconds=2e-3, shed_seconds=1e-3))
    shedder = ps.shed(
        latency_seconds=20, checkpoint=checkpoint, row_id=["partition", "offset"], policy=ps.Uniform(keep=1.0)
    )
    events = shedder.read_kafka(kafka_spark, servers=broker.servers, topic=topic, starting="earliest")
    counted = (
        events.transform(shedder).groupBy("partition").agg(F.sum("weight").alias("rows"), F.count("*").alias("read"))
    )
    writer = counted.writeStream.format("memory").queryName("passed_over").outputMode("complete")
    (batch, *_) = finish_batches(shedder.start(writer), 1)
    assert batch.offered == 70_000 == batch.kept + batch.shed
    assert batch.read == batch.kept == pytest.approx(4_000, abs=130)  # half of 0.8 times 10 s
    assert batch.unread == 66_000 + 4_000 - batch.read
    answers = {row.partition: row for row in kafka_spark.table("passed_over").collect()}
    # Weights make up for what was not read, partition by partition, exactly: no row was dropped after reading.
    assert {p: round(row.rows) for p, row in answers.items()} == {0: 40_000, 1: 10_000, 2: 10_000, 3: 10_000}
    assert sum(row.read for row in answers.values()) == batch.read


def test_a_replay_reads_the_same_ranges_and_lost_counts_are_made_again_with_what_was_not_read(
    kafka_spark, broker, checkpoint, tmp_path
):
    topic = filled_topic(broker, [30_000, 10_000])
    known_costs(checkpoint, cost=Cost(fixed_seconds=0.0, kept_seconds=2e-3, shed_seconds=1e-3))

    def start():
        shedder = ps.shed(latency_seconds=20, checkpoint=checkpoint, row_id=["partition", "offset"])
        events = shedder.read_kafka(kafka_spark, servers=broker.servers, topic=topic, starting="earliest")
        kept = events.transform(shedder).select("partition", "offset", "weight")
        return shedder.start(kept.writeStream.format("parquet").option("path", str(tmp_path / "out")))

    finish_batches(start(), 1)
    (before,) = ledger_of(checkpoint)
    shutil.rmtree(Path(checkpoint) / "penstock" / "shed" / "ledger")
    append(broker, topic, [100, 100])
    finish_batches(start(), 1)
    after = ledger_of(checkpoint)
    assert after[0].recounted
    for name in ("offered", "kept", "shed", "unread"):
        assert getattr(after[0], name) == getattr(before, name)
    assert after[1].offered == 200
    end = (Folder(Path(checkpoint) / "offsets").read("0") or "").splitlines()[-1]
    blocks = {partition: ranges for (_, partition), ranges in read_ranges(end).items()}
    rows = kafka_spark.read.parquet(str(tmp_path / "out")).where(
        "offset < (CASE partition WHEN 0 THEN 30000 ELSE 10000 END)"
    )
    kept = {(row.partition, row.offset) for row in rows.collect()}
    assert len(kept) == before.kept
    assert all(any(each.start <= offset < each.end for each in blocks[partition]) for partition, offset in kept)


def test_freshness_recovers_though_every_row_of_a_batch_was_dropped(kafka_spark, broker, checkpoint):
    topic = filled_topic(broker, HOT)
    known_costs(checkpoint, cost=Cost(fixed_seconds=0.0, kept_seconds=1.0, shed_seconds=0.0))
    shedder = ps.shed(
        latency_seconds=20,
        checkpoint=checkpoint,
        row_id=["partition", "offset"],
        arrival="timestamp",
        policy=ps.Uniform(keep=0.0, min_keep=0.0),
    )
    source = from_kafka(kafka_spark, broker, topic, startingOffsets="earliest")
    run = shedder.start(source.transform(shedder).writeStream.format("noop"))
    watched = run.watch()
    first = next(watched)
    append(broker, topic, [1, 1, 1, 1])
    after = next(watched)
    run.stop()
    assert (first.offered, first.kept) == (7_000, 0)
    assert after.offered <= 4  # nothing of the burst is left
    assert after.committed_at - after.latency_seconds > first.started_at  # its oldest row came after the burst


def test_a_start_that_is_not_known_is_refused(kafka_spark, broker, checkpoint):
    shedder = ps.shed(latency_seconds=5, checkpoint=checkpoint, row_id=["partition", "offset"])
    with pytest.raises(ps.InvalidInputError, match="starting must be 'latest' or 'earliest', got 'first'"):
        shedder.read_kafka(kafka_spark, servers=broker.servers, topic="nowhere", starting="first")


def test_a_broker_that_is_killed_and_comes_back_loses_and_doubles_nothing(kafka_spark, broker, checkpoint, tmp_path):
    topic = filled_topic(broker, [500, 500])
    shedder = always_shedding(checkpoint, ps.Uniform(keep=0.5), row_id=["partition", "offset"])
    source = from_kafka(kafka_spark, broker, topic, startingOffsets="earliest")
    kept = source.transform(shedder).select("partition", "offset")
    run = shedder.start(kept.writeStream.format("parquet").option("path", str(tmp_path / "out")))
    watched = run.watch()
    next(watched)
    broker.stop(kill=True)
    broker.start()
    append(broker, topic, [500, 500])
    while run.status.offered < 2_000:
        next(watched)
    run.stop()
    assert run.status.offered == 2_000
    written = kafka_spark.read.parquet(str(tmp_path / "out")).collect()
    # What an undisturbed run with the same plans writes: every plan keeps half.
    offsets = kafka_spark.range(1_000).selectExpr("explode(array(0, 1)) AS partition", "id AS offset")
    kept = offsets.where(row_hash([F.col("partition"), F.col("offset")], stage_of(checkpoint)) < threshold_of(0.5))
    assert sorted(written) == sorted(kept.collect())
    assert len(written) == run.status.kept


@pytest.mark.parametrize("own", [False, True])
def test_poison_records_are_counted_like_any_other(kafka_spark, broker, checkpoint, own):
    """Tombstones, bytes that are no text and text that is no JSON: the query sees nulls, and the ledger balances."""
    topic = filled_topic(broker, [100])
    producer = Producer({"bootstrap.servers": broker.servers})
    for poison in (None, b"", b"\xff\xfe\x00", b'{"p":', b'{"p": "not a number"}'):
        producer.produce(topic, value=poison, partition=0)
    producer.flush(30)
    shedder = ps.shed(latency_seconds=30, checkpoint=checkpoint, row_id=["partition", "offset"], arrival="timestamp")
    if own:
        events = shedder.read_kafka(kafka_spark, servers=broker.servers, topic=topic, starting="earliest")
    else:
        events = from_kafka(kafka_spark, broker, topic, startingOffsets="earliest")
    parsed = events.transform(shedder).select(F.from_json(F.col("value").cast("string"), "p INT, n INT").p.alias("p"))
    name = f"poisoned_{own}"
    counted = parsed.groupBy("p").count().writeStream.format("memory").queryName(name).outputMode("complete")
    (batch, *_) = finish_batches(shedder.start(counted), 1)
    assert batch.offered == batch.kept == 105
    assert {row.p: row["count"] for row in kafka_spark.table(name).collect()} == {0: 100, None: 5}
