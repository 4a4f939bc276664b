"""What there is to see of a job without asking Penstock: Spark's logs, the sink's files, and witnesses in its tasks."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any
from urllib.parse import urlparse

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark import TaskContext
from pyspark.sql import DataFrame

BATCH_ID = "streaming.sql.batchId"


def witnessed(rows: DataFrame, folder: Path, *, columns: Sequence[str]) -> DataFrame:
    """Let rows pass, and note which ones a batch brought here: in every attempt at it, committed or not."""
    where = str(folder)

    def watch(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        seen: list[str] = []
        for batch in batches:
            seen += [identity(row, columns) for row in batch.select(list(columns)).to_pylist()]
            yield batch
        # Not reached by an attempt that was cut short: what is noted is whole.
        task = TaskContext.get()
        part = {"batch": int(task.getLocalProperty(BATCH_ID)), "partition": task.partitionId()}
        testify(where, {**part, "rows": seen})

    return rows.mapInArrow(watch, rows.schema)


def identity(row: Mapping[str, Any], columns: Sequence[str]) -> str:
    """Name a row by some of its columns."""
    return "|".join(str(row[column]) for column in columns)


def testify(folder: str, fields: dict[str, Any]) -> None:
    """Leave a note that is there whole or not at all."""
    path = Path(folder) / f"{uuid.uuid4().hex}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_suffix(".part")
    aside.write_text(json.dumps(fields))
    aside.rename(path)


@dataclass(frozen=True)
class Evidence:
    """Evidence on one job in a folder: ``checkpoint``, ``out``, ``witness``, and ``offsets.json``."""

    folder: Path

    @property
    def checkpoint(self) -> Path:
        return self.folder / "checkpoint"

    def note_offsets(self) -> None:
        """Remember how far each batch read, and which are committed, before Spark forgets."""
        noted = self._noted()
        for name in ("offsets", "commits"):
            for file in (self.checkpoint / name).glob("[0-9]*"):
                if file.name.isdigit():
                    noted[name][file.name] = file.read_text().splitlines()[2:]
        (self.folder / "offsets.json").write_text(json.dumps(noted))

    def committed(self) -> list[int]:
        """List the batches that Spark has committed."""
        return sorted(map(int, self._noted()["commits"]))

    def offered(self, *, source: int = 0) -> dict[int, range]:
        """Ids that each batch read from a source: 0, 1, 2, ..."""
        ends = {-1: 0} | {int(name): _end(lines[source])[0] for name, lines in self._noted()["offsets"].items()}
        return {batch: range(ends[batch - 1], ends[batch]) for batch in sorted(ends) if batch - 1 in ends}

    def seconds(self, *, source: int = 0) -> dict[int, int]:
        """Event time of the rows of each batch."""
        ends = {int(name): _end(lines[source])[1] // 1000 for name, lines in self._noted()["offsets"].items()}
        # A batch is a second long.
        ends[-1] = ends[0] - 1
        return {later: ends[earlier] for earlier, later in pairwise(sorted(ends))}

    def written(self) -> dict[int, list[dict[str, Any]]]:
        """Rows in the sink by batch, by the sink's own log; what is left of batches that failed is not in it."""
        logs = {int(file.name): file for file in (self.folder / "out" / "_spark_metadata").glob("[0-9]*")}
        return {batch: list(self._rows(file.read_text().splitlines()[1:])) for batch, file in sorted(logs.items())}

    def testimony(self) -> list[dict[str, Any]]:
        """All that witnesses have noted."""
        return [json.loads(file.read_text()) for file in (self.folder / "witness").glob("*.json")]

    def _rows(self, lines: Iterable[str]) -> Iterator[dict[str, Any]]:
        for line in lines:
            name = Path(urlparse(json.loads(line)["path"]).path).name
            yield from pq.read_table(self.folder / "out" / name).to_pylist()

    def _noted(self) -> dict[str, dict[str, list[str]]]:
        file = self.folder / "offsets.json"
        return json.loads(file.read_text()) if file.exists() else {"offsets": {}, "commits": {}}


def _end(line: str) -> tuple[int, int]:
    """Rows so far, and milliseconds of event time so far."""
    end = json.loads(line)
    return int(end["offset"]), int(end["timestamp"])
