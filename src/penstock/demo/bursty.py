"""An embedded stream with a timetable, fixed or written while the stream runs; the same rows on every replay."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

from penstock.model.arrivals import Arrivals

SOURCE = "penstock_bursty"
SCHEMA = "id BIGINT, arrived TIMESTAMP, campaign STRING, price DOUBLE"
CAMPAIGNS = 50
ROWS_PER_ARROW_BATCH = 50_000


class LiveArrivals:
    """A timetable in a file that grows while its stream runs; what is written never changes, so neither do the rows.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     live = LiveArrivals(Path(folder) / "timetable.json", first=(1, 1000))
    ...     live.append(1, 3000)
    ...     live.arrivals.total_tuples
    4000
    """

    def __init__(self, path: Path, *, first: tuple[float, float]) -> None:
        self.path = path
        self._phases: list[tuple[float, float]] = []
        self.append(*first)

    @property
    def arrivals(self) -> Arrivals:
        """The timetable so far."""
        return Arrivals.of(*self._phases)

    def append(self, seconds: float, rows_per_second: float) -> None:
        """Add a phase at the end."""
        self._phases.append((seconds, rows_per_second))
        # Replaced as a whole: a reader in another process sees the file before or after, never half of it.
        draft = self.path.with_suffix(".draft")
        draft.write_text(_to_text(self.arrivals), encoding="utf-8")
        os.replace(draft, self.path)


def bursty_stream(
    spark: SparkSession, arrivals: Arrivals | LiveArrivals, *, epoch: float, seed: int = 7, partitions: int = 2
) -> DataFrame:
    """Stream clicks on 50 campaigns of Zipf popularity that arrive by the timetable, starting at ``epoch``.

    Offsets count rows, as Kafka's do, and rows depend on their number alone: a replay gives the same ones.
    """
    spark.dataSource.register(BurstySource)
    reader = spark.readStream.format(SOURCE).option("epoch", repr(epoch))
    if isinstance(arrivals, LiveArrivals):
        reader = reader.option("timetable", str(arrivals.path))
    else:
        reader = reader.option("phases", _to_text(arrivals))
    return reader.option("seed", seed).option("partitions", partitions).load()


def click_columns(ids: npt.NDArray[np.int64], seed: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]:
    """Derive campaign number and price of each click from its id alone."""
    # A fixed integer mix (splitmix64) in place of a generator, so that any range of ids can be made on its own.
    mixed = ids.astype(np.uint64) + np.uint64(seed * 0x9E3779B97F4A7C15 % 2**64)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed = mixed ^ (mixed >> np.uint64(31))
    first = (mixed >> np.uint64(40)).astype(np.float64) / 2**24
    second = (mixed & np.uint64(0xFFFFFF)).astype(np.float64) / 2**24
    popularity = np.cumsum(1.0 / np.arange(1, CAMPAIGNS + 1))
    campaign = np.searchsorted(popularity / popularity[-1], first, side="right").clip(max=CAMPAIGNS - 1)
    return campaign.astype(np.int64), -np.log1p(-second * (1 - 1e-9))


class BurstySource(DataSource):
    """Spark's entry point to :func:`bursty_stream`."""

    @classmethod
    def name(cls) -> str:
        """Name to give to ``readStream.format``."""
        return SOURCE

    def schema(self) -> str:
        """Columns of the stream."""
        return SCHEMA

    def streamReader(self, schema: Any) -> DataSourceStreamReader:
        """Make the reader that Spark asks for offsets and rows."""
        options = self.options
        return BurstyReader(
            phases=options.get("phases"),
            timetable=options.get("timetable"),
            epoch=float(options["epoch"]),
            seed=int(options["seed"]),
            partitions=int(options["partitions"]),
        )


@dataclass
class Range(InputPartition):
    """Rows of one partition of one batch."""

    start: int
    end: int


class BurstyReader(DataSourceStreamReader):
    """Hand out every row whose time has come."""

    def __init__(
        self, *, epoch: float, seed: int, partitions: int, phases: str | None = None, timetable: str | None = None
    ) -> None:
        self._phases = phases
        self._timetable = timetable
        self._epoch = epoch
        self._seed = seed
        self._partitions = partitions

    def initialOffset(self) -> dict[str, int]:
        """Start at the first row."""
        return {"tuples": 0}

    def latestOffset(self, *_: Any) -> dict[str, int]:
        """Count the rows that have arrived by now."""
        return {"tuples": self._arrivals().count_at(max(0.0, time.time() - self._epoch))}

    def reportLatestOffset(self) -> dict[str, int]:
        """Tell Spark what waits beyond the batch, so that its progress reports show the backlog."""
        return self.latestOffset()

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        """Split a batch into equal ranges."""
        edges = np.linspace(start["tuples"], end["tuples"], self._partitions + 1).astype(int).tolist()
        return [Range(low, high) for low, high in pairwise(edges)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Make the rows of a range."""
        assert isinstance(partition, Range)  # noqa: S101 - narrows the type for the checker
        arrivals = self._arrivals()
        names = pa.array([f"campaign-{number:02d}" for number in range(CAMPAIGNS)])
        for low in range(partition.start, partition.end, ROWS_PER_ARROW_BATCH):
            ids = np.arange(low, min(low + ROWS_PER_ARROW_BATCH, partition.end), dtype=np.int64)
            campaign, price = click_columns(ids, self._seed)
            micros = ((self._epoch + arrivals.arrival_seconds(ids)) * 1e6).astype(np.int64)
            columns = {
                "id": pa.array(ids),
                "arrived": pa.array(micros, type=pa.timestamp("us", tz="UTC")),
                "campaign": names.take(pa.array(campaign)),
                "price": pa.array(price),
            }
            yield pa.RecordBatch.from_pydict(columns)

    def _arrivals(self) -> Arrivals:
        return _from_text(self._phases or Path(self._timetable or "").read_text(encoding="utf-8"))


def _to_text(arrivals: Arrivals) -> str:
    return json.dumps([[phase.seconds, phase.tuples_per_second] for phase in arrivals.phases])


@lru_cache(maxsize=4)
def _from_text(phases: str) -> Arrivals:
    return Arrivals.of(*(tuple(phase) for phase in json.loads(phases)))
