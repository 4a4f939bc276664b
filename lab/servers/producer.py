"""Fill a Kafka topic with clicks by a timetable, in a process of its own; some partitions may be hotter than others."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Sequence
from itertools import chain, repeat

import numpy as np

from penstock.demo.bursty import click_columns
from penstock.model.arrivals import Arrivals

ROWS_PER_SLICE = 2_000
SEED = 7


def start_producer(
    servers: str, topic: str, arrivals: Arrivals, *, epoch: float, shares: Sequence[int] = (1,)
) -> subprocess.Popen[bytes]:
    """Start a process that produces every click when its time has come; ``shares`` says how hot each partition is.

    Clicks carry the time of their arrival in the timetable as their Kafka timestamp, so the truth can be computed.
    """
    phases = [[phase.seconds, phase.tuples_per_second] for phase in arrivals.phases]
    command = [sys.executable, "-m", "lab.servers.producer", servers, topic]
    command += [json.dumps(phases), repr(epoch), json.dumps(list(shares))]
    return subprocess.Popen(command)


def partition_pattern(shares: Sequence[int]) -> list[int]:
    """Lay out the partitions of successive clicks.

    >>> partition_pattern((3, 1))
    [0, 0, 0, 1]
    """
    return list(chain.from_iterable(repeat(number, share) for number, share in enumerate(shares)))


def produce(servers: str, topic: str, arrivals: Arrivals, *, epoch: float, shares: Sequence[int]) -> None:
    """Produce the whole timetable; what is late is produced at once."""
    from confluent_kafka import Producer

    producer = Producer(
        {
            "bootstrap.servers": servers,
            "linger.ms": 20,
            "queue.buffering.max.messages": 1_000_000,
            "compression.type": "lz4",
            "log_level": 2,  # a broker that is away is tried again, and not worth a line each time
        }
    )
    pattern = partition_pattern(shares)
    done = 0
    while done < arrivals.total_tuples:
        due = min(arrivals.count_at(max(0.0, time.time() - epoch)), done + ROWS_PER_SLICE)
        if due == done:
            producer.poll(0.005)
            continue
        ids = np.arange(done, due, dtype=np.int64)
        campaigns, prices = click_columns(ids, SEED)
        millis = ((epoch + arrivals.arrival_seconds(ids)) * 1000).astype(np.int64)
        for number, campaign, price, milli in zip(
            ids.tolist(), campaigns.tolist(), prices.tolist(), millis.tolist(), strict=True
        ):
            value = f'{{"id":{number},"campaign":"campaign-{campaign:02d}","price":{price:.4f}}}'
            producer.produce(topic, value=value, partition=pattern[number % len(pattern)], timestamp=milli)
        producer.poll(0)
        done = due
    producer.flush(60)


def main() -> None:
    """Produce what the command line says; see :func:`start_producer`."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("servers", "topic", "phases", "epoch", "shares"):
        parser.add_argument(name)
    given = parser.parse_args()
    arrivals = Arrivals.of(*(tuple(phase) for phase in json.loads(given.phases)))
    produce(given.servers, given.topic, arrivals, epoch=float(given.epoch), shares=json.loads(given.shares))


if __name__ == "__main__":
    main()
