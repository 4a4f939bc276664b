"""The ledger: what every committed batch offered, kept and shed, as JSON lines."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import asdict, fields
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from penstock.model.batch import Batch
from penstock.model.errors import PenstockError, PlanLogError

BATCHES_PER_FILE = 10_000

SCHEMA = (
    "batch_id BIGINT, offered BIGINT, kept BIGINT, shed BIGINT, keep DOUBLE, reason STRING, started_at DOUBLE, "
    "duration_seconds DOUBLE, latency_seconds DOUBLE, mean_latency_seconds DOUBLE, backlog_tuples DOUBLE, "
    "listed_offered BIGINT, listed_kept BIGINT, failed BIGINT, recounted BOOLEAN, unread BIGINT, "
    "partition_offered MAP<STRING, BIGINT>, partition_backlog MAP<STRING, BIGINT>, "
    "outputs MAP<STRING, STRUCT<offered: BIGINT, kept: BIGINT, shed: BIGINT>>"
)


class Ledger:
    """Append-only lines in ``ledger/*.jsonl``, one per committed batch, flushed to disk one by one.

    Opening it drops a last line that a crash cut short; that batch is then counted again.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._kept_shed = {batch.batch_id: (batch.kept, batch.shed) for batch in self._recover()}

    @property
    def batch_ids(self) -> set[int]:
        """Ids of the batches that are in the ledger."""
        return set(self._kept_shed)

    def append(self, batch: Batch) -> bool:
        """Enter a batch; False if it was entered before with the same counts."""
        if (entered := self._kept_shed.get(batch.batch_id)) is not None:
            if entered != (batch.kept, batch.shed):
                raise PlanLogError(
                    f"batch {batch.batch_id} was replayed and kept {batch.kept} and shed {batch.shed} tuples, but the "
                    f"ledger in {self.path} has {entered[0]} and {entered[1]}; the source did not give the same rows "
                    "again, or the plan log was changed"
                )
            return False
        self.path.mkdir(parents=True, exist_ok=True)
        with self._file(batch.batch_id).open("a", encoding="utf-8") as file:
            file.write(json.dumps(asdict(batch)) + "\n")
            file.flush()
            os.fsync(file.fileno())
        self._kept_shed[batch.batch_id] = (batch.kept, batch.shed)
        return True

    def batches(self) -> Iterator[Batch]:
        """Read the ledger back, in the order of the batches (a recounted one was entered late)."""
        for file in sorted(self.path.glob("*.jsonl")):
            lines = enumerate(file.read_text(encoding="utf-8").splitlines(), start=1)
            yield from sorted((_to_batch(line, file, number) for number, line in lines), key=lambda b: b.batch_id)

    def frame(self, spark: SparkSession) -> DataFrame:
        """Read the ledger as a DataFrame."""
        self.path.mkdir(parents=True, exist_ok=True)
        return spark.read.schema(SCHEMA).json(str(self.path))

    def _file(self, batch_id: int) -> Path:
        return self.path / f"{batch_id // BATCHES_PER_FILE:08d}.jsonl"

    def _recover(self) -> Iterator[Batch]:
        for file in self.path.glob("*.jsonl"):
            whole, _, torn = file.read_text(encoding="utf-8").rpartition("\n")
            if torn:
                file.write_text(whole + "\n" if whole else "", encoding="utf-8")
        return self.batches()


def _to_batch(line: str, file: Path, number: int) -> Batch:
    known = {field.name for field in fields(Batch)}
    try:
        return Batch(**{name: value for name, value in json.loads(line).items() if name in known})
    except (ValueError, TypeError, PenstockError) as cause:
        raise PlanLogError(
            f"line {number} of the ledger {file} cannot be read ({cause}); restore the file from a copy, or move it "
            "aside: batches that Spark still holds are counted again"
        ) from cause
