"""Native sampling: a hash of the row's id against a threshold, which may depend on the row's key.

A keep rate becomes the threshold ``round(keep * 2**53)``; a row survives if 53 bits of the hash of its id lie below
it. That needs no random state, does not depend on the order of rows, and gives the same answer on every replay.
The hash takes in which stage draws: within a stage, a lower rate keeps a part of what a higher one keeps; two stages
draw independently, so that the product of their weights is right.

Rates per key travel as a two-choice (cuckoo) hash table in two flat arrays: whatever the number of keys, a row looks
at two slots, in generated code. A map would be searched from end to end for every row.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, reduce

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import xxhash
from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F

from penstock.model.errors import InvalidInputError
from penstock.model.plan import Plan

BITS = 53  # a double holds every threshold exactly
WHOLE = 1 << BITS
SPARK_SEED = 42  # the seed of Spark's xxhash64
KEY_SEPARATOR = "\x1f"  # between the columns of a compound key: ASCII's unit separator
# Stands for the one group of all rows without a key, among hashes; a key that hashes to it would share its rate.
NO_KEY = -(2**63)


def threshold_of(keep: float) -> int:
    """Turn a keep rate into the number that hashes are compared with.

    >>> threshold_of(1.0) == WHOLE, threshold_of(0.0)
    (True, 0)
    """
    return round(keep * WHOLE)


def compound_key(*columns: str) -> str:
    """Name a key of several columns, in the order in which the shedder was given them.

    >>> Plan(keep=0.1, key_keep={compound_key("de", "mobile"): 1.0}, reason="mobile users of one country first").sheds
    True
    """
    for column in columns:
        given: object = column
        if not isinstance(given, str):
            raise InvalidInputError(f"a column of a compound key is compared as text, got {column!r}; give str(...)")
    if not columns:
        raise InvalidInputError("a compound key has no values; give that of each column, in the order of shed(key=...)")
    return KEY_SEPARATOR.join(columns)


def key_hash(key: str) -> int:
    """Hash a key as Spark's ``xxhash64`` hashes text; the columns of a compound key chain their seeds."""
    value = SPARK_SEED
    for part in key.split(KEY_SEPARATOR):
        value = xxhash.xxh64_intdigest(part.encode(), seed=value & 0xFFFF_FFFF_FFFF_FFFF)
    return value - (1 << 64) if value >= 1 << 63 else value


@dataclass(frozen=True, slots=True)
class KeyTable:
    """Thresholds by key hash; slot ``hash & mask`` or slot ``(hash >> 32) & mask`` holds a listed key."""

    hashes: npt.NDArray[np.int64]
    thresholds: npt.NDArray[np.int64]

    @staticmethod
    def build(key_keep: Mapping[str, float]) -> KeyTable:
        """Lay out the rates so that every listed key sits in one of its two slots."""
        rates = {key_hash(key): threshold_of(keep) for key, keep in key_keep.items()}
        return KeyTable.of(np.array(list(rates), dtype=np.int64), np.array(list(rates.values()), dtype=np.int64))

    @staticmethod
    def of(hashes: npt.NDArray[np.int64], thresholds: npt.NDArray[np.int64]) -> KeyTable:
        """Lay out thresholds whose keys were hashed already, each once."""
        size = 2
        while size < 2.5 * len(hashes):
            size *= 2
        while (slots := _place(hashes, size)) is None:
            size *= 2
        taken = slots >= 0
        table = KeyTable(np.zeros(size, dtype=np.int64), np.zeros(size, dtype=np.int64))
        table.hashes[taken] = hashes[slots[taken]]
        table.thresholds[taken] = thresholds[slots[taken]]
        return table


def _place(hashes: npt.NDArray[np.int64], size: int) -> npt.NDArray[np.int64] | None:
    """Find a slot for each hash, all at once: -1 marks a free slot. None if that goes in circles.

    Those without a place all move into a slot; whoever sat there, or lost the race for it, tries its other slot next.
    """
    mask = size - 1
    homes = np.stack([hashes & mask, (hashes >> 32) & mask])
    slots = np.full(size, -1, dtype=np.int64)
    moving = np.arange(len(hashes))
    choice = np.zeros(len(hashes), dtype=np.int64)
    for _ in range(500):
        if not len(moving):
            return slots
        wanted = homes[choice[moving], moving]
        evicted = slots[wanted]
        slots[wanted] = moving
        lost = moving[slots[wanted] != moving]
        out = np.unique(np.concatenate([evicted[evicted >= 0], lost]))
        moving = out
        choice[moving] ^= 1
    return None


def stage_seed(salt: str, *within: str, seed: int) -> int:
    """Give a stage draws of its own, which no other stage, query or job shares.

    Two stages in a row that drew alike would keep the same rows and multiply their weights: a sum would count double.

    Parameters
    ----------
    salt
        Of the query; see :meth:`PlanLog.salt <penstock.spark.plan.log.PlanLog.salt>`.
    within
        Names the part of the query, where parts draw apart: a source, a side of a join.
    seed
        The user's.

    Examples
    --------
    >>> first, second = (stage_seed(f"/data/{job}/penstock/shed", seed=0) for job in ("clicks", "sales"))
    >>> first != second, first == stage_seed("/data/clicks/penstock/shed", seed=0)
    (True, True)
    """
    text = KEY_SEPARATOR.join([salt, *within, str(seed)])
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big", signed=True)


def row_hash(row_id: Sequence[Column], stage: int) -> Column:
    """Spread rows over [0, 2**53) by a hash of their id and of the stage that draws (:func:`stage_seed`).

    Null is a value like any other: Spark's hash skips it, so which columns are null is hashed too.
    """
    nulls = [] if len(row_id) < 2 else [_nulls(row_id[first : first + 63]) for first in range(0, len(row_id), 63)]
    return F.xxhash64(*row_id, *nulls, F.lit(stage)).bitwiseAND(F.lit(WHOLE - 1))


def _nulls(columns: Sequence[Column]) -> Column:
    """Say in one number which columns are null, a bit for each."""
    bits = (F.when(column.isNull(), F.lit(1 << place)).otherwise(F.lit(0)) for place, column in enumerate(columns))
    return reduce(Column.bitwiseOR, bits)


def hashed_key(key: Sequence[Column]) -> Column:
    """Hash the key columns as :func:`key_hash` does; null where any of them is null."""
    hashed = F.xxhash64(*(column.cast("string") for column in key))
    missing = key[0].isNull()
    for column in key[1:]:
        missing = missing | column.isNull()
    return F.when(~missing, hashed)


def hashed_group(key: Sequence[Column]) -> Column:
    """Hash the key columns; rows with a null in any of them are one group, :data:`NO_KEY`."""
    return F.coalesce(hashed_key(key), F.lit(NO_KEY))


def key_text(key: Sequence[Column]) -> Column:
    """Write the key columns as plans name them (see :func:`compound_key`); null where any of them is null."""
    parts = [part for column in key for part in (F.lit(KEY_SEPARATOR), column.cast("string"))]
    return F.concat(*parts[1:])


def listed_threshold(hashed: Column, hashes: Column, thresholds: Column) -> Column:
    """Look a key up in a :class:`KeyTable`; null for a key that is not listed, and for a null key."""
    mask = (F.size(hashes) - F.lit(1)).cast("long")
    first = hashed.bitwiseAND(mask).cast("int")
    second = F.shiftright(hashed, 32).bitwiseAND(mask).cast("int")
    return F.when(F.get(hashes, first) == hashed, F.get(thresholds, first)).when(
        F.get(hashes, second) == hashed, F.get(thresholds, second)
    )


def table_literal(spark: SparkSession, table: KeyTable) -> tuple[Column, Column]:
    """Bring the rates in as one row: as literals, ten thousand keys would take Spark seconds to parse."""
    row = pa.table({"hashes": pa.array([table.hashes]), "thresholds": pa.array([table.thresholds])})
    one = spark.createDataFrame(row).select(F.struct("hashes", "thresholds").alias("rates")).scalar()
    return one.getField("hashes"), one.getField("thresholds")


def table_of(plan: Plan) -> KeyTable:
    """Lay out the rates per key of a plan."""
    return _table(tuple(plan.key_keep.items()))


@lru_cache(maxsize=4)
def _table(rates: tuple[tuple[str, float], ...]) -> KeyTable:
    # Tables change seldom, batches come every second.
    return KeyTable.build(dict(rates))
