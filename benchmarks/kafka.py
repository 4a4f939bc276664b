"""3x overload from Kafka with one hot partition: Penstock against plain Spark with ``maxOffsetsPerTrigger``.

``python -m benchmarks.kafka`` (or ``make bench ARGS=kafka``). Lag and latency are taken from outside Spark, by a
Kafka client and the files of the checkpoint, in the same way for both.
"""

from __future__ import annotations

import json
import signal
import sys
import tempfile
import threading
import time
import uuid
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

import numpy as np
from confluent_kafka import Consumer, TopicPartition
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

import penstock as ps
from lab.servers.broker import Broker
from lab.servers.producer import start_producer
from penstock.demo.clicks import answers
from penstock.model.arrivals import Arrivals
from penstock.spark.packages import kafka_connector
from penstock.spark.session import local_session
from penstock.spark.store.folder import Folder

TARGET_SECONDS = 5.0
QUIET_SECONDS, STEP_SECONDS = 10.0, 40.0
HOT = (4, 1, 1, 1)
CALIBRATION_ROWS = 120_000
CLICK = "id BIGINT, campaign STRING, price DOUBLE"


def source(spark: SparkSession, servers: str, topic: str, **options: object) -> DataFrame:
    reader = spark.readStream.format("kafka").option("kafka.bootstrap.servers", servers).option("subscribe", topic)
    return reader.options(**options).load()


def query(rows: DataFrame, weight: str) -> DataFrame:
    clicks = rows.withColumn("click", F.from_json(F.col("value").cast("string"), CLICK)).selectExpr(
        "click.*", "timestamp AS arrived", f"{weight} AS stands_for"
    )
    return answers(clicks, weight=F.col("stands_for"))


@dataclass
class Watch:
    """Follow, every tenth of a second, how far each partition reaches and how far the query has committed."""

    servers: str
    topic: str
    checkpoint: Path
    seen: list[tuple[float, list[int], list[int]]] = field(default_factory=list)
    _stop: threading.Event = field(default_factory=threading.Event)

    def __enter__(self) -> Watch:
        self._thread = threading.Thread(target=self._follow, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _follow(self) -> None:
        consumer = Consumer({"bootstrap.servers": self.servers, "group.id": "watch"})
        partitions = [TopicPartition(self.topic, number) for number in range(len(HOT))]
        first = [consumer.get_watermark_offsets(p, timeout=10, cached=False)[1] for p in partitions]
        while not self._stop.wait(0.1):
            ends = [consumer.get_watermark_offsets(p, timeout=10, cached=False)[1] for p in partitions]
            self.seen.append((time.time(), ends, self._committed() or first))
        consumer.close()

    def _committed(self) -> list[int] | None:
        commits = Folder(self.checkpoint / "commits").ids()
        text = Folder(self.checkpoint / "offsets").read(str(commits[-1])) if commits else None
        if not text:
            return None
        offsets = json.loads(text.splitlines()[-1])[self.topic]
        return [offsets[str(number)] for number in range(len(HOT))]

    def lags(self, since: float) -> np.ndarray:
        """Offsets behind, a row per look and a column per partition."""
        return np.array([np.subtract(ends, done) for at, ends, done in self.seen if at >= since])

    def latencies(self, since: float) -> np.ndarray:
        """Arrival to commit of the tuples committed meanwhile, and age of those still waiting at the end."""
        times = np.array([at for at, _, _ in self.seen])
        found = []
        for partition in range(len(HOT)):
            ends = np.array([each[partition] for _, each, _ in self.seen], dtype=float)
            done = np.array([each[partition] for _, _, each in self.seen])
            offsets = np.arange(done[0], ends[-1])
            arrived = np.interp(offsets + 1, ends, times)
            # The first look at which an offset was committed; those that never were have waited until the end.
            at = np.searchsorted(done, offsets, side="right").clip(max=len(times) - 1)
            found.append((times[at] - arrived)[arrived >= since])
        return np.concatenate(found)

    def committed_per_second(self, since: float) -> float:
        """Rows that a second of the step committed."""
        (first, _, begun), (last, _, ended) = next(each for each in self.seen if each[0] >= since), self.seen[-1]
        return float(np.sum(ended) - np.sum(begun)) / (last - first)


def peak_tuples_per_second(spark: SparkSession, broker: Broker) -> float:
    """What plain Spark takes from Kafka a second, from a backlog, once warm."""
    topic = f"calibrate-{uuid.uuid4().hex[:6]}"
    broker.create_topic(topic, partitions=len(HOT))
    backlog = Arrivals.of((1, CALIBRATION_ROWS))
    start_producer(broker.servers, topic, backlog, epoch=time.time() - 2, shares=HOT).wait()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        events = source(spark, broker.servers, topic, startingOffsets="earliest", maxOffsetsPerTrigger=20_000)
        running = _plain(events, folder)
        while running.isActive and len([r for r in running.recentProgress if r["numInputRows"]]) < 6:
            time.sleep(0.2)
        reports = [r for r in running.recentProgress if r["numInputRows"]]
        running.stop()
    return median(r["numInputRows"] / r["durationMs"]["triggerExecution"] * 1000 for r in reports[3:])


def _plain(events: DataFrame, folder: str) -> StreamingQuery:
    writer = query(events, "1.0D").writeStream.outputMode("update").format("noop")
    return writer.trigger(processingTime="1 second").option("checkpointLocation", folder).start()


def one_run(spark: SparkSession, broker: Broker, topic: str, peak: float, *, shedding: bool) -> dict[str, object]:
    """Run quiet and step once; the same topic and timetable with and without Penstock."""
    arrivals = Arrivals.of((QUIET_SECONDS, peak / 2), (STEP_SECONDS, 3 * peak))
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        if shedding:
            shedder = ps.shed(
                latency_seconds=TARGET_SECONDS, checkpoint=folder, row_id=["partition", "offset"], arrival="timestamp"
            )
            counted = query(source(spark, broker.servers, topic).transform(shedder), "weight")
            writer = counted.writeStream.outputMode("update").format("noop").trigger(processingTime="1 second")
            run = shedder.start(writer)
            running = run.query
        else:
            running = _plain(source(spark, broker.servers, topic, maxOffsetsPerTrigger=int(peak)), folder)
        time.sleep(5)
        epoch = time.time() + 1
        with Watch(broker.servers, topic, Path(folder)) as watch:
            producer = start_producer(broker.servers, topic, arrivals, epoch=epoch, shares=HOT)
            producer.wait(QUIET_SECONDS + STEP_SECONDS + 60)
        kept = 1.0
        if shedding:
            run.stop()
            after = [b for b in run.batches if b.started_at and b.started_at > epoch + QUIET_SECONDS]
            kept = sum(b.kept for b in after) / max(1, sum(b.offered for b in after))
        running.stop()
    step = epoch + QUIET_SECONDS
    lags, latencies = watch.lags(step), watch.latencies(step)
    middle, last = lags[len(lags) // 2 - 5 : len(lags) // 2 + 5].mean(axis=0), lags[-10:].mean(axis=0)
    return {
        "worst lag": lags.max(axis=0),
        "growth": (last - middle) / (STEP_SECONDS / 2),
        "p50": float(np.percentile(latencies, 50)),
        "p95": float(np.percentile(latencies, 95)),
        "kept": kept,
        "into answers": kept * watch.committed_per_second(step),
        "offered": arrivals.total_tuples,
    }


def kafka(progress: Progress, spark: SparkSession) -> Table:
    """Both runs in one table."""
    with Broker() as broker:
        task = progress.add_task("Kafka: peak, plain Spark, Penstock", total=3)
        topic = "clicks"
        broker.create_topic(topic, partitions=len(HOT))
        peak = peak_tuples_per_second(spark, broker)
        progress.advance(task)
        title = f"Kafka at 3x of plain Spark's peak ({peak:,.0f} rows/s), partition 0 four times hotter, target 5 s"
        table = Table(title=title, title_justify="left")
        for heading in (
            "run", "worst lag of partitions 0 to 3, rows", "growth of lag, rows/s", "latency p50", "p95", "kept",
            "rows/s into answers",
        ):  # fmt: skip
            table.add_column(heading, justify="right")
        names = (f"plain, maxOffsetsPerTrigger={int(peak):,}", "Penstock")
        for name, shedding in zip(names, (False, True), strict=True):
            told = one_run(spark, broker, topic, peak, shedding=shedding)
            table.add_row(
                name,
                " ".join(f"{lag:,.0f}" for lag in told["worst lag"]),  # type: ignore[attr-defined]
                " ".join(f"{lag:,.0f}" for lag in told["growth"]),  # type: ignore[attr-defined]
                f"{told['p50']:.2f} s", f"{told['p95']:.2f} s", f"{told['kept']:.1%}",
                f"{told['into answers']:,.0f}",
            )  # fmt: skip
            progress.advance(task)
    return table


def main() -> None:
    # Ended from outside, the processes that were started here must not be left behind.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    console = Console(width=150)
    jars = kafka_connector()
    settings = {"spark.jars": str(jars), "spark.sql.streaming.numRecentProgressUpdates": "2000"}
    with Progress(console=console, transient=True) as progress:
        spark = local_session(settings=settings, log_path=Path(tempfile.gettempdir()) / "penstock-bench-spark.log")
        table = kafka(progress, spark)
    console.print(jars.note)
    console.print(table)


if __name__ == "__main__":
    main()
