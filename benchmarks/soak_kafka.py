"""The soak's second part: a query on Kafka whose broker is killed and comes back, and records that nobody can read."""

from __future__ import annotations

import json
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from rich.console import Console

import penstock as ps
from benchmarks.recovery import Fault, recoveries, recovery_table
from benchmarks.soak_plan import TARGET_SECONDS
from lab.servers.broker import Broker
from lab.servers.producer import start_producer
from penstock.model.arrivals import Arrivals
from penstock.model.errors import EnvironmentMissingError
from penstock.spark.judge.sampling import row_hash, stage_seed, threshold_of
from penstock.spark.packages import kafka_connector
from penstock.spark.plan.log import PlanLog
from penstock.spark.session import local_session
from penstock.spark.sources.offsets import read_entry
from penstock.spark.store.folder import Folder

TOPIC, PARTITIONS = "clicks", 4
CLICK = "id BIGINT, campaign STRING, price DOUBLE"
# A broker that was killed takes some 15 s to start on a busy machine.
ARRIVALS = Arrivals.of((30, 2_000), (4, 100_000), (61, 2_000), (4, 100_000), (16, 2_000))
POISONED = "records that nobody can read, in a burst"
BROKER_KILLED = "the broker is killed, and started again after 5 s"
LAST_BURST = "a burst of 50 times the load, and nothing else"
SCHEDULE = ((31.0, POISONED), (45.0, BROKER_KILLED), (95.0, LAST_BURST))
POISON = (None, b"", b"\xff\xfe\x00", b'{"id":', b'{"id": "not a number"}', b"[]")
POISON_COUNT = 6_000
DOWN_SECONDS = 5.0
PATIENCE_SECONDS = 90.0


def soak_kafka(console: Console) -> bool:
    """Disturb a query on Kafka; tell whether everything held. Without Maven Central, say so and let it be."""
    try:
        jars = kafka_connector()
        with Broker() as broker, tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
            spark = local_session()
            for jar in jars.paths:
                spark.sql(f"ADD JAR '{jar}'")
            return _soak(spark, broker, folder, console)
    except EnvironmentMissingError as missing:
        console.print(f"Kafka was left out: {missing}")
        return True


def _soak(spark: SparkSession, broker: Broker, folder: str, console: Console) -> bool:
    broker.create_topic(TOPIC, partitions=PARTITIONS)
    reader = spark.readStream.format("kafka").option("kafka.bootstrap.servers", broker.servers)
    events = reader.option("subscribe", TOPIC).option("startingOffsets", "earliest").load()
    shedder = ps.shed(
        latency_seconds=TARGET_SECONDS,
        checkpoint=f"{folder}/checkpoint",
        row_id=["partition", "offset"],
        arrival="timestamp",
    )
    read = F.from_json(F.col("value").cast("string"), CLICK).getField("campaign")
    kept = events.transform(shedder).select("partition", "offset", read.isNull().alias("poisoned"), "weight")
    writer = kept.writeStream.format("parquet").option("path", f"{folder}/clicks").trigger(processingTime="1 second")
    with shedder.start(writer) as run:
        epoch = time.time() + 5
        producer = start_producer(broker.servers, TOPIC, ARRIVALS, epoch=epoch, shares=[1] * PARTITIONS)
        struck = list(_disturb(broker, epoch, console))
        producer.wait(PATIENCE_SECONDS)
        expected = _records(broker.servers)
        ends_at = time.time() + PATIENCE_SECONDS
        while run.status.offered < expected and time.time() < ends_at and run.query.isActive:
            time.sleep(0.5)
    batches = run.batches
    failures = _check(spark, folder, batches, expected)
    poisoned = spark.read.parquet(f"{folder}/clicks").where("poisoned").agg(F.sum("weight")).first()[0] or 0.0
    evidence = {POISONED: f"{poisoned:,.0f} by weight in the answers" if poisoned else ""}
    failures += [f"NOT SHOWN: {what}" for what, seen in evidence.items() if not seen]
    found = recoveries(batches, struck, target_seconds=TARGET_SECONDS)
    offered, shed = (sum(getattr(batch, name) for batch in batches) for name in ("offered", "shed"))
    console.print(
        f"Kafka: {offered:,} records in {len(batches)} batches, {POISON_COUNT:,} of them poison; {shed:,} shed"
    )
    console.print(recovery_table(found, since=epoch, target_seconds=TARGET_SECONDS, evidence=evidence))
    console.print(
        "\n".join(failures) or "just the records that the plans keep were written, each once; the ledger balances"
    )
    return not failures and all(each.is_back for each in found)


def _disturb(broker: Broker, epoch: float, console: Console) -> Iterator[Fault]:
    """Do what the schedule says; yield what was done, and when."""
    for at, what in SCHEDULE:
        time.sleep(max(0.0, epoch + at - time.time()))
        console.print(f"{time.time() - epoch:5.0f} s: {what}")
        yield Fault(what=what, at=time.time())
        if what == POISONED:
            threading.Thread(target=_poison, args=(broker.servers,), daemon=True).start()
        elif what == BROKER_KILLED:
            broker.stop(kill=True)
            time.sleep(DOWN_SECONDS)
            broker.start()


def _records(servers: str) -> int:
    """Records in the topic; a producer that tries again when its broker is gone may leave some of them twice."""
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "soak"})
    partitions = [TopicPartition(TOPIC, number) for number in range(PARTITIONS)]
    ends = [consumer.get_watermark_offsets(partition, timeout=30)[1] for partition in partitions]
    consumer.close()
    return sum(ends)


def _poison(servers: str) -> None:
    producer = Producer({"bootstrap.servers": servers})
    for number in range(POISON_COUNT):
        producer.produce(TOPIC, value=POISON[number % len(POISON)], partition=number % PARTITIONS)
        producer.poll(0)
    producer.flush(60)


def _check(spark: SparkSession, folder: str, batches: list[ps.Batch], expected: int) -> list[str]:
    """Compare what was written with what the logged plans keep of the offsets of each batch."""
    checkpoint = Path(folder) / "checkpoint"
    failures = (
        []
        if sum(batch.offered for batch in batches) == expected
        else [f"the ledger has {sum(batch.offered for batch in batches):,} records offered, the topic got {expected:,}"]
    )
    start = dict.fromkeys(map(str, range(PARTITIONS)), 0)
    entered = {batch.batch_id: batch for batch in batches}
    ranges = []
    for batch_id in Folder(checkpoint / "commits").ids():
        entry = read_entry(checkpoint, batch_id)
        assert entry is not None
        end = json.loads(entry.sources[0])[TOPIC]
        batch = entered.get(batch_id)
        if batch is None and end != start:
            failures.append(f"batch {batch_id} is committed and not in the ledger")
        if batch is not None:
            ranges += [(batch_id, int(p), start[p], end[p], threshold_of(batch.keep)) for p in end]
        start = end
    planned = spark.createDataFrame(ranges, "batch LONG, partition INT, low LONG, high LONG, threshold LONG")
    offsets = planned.where("high > low").selectExpr(
        "batch", "partition", "threshold", "explode(sequence(low, high - 1)) AS offset"
    )
    stage = stage_seed(PlanLog(checkpoint / "penstock" / "shed").salt(), seed=0)
    kept = offsets.where(row_hash([F.col("partition"), F.col("offset")], stage) < F.col("threshold"))
    written = spark.read.parquet(f"{folder}/clicks").select("partition", "offset")
    for what, one, other in (("lost", kept, written), ("not in its plan", written, kept)):
        count = one.select("partition", "offset").exceptAll(other.select("partition", "offset")).count()
        if count:
            failures.append(f"{count:,} records: {what}, or written twice")
    for row in kept.groupBy("batch").count().collect():
        if entered[row.batch].kept != row["count"]:
            failures.append(
                f"batch {row.batch}: the ledger has {entered[row.batch].kept} kept, its plan {row['count']}"
            )
    return failures
