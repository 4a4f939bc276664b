"""A stream from a timetable on disk: instant, key, cost and partition of each tuple; a replay gives the same rows."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

from penstock.spark.store.folder import Folder

SOURCE = "penstock_timetable"
SCHEMA = "id BIGINT, arrived TIMESTAMP, key BIGINT, cost_seconds DOUBLE"
ROWS_PER_ARROW_BATCH = 50_000


def write_timetable(
    path: Path,
    *,
    arrived_at: NDArray[np.float64],
    keys: NDArray[np.int64],
    costs_seconds: NDArray[np.float64],
    partitions: NDArray[np.int64],
    calm: int = 0,
) -> None:
    """Write the tuples of a stream, in the order of their arrival.

    The first ``calm`` tuples are a warm-up: they come by the time since ``epoch``, and those not due by the release
    never come. The others come by the time since :func:`release`, so that whoever measures can wait until all queries
    have started.
    """
    np.savez(path, arrived_at=arrived_at, keys=keys, costs_seconds=costs_seconds, partitions=partitions, calm=calm)


def release(path: Path, *, at: float) -> None:
    """Let the tuples after the warm-up come, beginning at an instant."""
    Folder(path.parent).replace(_release_file(path).name, repr(at))


def _release_file(path: Path) -> Path:
    return path.with_suffix(".released")


def timetable_stream(spark: SparkSession, path: Path, *, epoch: float) -> DataFrame:
    """Stream a timetable; offsets count tuples, as Kafka's do. Without a warm-up it starts at ``epoch``."""
    spark.dataSource.register(TimetableSource)
    return spark.readStream.format(SOURCE).option("file", str(path)).option("epoch", repr(epoch)).load()


class TimetableSource(DataSource):
    """Spark's entry point to :func:`timetable_stream`."""

    @classmethod
    def name(cls) -> str:
        """Name to give to ``readStream.format``."""
        return SOURCE

    def schema(self) -> str:
        """Columns of the stream."""
        return SCHEMA

    def streamReader(self, schema: Any) -> DataSourceStreamReader:
        """Make the reader that Spark asks for offsets and rows."""
        return TimetableReader(path=self.options["file"], epoch=float(self.options["epoch"]))


@dataclass
class Share(InputPartition):
    """Tuples of one partition among those of one batch."""

    partition: int
    start: int
    end: int


class TimetableReader(DataSourceStreamReader):
    """Hand out every tuple whose time has come."""

    def __init__(self, *, path: str, epoch: float) -> None:
        self._path = path
        self._epoch = epoch

    def initialOffset(self) -> dict[str, int]:
        """Start at the first tuple."""
        return {"tuples": 0}

    def latestOffset(self, *_: Any) -> dict[str, int]:
        """Count the tuples that have arrived by now."""
        arrived_at, calm, released_at = _timetable(self._path)["arrived_at"], self._calm(), self._released_at()
        if calm and released_at is None:
            return {"tuples": int(np.searchsorted(arrived_at[:calm], time.time() - self._epoch, side="right"))}
        since = time.time() - (self._epoch if released_at is None else released_at)
        return {"tuples": self._handed_out(released_at) + int(np.searchsorted(arrived_at[calm:], since, side="right"))}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        """Give every partition its own tuples."""
        count = int(_timetable(self._path)["partitions"].max()) + 1
        return [Share(partition, start["tuples"], end["tuples"]) for partition in range(count)]

    def _calm(self) -> int:
        return int(_timetable(self._path)["calm"])

    def _handed_out(self, released_at: float | None) -> int:
        """Count the tuples of the warm-up that came before the release; the others would be a flood from the future."""
        calm = self._calm()
        if released_at is None:
            return calm
        return int(
            np.searchsorted(_timetable(self._path)["arrived_at"][:calm], released_at - self._epoch, side="right")
        )

    def _released_at(self) -> float | None:
        try:
            return float(_release_file(Path(self._path)).read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Make the rows of a share."""
        assert isinstance(partition, Share)  # noqa: S101 - narrows the type for the checker
        table = _timetable(self._path)
        # Read once: the release may come while rows are made.
        calm, released_at = self._calm(), self._released_at()
        handed_out = self._handed_out(released_at)
        ids = np.arange(partition.start, partition.end)
        ids[ids >= handed_out] += calm - handed_out
        ids = ids[table["partitions"][ids] == partition.partition]
        for first in range(0, ids.size, ROWS_PER_ARROW_BATCH):
            own = ids[first : first + ROWS_PER_ARROW_BATCH]
            begins = np.where(own < calm, self._epoch, released_at or self._epoch)
            micros = ((begins + table["arrived_at"][own]) * 1e6).astype(np.int64)
            columns = {
                "id": pa.array(own),
                "arrived": pa.array(micros, type=pa.timestamp("us", tz="UTC")),
                "key": pa.array(table["keys"][own]),
                "cost_seconds": pa.array(table["costs_seconds"][own]),
            }
            yield pa.RecordBatch.from_pydict(columns)


@lru_cache(maxsize=4)
def _timetable(path: str) -> dict[str, NDArray[Any]]:
    with np.load(path, allow_pickle=False) as stored:
        return {name: stored[name] for name in stored.files}
