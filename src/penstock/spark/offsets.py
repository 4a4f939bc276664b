"""Read how far a batch reaches from Spark's offset log, before the batch runs.

Spark writes ``offsets/N`` ahead of batch N. Where offsets count tuples (Kafka, queues, most custom sources) the size of
the batch is thus known when its plan is made, and a burst is met in its very first batch.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from penstock.spark.storage import Folder

# Fields of an offset that count tuples. Any other field (a time, a version, a file number) says nothing about them.
COUNTING = frozenset({"offset", "tuples"})


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetEntry:
    """One entry of Spark's offset log: when the batch was put together, and where each source stood."""

    batch_seconds: float
    sources: tuple[str, ...]


def read_entry(checkpoint: Path, batch_id: int) -> OffsetEntry | None:
    """Read the offsets of a batch; None if there are none, or in a form that is not known."""
    text = Folder(checkpoint / "offsets").read(str(batch_id))
    lines = text.splitlines() if text else []
    if len(lines) < 3 or lines[0] != "v1":
        return None
    try:
        batch_ms = json.loads(lines[1])["batchTimestampMs"]
    except (ValueError, KeyError):
        return None
    return OffsetEntry(batch_seconds=batch_ms / 1000, sources=tuple(lines[2:]))


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


def batch_units(before: OffsetEntry | None, entry: OffsetEntry) -> float | None:
    """Count the units that a batch covers over all its sources."""
    starts = before.sources if before else (None,) * len(entry.sources)
    if len(starts) != len(entry.sources):
        return None
    units = [units_between(start, end) for start, end in zip(starts, entry.sources, strict=True) if end != "-"]
    known = [unit for unit in units if unit is not None]
    return sum(known) if known and len(known) == len(units) else None


def _leaves(offset: Any) -> dict[tuple[str, ...], int] | None:
    """Pick the counts out of an offset: a bare number, a counting field, or Kafka's {topic: {partition: number}}."""
    if isinstance(offset, str):
        try:
            offset = json.loads(offset)
        except ValueError:
            return None
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


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
