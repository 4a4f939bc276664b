"""Task events of a cluster, replayed by a timetable: Google's trace where the shared data is there, else made up."""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

from penstock.demo.bursty import Range
from penstock.model.arrivals import Arrivals

ROOT = Path(__file__).resolve().parents[1]
TRACE = ROOT.parent / "shared" / "data" / "google_task_events.parquet"
COLUMNS = ("job_id", "task_index", "event_type", "user", "scheduling_class", "priority", "cpu_request")
SCHEMA = (
    "id BIGINT, arrived TIMESTAMP, job_id BIGINT, task_index INT, event_type INT, user STRING, scheduling_class INT, "
    "priority INT, cpu_request DOUBLE"
)
TYPES = {
    "job_id": pa.int64(), "task_index": pa.int32(), "event_type": pa.int32(), "user": pa.string(),
    "scheduling_class": pa.int32(), "priority": pa.int32(), "cpu_request": pa.float64(),
}  # fmt: skip
MADE_UP_ROWS = 300_000


def prepare(folder: Path | None = None) -> tuple[Path, str]:
    """Write the events to a file that can be mapped into memory; return it, and where they come from."""
    folder = folder or Path(tempfile.gettempdir())
    if TRACE.exists():
        path, origin = folder / "penstock-task-events.arrow", "Google's cluster trace of 2011"
    else:
        path, origin = (
            folder / "penstock-made-up-events.arrow",
            "made-up events of the same shape: the trace is not here",
        )
    if not path.exists():
        table = _trace() if TRACE.exists() else _made_up()
        aside = path.with_suffix(f".{time.time_ns()}")
        with pa.OSFile(str(aside), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
            writer.write_table(table.combine_chunks())
        aside.replace(path)
    return path, origin


def task_events(spark: SparkSession, path: Path, arrivals: Arrivals, *, epoch: float, partitions: int = 2) -> DataFrame:
    """Stream the events by a timetable, over and over; offsets count tuples, and a replay gives the same rows."""
    spark.dataSource.register(TaskEvents)
    phases = json.dumps([[phase.seconds, phase.tuples_per_second] for phase in arrivals.phases])
    reader = spark.readStream.format("penstock_task_events").option("phases", phases).option("epoch", repr(epoch))
    return reader.option("file", str(path)).option("partitions", partitions).load()


def _trace() -> pa.Table:
    table = pq.read_table(TRACE, columns=[*COLUMNS, "ts_us"])
    table = table.filter(pa.compute.greater(table["ts_us"], 0)).select(list(COLUMNS))
    filled = {
        name: pa.compute.fill_null(table[name].cast(kind), "" if name == "user" else 0) for name, kind in TYPES.items()
    }
    return pa.table(filled)


def _made_up() -> pa.Table:
    rng = np.random.default_rng(2011)
    count = MADE_UP_ROWS
    columns = {
        "job_id": rng.zipf(1.5, count) % 20_000,
        "task_index": np.arange(count) // 4 % 5_000,
        # Submitted, scheduled, evicted, failed, finished, killed.
        "event_type": rng.choice(6, count, p=[0.36, 0.34, 0.08, 0.01, 0.13, 0.08]),
        "user": np.char.add("user-", (rng.zipf(1.3, count) % 400).astype(str)),
        "scheduling_class": rng.choice(4, count, p=[0.70, 0.13, 0.14, 0.03]),
        "priority": rng.choice([0, 1, 2, 4, 8, 9, 11], count, p=[0.46, 0.09, 0.36, 0.03, 0.005, 0.05, 0.005]),
        "cpu_request": rng.choice([0.0125, 0.025, 0.0625, 0.125], count),
    }
    return pa.table({name: pa.array(columns[name]).cast(kind) for name, kind in TYPES.items()})


class TaskEvents(DataSource):
    """Spark's entry point to :func:`task_events`."""

    @classmethod
    def name(cls) -> str:
        return "penstock_task_events"

    def schema(self) -> str:
        return SCHEMA

    def streamReader(self, schema: Any) -> DataSourceStreamReader:  # noqa: N802 - Spark calls it by this name
        options = self.options
        return TaskEventsReader(options["file"], options["phases"], float(options["epoch"]), int(options["partitions"]))


class TaskEventsReader(DataSourceStreamReader):
    """Hand out every event whose time has come."""

    def __init__(self, file: str, phases: str, epoch: float, partitions: int) -> None:
        self._file, self._phases, self._epoch, self._partitions = file, phases, epoch, partitions

    def initialOffset(self) -> dict[str, int]:  # noqa: N802
        return {"tuples": 0}

    def latestOffset(self, *_: Any) -> dict[str, int]:  # noqa: N802
        return {"tuples": _arrivals(self._phases).count_at(max(0.0, time.time() - self._epoch))}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        edges = np.linspace(start["tuples"], end["tuples"], self._partitions + 1).astype(int).tolist()
        return [Range(low, high) for low, high in pairwise(edges)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Range)
        table = _events(self._file)
        arrivals = _arrivals(self._phases)
        low = partition.start
        while low < partition.end:
            start = low % table.num_rows
            high = min(partition.end, low + 20_000, low + table.num_rows - start)
            rows = table.slice(start, high - low).combine_chunks()
            ids = np.arange(low, high, dtype=np.int64)
            micros = ((self._epoch + arrivals.arrival_seconds(ids)) * 1e6).astype(np.int64)
            columns = {"id": pa.array(ids), "arrived": pa.array(micros, type=pa.timestamp("us", tz="UTC"))}
            columns |= {name: rows[name].combine_chunks() for name in TYPES}
            yield from pa.table(columns).to_batches()
            low = high


@lru_cache(maxsize=2)
def _events(file: str) -> pa.Table:
    return pa.ipc.open_file(pa.memory_map(file)).read_all()


@lru_cache(maxsize=4)
def _arrivals(phases: str) -> Arrivals:
    return Arrivals.of(*(tuple(phase) for phase in json.loads(phases)))
