"""Replay the rows of a Parquet file as a stream that arrives by a timetable, the same rows on every replay."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

from penstock.model.arrivals import Arrivals

SOURCE = "penstock_replay"
ROWS_PER_ARROW_BATCH = 50_000


def replay_stream(
    spark: SparkSession, path: str, columns: Sequence[str], arrivals: Arrivals, *, epoch: float, partitions: int = 2
) -> DataFrame:
    """Stream the file's rows in their order, over and over, as the timetable says, starting at ``epoch``.

    Offsets count tuples, as Kafka's do. Beside the file's columns there are ``id``, the number of the row in the
    stream, and ``arrived``, when it came.
    """
    spark.dataSource.register(ReplaySource)
    schema = spark.read.parquet(path).select(*columns).schema
    phases = [[phase.seconds, phase.tuples_per_second] for phase in arrivals.phases]
    reader = spark.readStream.format(SOURCE).schema(
        "id BIGINT, arrived TIMESTAMP, " + ", ".join(f"{f.name} {f.dataType.simpleString()}" for f in schema.fields)
    )
    reader = reader.option("path", path).option("columns", json.dumps(list(columns)))
    reader = reader.option("phases", json.dumps(phases)).option("epoch", repr(epoch))
    return reader.option("partitions", partitions).load()


class ReplaySource(DataSource):
    """Spark's entry point to :func:`replay_stream`."""

    @classmethod
    def name(cls) -> str:
        """Name to give to ``readStream.format``."""
        return SOURCE

    def streamReader(self, schema: Any) -> DataSourceStreamReader:
        """Make the reader that Spark asks for offsets and rows."""
        options = self.options
        return ReplayReader(
            path=options["path"],
            columns=tuple(json.loads(options["columns"])),
            phases=options["phases"],
            epoch=float(options["epoch"]),
            partitions=int(options["partitions"]),
        )


@dataclass
class Rows(InputPartition):
    """Numbers of the rows in one partition of one batch."""

    start: int
    end: int


class ReplayReader(DataSourceStreamReader):
    """Hand out every row whose time has come."""

    def __init__(self, *, path: str, columns: tuple[str, ...], phases: str, epoch: float, partitions: int) -> None:
        self._path = path
        self._columns = columns
        self._phases = phases
        self._epoch = epoch
        self._partitions = partitions

    def initialOffset(self) -> dict[str, int]:
        """Start at the first row."""
        return {"tuples": 0}

    def latestOffset(self, *_: Any) -> dict[str, int]:
        """Count the rows that have arrived by now."""
        return {"tuples": _arrivals(self._phases).count_at(max(0.0, time.time() - self._epoch))}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        """Split a batch into equal ranges."""
        edges = np.linspace(start["tuples"], end["tuples"], self._partitions + 1).astype(int).tolist()
        return [Rows(low, high) for low, high in pairwise(edges)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Cut the rows of a range out of the file."""
        assert isinstance(partition, Rows)  # noqa: S101 - narrows the type for the checker
        table, arrivals = _table(self._path, self._columns), _arrivals(self._phases)
        for low in range(partition.start, partition.end, ROWS_PER_ARROW_BATCH):
            ids = np.arange(low, min(low + ROWS_PER_ARROW_BATCH, partition.end), dtype=np.int64)
            micros = ((self._epoch + arrivals.arrival_seconds(ids)) * 1e6).astype(np.int64)
            rows = table.take(pa.array(ids % len(table))).combine_chunks()
            columns = {"id": pa.array(ids), "arrived": pa.array(micros, type=pa.timestamp("us", tz="UTC"))}
            columns |= {name: rows[name].combine_chunks() for name in self._columns}
            yield pa.RecordBatch.from_pydict(columns)


@lru_cache(maxsize=2)
def _table(path: str, columns: tuple[str, ...]) -> pa.Table:
    return pq.read_table(path, columns=list(columns)).combine_chunks()


@lru_cache(maxsize=4)
def _arrivals(phases: str) -> Arrivals:
    return Arrivals.of(*(tuple(phase) for phase in json.loads(phases)))
