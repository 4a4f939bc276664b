"""A Kafka source that can pass over ranges of offsets: shedding before reading.

Spark's own connector reads every offset of a batch. This source writes into the offset that ends a batch what share of
the batch is read, and reads blocks of that share, spread over every partition (:mod:`penstock.model.ranges`). Spark
logs offsets before a batch runs, so a replay reads the same blocks.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, ClassVar

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

from penstock.control.governor import Governor
from penstock.control.reading import Reading, decide_reading
from penstock.model.errors import EnvironmentMissingError, InvalidInputError
from penstock.spark.names import quoted
from penstock.spark.plan.log import PlanLog
from penstock.spark.sources.offsets import MILLIONTHS, READ, read_ranges, units_between
from penstock.spark.store.paths import AnyPath

SOURCE = "penstock_kafka"
ANSWER_SECONDS = 30.0
ROWS_PER_ARROW_BATCH = 20_000
# Little is fetched ahead of a block, as it would be thrown away with the next seek, and a full queue is looked at again
# after milliseconds, not after the second that is usual: 10 ms for a block of 1,000 messages in place of 500.
FETCH_AHEAD = {
    "queued.min.messages": 2_000,
    "fetch.message.max.bytes": 100_000,
    "fetch.queue.backoff.ms": 5,
    "fetch.wait.max.ms": 50,
}

Offsets = dict[str, Any]


class KafkaSource(DataSource):
    """Spark's entry point, made by :func:`kafka_source`: what it needs to know stands in the class.

    Options would say the same, but Spark prints options, in plans and on its pages, and the settings of a client and of
    a store may be secret. A class travels as bytes that nobody prints.
    """

    LABEL: ClassVar[str]
    READER: ClassVar[KafkaReader]

    @classmethod
    def name(cls) -> str:
        """Name to give to ``readStream.format``."""
        return cls.LABEL

    def schema(self) -> str:
        """Columns of Spark's own Kafka source, and the weight."""
        return (
            "key BINARY, value BINARY, topic STRING, partition INT, offset BIGINT, timestamp TIMESTAMP, "
            f"{quoted(self.READER.weight)} DOUBLE"
        )

    def streamReader(self, schema: Any) -> DataSourceStreamReader:
        """Give the reader that Spark asks for offsets and rows."""
        return self.READER


def kafka_source(reader: KafkaReader) -> type[KafkaSource]:
    """Make a source of a name of its own: a session may have several, each with a reader of its own."""
    label = f"{SOURCE}_{uuid.uuid4().hex[:12]}"
    return type(label, (KafkaSource,), {"LABEL": label, "READER": reader})


def client_settings(given: Mapping[str, Any] | None, *, servers: str) -> str:
    """Write down what the client needs; values may be secret, so what is wrong with them is said without them."""
    settings: object = {} if given is None else given
    if not isinstance(settings, Mapping):
        raise InvalidInputError(
            f"client must be a mapping of librdkafka's settings, got a value of type {type(settings).__name__}; as in "
            "client={'security.protocol': 'SSL'}"
        )
    for name, value in settings.items():
        if not isinstance(name, str) or not name.strip():
            raise InvalidInputError(f"client has a setting named {name!r}; librdkafka's names are text")
        if name == "bootstrap.servers":
            raise InvalidInputError("client names bootstrap.servers, which is what servers=... is for; give them there")
        if not isinstance(value, (str, int, float)):
            raise InvalidInputError(
                f"client has the setting {name!r} of type {type(value).__name__}; librdkafka takes text, numbers, True "
                "and False"
            )
    return json.dumps({**settings, "bootstrap.servers": servers}, sort_keys=True)


@dataclass(frozen=True, slots=True)
class Block:
    """Offsets of one partition to read one after the other, and what each stands for."""

    topic: str
    partition: int
    start: int
    end: int
    weight: float


@dataclass
class Task(InputPartition):
    """What one task reads."""

    blocks: tuple[Block, ...]


class KafkaReader(DataSourceStreamReader):
    """Say how far each partition reaches and what of it is read, on the driver; read blocks, on the executors."""

    def __init__(
        self,
        *,
        topics: tuple[str, ...],
        client: str,
        starting: str,
        log: AnyPath,
        governor: Governor,
        tasks: int,
        weight: str,
        draw: int,
    ) -> None:
        self._topics = topics
        self._client = client
        self._starting = starting
        self._log = log
        self._governor = governor
        self._tasks = tasks
        self.weight = weight
        self._draw = draw

    def initialOffset(self) -> Offsets:
        """Start a new query at the earliest or the latest offset."""
        return self._watermarks(0 if self._starting == "earliest" else 1)

    def latestOffset(self, start: Offsets, limit: Any) -> Offsets:
        """Take all that waits, and decide what of it is read."""
        begin = {topic: partitions for topic, partitions in start.items() if topic != READ}
        end = self._watermarks(1)
        for topic, partitions in end.items():
            for partition, number in partitions.items():
                known = begin.setdefault(topic, {})
                if partition not in known:
                    # A partition that was added to the topic is read from its start.
                    known[partition] = self._watermarks(0)[topic][partition]
                # A broker that comes back may know less for a moment; offsets never run backwards.
                partitions[partition] = max(number, known[partition])
        waiting = units_between(begin, end) or 0.0
        if not waiting:
            return start
        reading = self._reading(waiting)
        millionths = max(1, round(reading.keep * MILLIONTHS))
        return {**end, READ: {"from": begin, "millionths": millionths, "draw": self._draw}}

    def reportLatestOffset(self) -> Offsets:
        """Tell Spark what waits beyond the batch, so that its progress reports show the backlog."""
        return self._watermarks(1)

    def partitions(self, start: Offsets, end: Offsets) -> Sequence[InputPartition]:
        """Spread the blocks evenly over the tasks, however skewed the partitions are."""
        blocks = [
            Block(topic, partition, each.start, each.end, each.weight)
            for (topic, partition), ranges in (read_ranges(end) or {}).items()
            for each in ranges
        ]
        share = max(1, -(-sum(block.end - block.start for block in blocks) // self._tasks))
        tasks: list[list[Block]] = [[]]
        room = share
        for block in blocks:
            at = block.start
            while at < block.end:
                taken = min(room, block.end - at)
                tasks[-1].append(replace(block, start=at, end=at + taken))
                at, room = at + taken, room - taken
                if not room:
                    tasks.append([])
                    room = share
        return [Task(tuple(task)) for task in tasks if task]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read the blocks of one task."""
        assert isinstance(partition, Task)  # noqa: S101 - narrows the type for the checker
        consumer = _consumer(self._client)
        for block in partition.blocks:
            for messages in _messages(consumer, block):
                yield _to_arrow(messages, block, self.weight)

    def _reading(self, waiting: float) -> Reading:
        guidance = PlanLog(self._log).guidance()
        # It is not told which source of its query it is. Those that do not feed the shedder have none per unit.
        per_unit = max(guidance.tuples_per_unit if guidance else (), default=1.0)
        return decide_reading(self._governor, guidance, waiting_tuples=waiting * per_unit, now=time.time())

    def _watermarks(self, which: int) -> Offsets:
        from confluent_kafka import KafkaException, TopicPartition

        consumer = _consumer(self._client)
        found: Offsets = {}
        try:
            for topic in self._topics:
                described = consumer.list_topics(topic, timeout=ANSWER_SECONDS).topics[topic]
                if described.error is not None:
                    raise InvalidInputError(
                        f"the topic {topic!r} cannot be read ({described.error}); create it, or name another"
                    )
                found[topic] = {
                    str(number): consumer.get_watermark_offsets(
                        TopicPartition(topic, number), timeout=ANSWER_SECONDS, cached=False
                    )[which]
                    for number in sorted(described.partitions)
                }
        except KafkaException as cause:
            raise EnvironmentMissingError(
                f"no answer from Kafka within {ANSWER_SECONDS:.0f} s ({cause}); see that the broker runs and that its "
                "advertised address can be reached from here"
            ) from cause
        return found


def _messages(consumer: Any, block: Block) -> Iterator[list[Any]]:
    """Read a block, some thousand messages at a time."""
    from confluent_kafka import KafkaError, KafkaException, TopicPartition

    consumer.assign([TopicPartition(block.topic, block.partition, block.start)])
    at, heard_at = block.start, time.monotonic()
    while at < block.end:
        messages = consumer.consume(min(ROWS_PER_ARROW_BATCH, block.end - at), timeout=1.0)
        wanted = []
        for message in messages:
            error = message.error()
            if error is None:
                at = message.offset() + 1
                if at <= block.end:
                    wanted.append(message)
            elif error.code() == KafkaError._PARTITION_EOF:
                # The log ends here, maybe in markers of a transaction that no consumer ever sees.
                at = max(at, message.offset())
            else:
                raise KafkaException(error)
        if messages:
            heard_at = time.monotonic()
        elif time.monotonic() - heard_at > ANSWER_SECONDS:
            raise EnvironmentMissingError(
                f"partition {block.partition} of {block.topic} gave nothing from offset {at} on for "
                f"{ANSWER_SECONDS:.0f} s; see that the broker runs and that retention did not remove these offsets"
            )
        if wanted:
            yield wanted


def _to_arrow(messages: list[Any], block: Block, weight: str) -> pa.RecordBatch:
    count = len(messages)
    columns = {
        "key": pa.array([message.key() for message in messages], type=pa.binary()),
        "value": pa.array([message.value() for message in messages], type=pa.binary()),
        "topic": pa.repeat(block.topic, count),
        "partition": pa.repeat(pa.scalar(block.partition, pa.int32()), count),
        "offset": pa.array([message.offset() for message in messages], type=pa.int64()),
        "timestamp": pa.array(
            [message.timestamp()[1] * 1000 for message in messages], type=pa.timestamp("us", tz="UTC")
        ),
        weight: pa.repeat(block.weight, count),
    }
    return pa.RecordBatch.from_pydict(columns)


@lru_cache(maxsize=2)
def _consumer(client: str) -> Any:
    """Keep the connection between batches: Spark reuses its Python workers."""
    try:
        from confluent_kafka import Consumer, KafkaException
    except ImportError as cause:
        raise EnvironmentMissingError(
            "reading from Kafka with ranges passed over needs a client where the driver and the executors run; "
            "there run: pip install 'penstock[kafka]'"
        ) from cause
    settings: dict[str, Any] = json.loads(client)
    try:
        return Consumer(
            {
                **FETCH_AHEAD,
                "log_level": 2,  # errors are raised, not printed
                "group.id": "penstock",  # required by the client; nothing is ever committed to it
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                "isolation.level": "read_uncommitted",  # as in Spark's own source
                "enable.partition.eof": True,
                **settings,
            }
        )
    except (KafkaException, TypeError, ValueError) as cause:
        told = str(cause)
        # The client shows a value that it refuses, and that may be secret.
        for value in filter(None, map(str, settings.values())):
            told = told.replace(value, "***")
        raise InvalidInputError(
            f"the Kafka client refuses its settings ({told}); mend client=..., by librdkafka's names and values"
        ) from None
