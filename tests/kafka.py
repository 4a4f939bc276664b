"""Kafka for the tests: a broker, topics filled with known rows, and what a consumer that is not Spark reads back."""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, Producer
from pyspark.sql import SparkSession

from lab.servers.broker import Broker, broker_jars
from penstock.model.errors import EnvironmentMissingError
from penstock.spark.packages import kafka_connector


def unless_missing(start, *, what="Kafka"):
    """Do what needs Maven Central; skip the test where it is not reached, but never in CI."""
    try:
        return start()
    except EnvironmentMissingError as missing:
        if os.environ.get("CI") == "true":
            pytest.fail(f"with CI=true the tests of {what} must run: {missing}")
        pytest.skip(f"no {what}: {missing}")


@pytest.fixture(scope="session")
def kafka_jars() -> None:
    """For tests whose own processes start a broker and connect to it."""
    unless_missing(broker_jars)
    unless_missing(kafka_connector)


@pytest.fixture(scope="session")
def broker() -> Iterator[Broker]:
    started = Broker()
    unless_missing(started.__enter__)
    yield started
    started.__exit__()


@pytest.fixture(scope="session")
def kafka_spark(spark: SparkSession) -> SparkSession:
    """The session of all tests, with Spark's Kafka connector."""
    for jar in unless_missing(kafka_connector).paths:
        spark.sql(f"ADD JAR '{jar}'")
    return spark


def filled_topic(broker: Broker, counts: list[int]) -> str:
    """A new topic with so many rows in each partition; every row holds its partition and number."""
    name = f"rows-{uuid.uuid4().hex[:8]}"
    broker.create_topic(name, partitions=len(counts))
    append(broker, name, counts)
    return name


def append(broker: Broker, topic: str, counts: list[int]) -> None:
    producer = Producer({"bootstrap.servers": broker.servers, "linger.ms": 5})
    for partition, count in enumerate(counts):
        for number in range(count):
            value = json.dumps({"p": partition, "n": number})
            while True:
                try:
                    producer.produce(topic, value=value, partition=partition)
                    break
                except BufferError:
                    producer.poll(0.05)
    assert producer.flush(60) == 0


def consume_all(broker: Broker, topic: str) -> list[dict]:
    """All that a topic holds, as JSON, read without Spark."""
    settings = {
        "bootstrap.servers": broker.servers,
        "group.id": uuid.uuid4().hex,
        "auto.offset.reset": "earliest",
        "enable.partition.eof": True,
    }
    consumer = Consumer(settings)
    partitions = len(consumer.list_topics(topic, timeout=30).topics[topic].partitions)
    consumer.subscribe([topic])
    rows, ended = [], set()
    while len(ended) < partitions:
        for message in consumer.consume(10_000, timeout=1.0):
            if message.error():
                ended.add(message.partition())
            else:
                rows.append(json.loads(message.value()))
    consumer.close()
    return rows
