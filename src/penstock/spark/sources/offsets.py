"""Read how far a batch reaches from Spark's offset log, before the batch runs.

Spark writes ``offsets/N`` ahead of batch N. Where offsets count tuples (Kafka, queues, most custom sources) the size of
the batch is thus known when its plan is made, and a burst is met in its very first batch.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from penstock.model.ranges import OffsetRange, sampled_ranges
from penstock.spark.store.folder import folder_at
from penstock.spark.store.paths import AnyPath

# Fields of an offset that count tuples. Any other field (a time, a version, a file number) says nothing about them.
COUNTING = frozenset({"offset", "tuples"})
# How Penstock's own Kafka source writes down, in the offset that ends a batch, what of the batch it reads.
READ = "read"
MILLIONTHS = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetEntry:
    """One entry of Spark's offset log: when the batch was put together, and where watermark and sources stood."""

    batch_seconds: float
    sources: tuple[str, ...]
    watermark_micros: int = 0


def read_entry(checkpoint: AnyPath, batch_id: int) -> OffsetEntry | None:
    """Read the offsets of a batch; None if there are none, or in a form that is not known."""
    text = folder_at(checkpoint / "offsets").read(str(batch_id))
    lines = text.splitlines() if text else []
    if len(lines) < 3 or lines[0] != "v1":
        return None
    try:
        told = json.loads(lines[1])
        batch_ms, watermark_ms = told["batchTimestampMs"], told.get("batchWatermarkMs", 0)
    except (ValueError, KeyError):
        return None
    return OffsetEntry(batch_seconds=batch_ms / 1000, watermark_micros=watermark_ms * 1_000, sources=tuple(lines[2:]))


def units_between(start: Any, end: Any) -> float | None:
    """Count the units from one offset to another of the same source; None where offsets do not count tuples.

    >>> units_between('{"clicks":{"0":100,"1":40}}', '{"clicks":{"0":150,"1":45}}')
    55.0
    >>> units_between(None, '{"tuples": 40}'), units_between('{"logOffset":3}', '{"logOffset":4}')
    (40.0, None)

    A Kafka topic seldom starts at zero, so without its start there is no telling:

    >>> units_between(None, '{"clicks":{"0":150}}') is None
    True
    """
    counted = _leaves(end)
    if counted is None:
        return None
    if start in (None, "-"):
        nested = any(len(path) > 1 for path in counted)
        return None if nested else float(sum(counted.values()))
    before = _leaves(start)
    if before is None:
        return None
    return float(sum(max(0, number - before.get(path, number)) for path, number in counted.items()))


def partition_units(start: Any, end: Any) -> dict[str, int]:
    """Count the units from one offset to another by partition; empty where there are no partitions.

    >>> partition_units('{"clicks":{"0":100,"1":40}}', '{"clicks":{"0":150,"1":45}}')
    {'clicks-0': 50, 'clicks-1': 5}
    """
    before, counted = _leaves(start) or {}, _leaves(end) or {}
    return {
        "-".join(path): max(0, number - before.get(path, number))
        for path, number in counted.items()
        if len(path) > 1 and start not in (None, "-")
    }


def read_ranges(end: Any) -> dict[tuple[str, int], list[OffsetRange]] | None:
    """List, by topic and partition, what the batch that ends here reads; None where a source reads all.

    >>> half = '{"clicks":{"0":6000},"read":{"from":{"clicks":{"0":2000}},"millionths":500000,"draw":7}}'
    >>> sum(len(each) for each in read_ranges(half)["clicks", 0])
    2000
    """
    offset = _parsed(end)
    if not isinstance(offset, dict) or READ not in offset:
        return None
    keep, draw = offset[READ]["millionths"] / MILLIONTHS, offset[READ]["draw"]
    return {
        (topic, int(partition)): sampled_ranges(
            start, offset[topic][partition], keep=keep, salt=f"{draw}:{topic}-{partition}"
        )
        for topic, partitions in offset[READ]["from"].items()
        for partition, start in partitions.items()
    }


def start_in(end: Any) -> str | None:
    """Find where a batch starts in the offset that ends it; None for sources that do not say."""
    offset = _parsed(end)
    return json.dumps(offset[READ]["from"]) if isinstance(offset, dict) and READ in offset else None


def read_whole(end: str) -> str:
    """Change an offset that ends a batch so that all of the batch is read."""
    offset = _parsed(end)
    if not isinstance(offset, dict) or READ not in offset:
        return end
    return json.dumps({**offset, READ: {**offset[READ], "millionths": MILLIONTHS}})


def unread_units(end: Any) -> int:
    """Count the units of a batch that its source passes over unread."""
    ranges = read_ranges(end)
    if ranges is None:
        return 0
    covered = units_between(start_in(end), end) or 0.0
    return int(covered) - sum(len(each) for partition in ranges.values() for each in partition)


def initial_offsets(checkpoint: AnyPath, entry: OffsetEntry) -> tuple[str | None, ...]:
    """Find where each source stood before the first batch; None for those that do not write it down.

    Spark's Kafka source keeps it in ``sources/<number>/0``, the source of Penstock in the offset itself.
    """
    starts = []
    for number, end in enumerate(entry.sources):
        text = folder_at(checkpoint / "sources" / str(number)).read("0") or ""
        # A zero byte and a version come before the offset.
        _, brace, rest = text.partition("{")
        starts.append(start_in(end) or (brace + rest if brace and "\n" in _ else None))
    return tuple(starts)


def batch_units(
    before: OffsetEntry | None, entry: OffsetEntry, *, initial: tuple[str | None, ...] | None = None
) -> tuple[float | None, ...]:
    """Count the units that a batch reads by source, with None where that cannot be told.

    ``initial`` is where the sources stood before the first batch. Empty where they are not those of the batch before.
    """
    starts = before.sources if before else initial or (None,) * len(entry.sources)
    if len(starts) != len(entry.sources):
        return ()
    return tuple(read_units(start, end) for start, end in zip(starts, entry.sources, strict=True))


def read_units(start: str | None, end: str | None) -> float | None:
    """Count the units that a source reads between two offsets; None where its offsets do not tell.

    >>> read_units('{"logOffset":3}', '{"logOffset":3}'), read_units('{"logOffset":3}', '{"logOffset":4}')
    (0.0, None)
    """
    if end in (None, "-") or start == end:
        return 0.0
    units = units_between(start_in(end) if start in (None, "-") else start, end)
    return None if units is None else units - unread_units(end)


def _leaves(offset: Any) -> dict[tuple[str, ...], int] | None:
    """Pick the counts out of an offset: a bare number, a counting field, or Kafka's {topic: {partition: number}}."""
    offset = _parsed(offset)
    if _is_count(offset):
        return {(): offset}
    if not isinstance(offset, dict):
        return None
    counted: dict[tuple[str, ...], int] = {}
    for name, value in offset.items():
        if name in COUNTING and _is_count(value):
            counted[name,] = value
        elif isinstance(value, dict) and all(key.isdigit() and _is_count(number) for key, number in value.items()):
            counted |= {(name, partition): number for partition, number in value.items()}
    return counted or None


def _parsed(offset: Any) -> Any:
    if not isinstance(offset, str):
        return offset
    try:
        return json.loads(offset)
    except ValueError:
        return None


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
