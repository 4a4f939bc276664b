"""Count clicks from one Kafka topic into another through a burst: ``python examples/kafka_to_kafka.py``.

Starts a broker of its own on loopback (``--servers`` takes yours), fills a topic of four partitions, one of them four
times hotter, and reads the answers back with a consumer that is not Spark. Takes a minute and a half.
"""

import argparse
import contextlib
import json
import signal
import sys
import tempfile
import time
import uuid
from collections import Counter
from pathlib import Path

import numpy as np
from confluent_kafka import Consumer
from pyspark.sql import functions as F

import penstock as ps
from lab.servers.broker import Broker
from lab.servers.producer import SEED, start_producer
from penstock.demo.bursty import click_columns
from penstock.model.arrivals import Arrivals
from penstock.spark.packages import kafka_connector

WINDOW_SECONDS = 5
CLICK = "id BIGINT, campaign STRING, price DOUBLE"
HOT = (4, 1, 1, 1)


def main(
    servers: str | None = None,
    *,
    seconds: float = 8.0,
    warm_up_seconds: float = 20.0,
    burst_rows_per_second: float = 50_000,
    record: Path | None = None,
) -> None:
    jars = kafka_connector()
    print(jars.note or "Spark's Kafka connector is that of the installed Spark")
    spark = ps.local_session(settings={"spark.jars": str(jars)})
    # First Java compiles and costs are learned; the last phase moves the watermark past the windows that are checked.
    timetable = Arrivals.of(
        (warm_up_seconds, 500), (seconds, 2_000), (seconds, burst_rows_per_second), (seconds, 2_000), (12, 500)
    )
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(ignore_cleanup_errors=True))
        broker = None if servers else stack.enter_context(Broker())
        if broker:
            servers = broker.servers
            broker.create_topic("clicks", partitions=4)
            broker.create_topic("answers", partitions=1)
            print(f"a broker listens on {servers}")

        events = (
            spark.readStream.format("kafka")
            .option("kafka.bootstrap.servers", servers)
            .option("subscribe", "clicks")
            .load()
        )
        shedder = ps.shed(
            latency_seconds=5,  # arrival to commit
            checkpoint=f"{folder}/checkpoint",
            row_id=["partition", "offset"],  # what identifies a row; its hash decides
            arrival="timestamp",  # when it arrived, to measure the latency
        )
        counts = (
            # The watermark comes first: rows that are shed move it too, or windows would not close.
            events.withWatermark("timestamp", "5 seconds")
            .transform(shedder)
            .withColumn("click", F.from_json(F.col("value").cast("string"), CLICK))
            .groupBy(F.window("timestamp", f"{WINDOW_SECONDS} seconds"), "click.campaign")
            .agg(F.sum("weight").alias("clicks"), F.count("*").alias("rows"))
            .select(
                F.to_json(F.struct(F.col("window.start").alias("start"), "campaign", "clicks", "rows")).alias("value")
            )
        )
        writer = (
            counts.writeStream.format("kafka").option("kafka.bootstrap.servers", servers).option("topic", "answers")
        )
        with shedder.start(writer.trigger(processingTime="1 second")) as run:
            next(run.watch(), None) if run.query.lastProgress else time.sleep(5)  # the first batch sets things up
            epoch = time.time() + 1
            producer = start_producer(servers, "clicks", timetable, epoch=epoch, shares=HOT)
            offered = 0
            for batch in run.watch():
                offered += batch.offered
                latency = f"{batch.latency_seconds:.1f} s" if batch.latency_seconds else "-"
                print(
                    f"{batch.batch_id:3d}  offered {batch.offered:7,}  kept {batch.kept:7,}  {latency}  {batch.reason}"
                )
                if offered >= timetable.total_tuples:
                    break
            producer.wait()
            time.sleep(3)  # the batch without rows that follows writes what the watermark closed
        print(run.status)
        verify(servers, timetable, epoch)
        if record:
            burst = (warm_up_seconds + seconds, warm_up_seconds + 2 * seconds)
            record.write_text(json.dumps(told(run.batches, epoch, burst)), encoding="utf-8")
    spark.stop()


def told(batches: list[ps.Batch], epoch: float, burst: tuple[float, float]) -> dict:
    """Lay out what each batch did: started, offered, kept, seconds, seconds beside its own job."""
    return {
        "about": "examples/kafka_to_kafka.py: seconds since the first click",
        "latency_seconds": 5.0,
        "trigger_seconds": 1.0,
        "burst_seconds": burst,
        "batches": [
            [
                round(batch.started_at - epoch, 2),
                batch.offered,
                batch.kept,
                batch.duration_seconds,
                batch.overhead_seconds,
            ]
            for batch in batches
            if batch.offered and batch.duration_seconds and batch.started_at > epoch
        ],
    }


def verify(servers: str, timetable: Arrivals, epoch: float) -> None:
    """Read the answers with another client and compare them with the truth."""
    answers = read_back(servers)
    found = Counter((answer["start"], answer.get("campaign")) for answer in answers)
    doubled = sum(count > 1 for count in found.values())
    ids = np.arange(timetable.total_tuples)
    campaigns, _ = click_columns(ids, SEED)
    arrived = np.floor((epoch + timetable.arrival_seconds(ids)) * 1000) / 1000
    truth = Counter(zip((arrived // WINDOW_SECONDS).astype(int).tolist(), campaigns.tolist(), strict=True))
    windows: dict[int, list[float]] = {}
    for answer in answers:
        start = int(np.datetime64(answer["start"].removesuffix("Z"), "s").astype(int)) // WINDOW_SECONDS
        counted = windows.setdefault(start, [0.0, 0.0, 0.0])
        counted[0] += answer["clicks"]
        counted[1] += answer["rows"]
        counted[2] += truth[start, int(answer["campaign"].removeprefix("campaign-"))]
    print("verified without Spark: window, weighted clicks, rows they rest on, clicks in truth, off by")
    for start in sorted(windows):
        clicks, rows, true = windows[start]
        print(f"  {start * WINDOW_SECONDS}  {clicks:12,.0f}  {rows:9,.0f}  {true:9,.0f}  {abs(clicks / true - 1):.2%}")
    shed_windows = [clicks / rows for clicks, rows, _ in windows.values() if clicks > 1.01 * rows]
    print(f"{len(answers)} answers, {doubled} of them doubled; {len(shed_windows)} windows rest on weights above 1")


def read_back(servers: str) -> list[dict]:
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": uuid.uuid4().hex,
            "auto.offset.reset": "earliest",
            "enable.partition.eof": True,
        }
    )
    consumer.subscribe(["answers"])
    answers: list[dict] = []
    while True:
        for message in consumer.consume(10_000, timeout=1.0):
            if message.error():
                consumer.close()
                return answers
            answers.append(json.loads(message.value()))


if __name__ == "__main__":
    # Ended from outside, the processes that were started here must not be left behind.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--servers", help="addresses of a broker that has the topics 'clicks' (4 partitions) and 'answers'"
    )
    parser.add_argument("--seconds", type=float, default=8.0, help="length of each of the three phases")
    parser.add_argument("--burst", type=float, default=50_000, help="rows a second in the burst (default: %(default)g)")
    parser.add_argument("--json", type=Path, help="where to write what each batch did")
    given = parser.parse_args()
    main(given.servers, seconds=given.seconds, burst_rows_per_second=given.burst, record=given.json)
