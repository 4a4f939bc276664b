"""The way from a stream of rows to a stream of blocks."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from penstock.model.errors import InvalidInputError
from penstock.spark.checks import TIMES, require_columns, require_type
from penstock.spark.judge.sampling import hashed_group, row_hash
from penstock.spark.names import map_in_arrow, quoted
from penstock.spark.windows.blocks import HASH, KEY, LABELS, TIME, VALUE, WORKING, BlockFolder, Cut
from penstock.spark.windows.stateful import BLOCK_TYPE

ROWS_PER_BLOCK = 1_000_000


def blocks_of(
    events: DataFrame,
    *,
    time: str,
    key: tuple[str, ...],
    value: str | None,
    row_id: tuple[str, ...],
    folder: BlockFolder,
    cut: Cut,
    stage: int,
    side: int,
) -> DataFrame:
    """Turn a stream of rows into a stream of blocks; ``stage`` seeds the draws, which are stored with the rows."""
    _check(events, {"time": (time,), "key": key, "value": (value,) if value else (), "row_id": row_id})
    ids = [F.col(quoted(name)) for name in (row_id or events.columns)]
    working: list[Column] = [
        F.unix_micros(F.col(quoted(time)).cast("timestamp")).alias(TIME),
        _key_column(key).alias(KEY),
        row_hash(ids, stage).alias(HASH),
    ]
    if value:
        working.append(F.col(quoted(value)).cast("double").alias(VALUE))
    prepared = events.where(F.col(quoted(time)).isNotNull()).select("*", *working)
    return map_in_arrow(prepared, partial(_cut_partition, folder=folder, cut=cut, side=side), BLOCK_TYPE)


def _cut_partition(
    batches: Iterator[pa.RecordBatch], *, folder: BlockFolder, cut: Cut, side: int
) -> Iterator[pa.RecordBatch]:
    for some in _in_portions(batches, ROWS_PER_BLOCK):
        blocks = folder.write(some, cut)
        yield pa.RecordBatch.from_pydict(
            {
                "label": pa.array([LABELS[block.bucket] for block in blocks], type=pa.int32()),
                "side": pa.array([side] * len(blocks), type=pa.int32()),
                "pane": pa.array([block.pane for block in blocks], type=pa.int64()),
                "name": pa.array([block.name for block in blocks], type=pa.string()),
                "tuples": pa.array([block.tuples for block in blocks], type=pa.int64()),
            }
        )


def _in_portions(batches: Iterator[pa.RecordBatch], rows: int) -> Iterator[list[pa.RecordBatch]]:
    waiting: list[pa.RecordBatch] = []
    held = 0
    for batch in batches:
        waiting.append(batch)
        held += len(batch)
        if held >= rows:
            yield waiting
            waiting, held = [], 0
    if waiting:
        yield waiting


def _key_column(key: tuple[str, ...]) -> Column:
    if not key:
        return F.lit(0).cast("long")
    return hashed_group([F.col(quoted(name)) for name in key])


def _check(events: DataFrame, roles: dict[str, tuple[str, ...]]) -> None:
    for role, names in roles.items():
        require_columns(role, names, events)
    for name in roles["time"]:
        require_type("time", name, events, *TIMES, meaning="windows are made of timestamps")
    for name in roles["value"]:
        require_type("value", name, events, T.NumericType, meaning="how values spread is known of numbers only")
    if taken := [name for name in WORKING if name in events.columns]:
        raise InvalidInputError(f"the stream has a column {taken[0]!r}; rename it, Penstock works with that name")
