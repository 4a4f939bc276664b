"""The ledger: what every committed batch offered, kept and shed, as JSON lines."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict, fields

from pyspark.sql import DataFrame, SparkSession

from penstock.model.batch import Batch
from penstock.model.errors import PenstockError, PlanLogError
from penstock.spark.store.folder import folder_at
from penstock.spark.store.paths import AnyPath

LINES = ".jsonl"

SCHEMA = (
    "batch_id BIGINT, offered BIGINT, kept BIGINT, shed BIGINT, keep DOUBLE, reason STRING, started_at DOUBLE, "
    "duration_seconds DOUBLE, overhead_seconds DOUBLE, latency_seconds DOUBLE, mean_latency_seconds DOUBLE, "
    "backlog_tuples DOUBLE, listed_offered BIGINT, listed_kept BIGINT, failed BIGINT, recounted BOOLEAN, "
    "unread BIGINT, partition_offered MAP<STRING, BIGINT>, partition_backlog MAP<STRING, BIGINT>, "
    "outputs MAP<STRING, STRUCT<offered: BIGINT, kept: BIGINT, shed: BIGINT>>"
)


class Ledger:
    """Append-only lines in ``ledger/*.jsonl``, one per committed batch, each durable before the next.

    Opening it drops a last line that a crash cut short; that batch is then counted again.
    """

    def __init__(self, path: AnyPath) -> None:
        self.path = path
        self._folder = folder_at(path)
        self._unsure = False
        self._read()

    @property
    def batch_ids(self) -> set[int]:
        """Ids of the batches that are in the ledger."""
        return set(self._kept_shed)

    @property
    def last_id(self) -> int | None:
        """Id of the newest batch that is in the ledger; None if there is none."""
        return max(self._kept_shed, default=None)

    def missing(self, batch_ids: Iterable[int]) -> list[int]:
        """Tell which of some batches have no entry."""
        return sorted(set(batch_ids) - self._kept_shed.keys())

    def append(self, batch: Batch) -> bool:
        """Enter a batch; False if it was entered before with the same counts."""
        if self._unsure:
            self._read()
        if (entered := self._kept_shed.get(batch.batch_id)) is not None:
            if entered != (batch.kept, batch.shed):
                raise PlanLogError(
                    f"batch {batch.batch_id} was replayed and kept {batch.kept} and shed {batch.shed} tuples, but the "
                    f"ledger in {self.path} has {entered[0]} and {entered[1]}; the source did not give the same rows "
                    "again, or the plan log was changed"
                )
            return False
        # A write that fails may have been done all the same, or in part: whoever tries again looks first.
        self._unsure = True
        append_line(self.path, batch.batch_id, json.dumps(asdict(batch)))
        self._unsure = False
        self._kept_shed[batch.batch_id] = (batch.kept, batch.shed)
        return True

    def batches(self) -> Iterator[Batch]:
        """Read the ledger back, in the order of the batches (a recounted one was entered late)."""
        for name in self._folder.ages(suffix=LINES):
            yield from self._batches(name, self._folder.read(name) or "")

    def frame(self, spark: SparkSession) -> DataFrame:
        """Read the ledger as a DataFrame."""
        if not self._folder.ages(suffix=LINES):
            return spark.createDataFrame([], SCHEMA)
        return spark.read.schema(SCHEMA).json(str(self.path))

    def _read(self) -> None:
        self._kept_shed = {batch.batch_id: (batch.kept, batch.shed) for batch in self._recover()}
        self._unsure = False

    def _recover(self) -> Iterator[Batch]:
        for name in self._folder.ages(suffix=LINES):
            text = self._folder.read(name) or ""
            whole, _, torn = text.rpartition("\n")
            if torn:
                text = whole + "\n" if whole else ""
                self._folder.replace(name, text)
            yield from self._batches(name, text)

    def _batches(self, name: str, text: str) -> list[Batch]:
        lines = enumerate(text.splitlines(), start=1)
        return sorted((_to_batch(line, self.path / name, number) for number, line in lines), key=lambda b: b.batch_id)


def append_line(path: AnyPath, batch_id: int, line: str) -> None:
    """Add what is to be kept of a batch to the lines of a folder; a new file begins after some thousand batches."""
    folder = folder_at(path)
    folder.append(f"{batch_id // folder.lines_per_file:08d}{LINES}", line)


def _to_batch(line: str, file: AnyPath, number: int) -> Batch:
    known = {field.name for field in fields(Batch)}
    try:
        return Batch(**{name: value for name, value in json.loads(line).items() if name in known})
    except (ValueError, TypeError, PenstockError) as cause:
        raise PlanLogError(
            f"line {number} of the ledger {file} cannot be read ({cause}); restore the file from a copy, or move it "
            "aside: batches that Spark still holds are counted again"
        ) from cause
