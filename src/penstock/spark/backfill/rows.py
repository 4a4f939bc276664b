"""All rows of a batch, for a backfill: from the spill, or read again from the source.

Offsets and plans say which rows a batch shed, so a batch that was not spilled can be read again as a replay would read
it, once the burst is over and the machine has time. That holds while Spark keeps the offsets and the source keeps the
rows. A batch that is gone is passed over, and remembered with the reason.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from itertools import chain
from typing import ClassVar

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from penstock.control.governor import Decision
from penstock.model.batch import Batch
from penstock.model.errors import PenstockError, PlanLogError, SpillError
from penstock.model.plan import Plan
from penstock.spark.plan.planner import Planner
from penstock.spark.run.recount import run_again
from penstock.spark.sources.offsets import read_entry
from penstock.spark.spill.folder import Run, SpillFolder
from penstock.spark.spill.options import Spill
from penstock.spark.store.folder import folder_at
from penstock.spark.store.paths import AnyPath

# Gets the rows of a batch, its plan, and where its sources ended; adds whether each row was shed, whether it was
# sampled, and a weight of 1 where rows have none.
Mark = Callable[[DataFrame, Plan, tuple[str, ...]], DataFrame]


@dataclass(frozen=True, kw_only=True)
class BatchRows(ABC):
    """All rows of batches: where the spill has them, or in ``rows/batch=<id>``, each written once and whole.

    ``ledger`` has the batches that were counted; ``missing`` comes to have those that cannot be had, with the reason.
    """

    SPILL_NEXT_TIME: ClassVar[str]

    spark: SparkSession
    planner: Planner
    spill: Spill | None
    into: AnyPath
    ledger: dict[int, Batch]
    missing: dict[int, str] = field(default_factory=dict)

    def has(self, batch_id: int) -> bool:
        """Make sure that all rows of a batch are at hand, reading it again if need be; False if it is gone."""
        if batch_id in self.missing:
            return False
        if self._stored(batch_id) or self.from_spill(batch_id) is not None:
            return True
        if batch_id in self._logged:
            self._read_again(batch_id)
        if not self._stored(batch_id):
            self.missing[batch_id] = self._gone(batch_id)
        elif (other := self._not_the_same(batch_id)) is not None:
            folder_at(self._folder(batch_id)).remove("_SUCCESS")
            self.missing[batch_id] = other
        return batch_id not in self.missing

    def gone(self) -> PenstockError:
        """Say why there is nothing to go by, by the first batch that is missing."""
        return (PlanLogError if self.spill is None else SpillError)(self.missing[min(self.missing)])

    def from_spill(self, batch_id: int) -> Run | None:
        """Find the batch in the spill, if all of its rows are there and it was not read again."""
        if self._spilled is None or batch_id not in self._spilled_ids or batch_id not in self.ledger:
            return None
        return None if self._stored(batch_id) else self._whole(self._spilled, self.ledger[batch_id])

    def rows(self, batch_ids: Sequence[int]) -> DataFrame:
        """Stored rows of some batches, with what is known of them."""
        found = ((number, self.from_spill(number)) for number in batch_ids)
        paths = (run.paths if run is not None else (self._folder(number),) for number, run in found)
        return self._as_they_came(self.spark.read.parquet(*map(str, chain(*paths))))

    def count(self, batch_id: int) -> int:
        """Count the rows of a batch that is at hand."""
        return self.ledger[batch_id].offered if batch_id in self.ledger else self.rows([batch_id]).count()

    @cached_property
    def _spilled(self) -> SpillFolder | None:
        return None if self.spill is None else SpillFolder.of(self.spill.folder, self.planner.checkpoint)

    @cached_property
    def _spilled_ids(self) -> frozenset[int]:
        return frozenset() if self._spilled is None else frozenset(self._spilled.batch_ids())

    @cached_property
    def _logged(self) -> frozenset[int]:
        """Batches of which Spark has the offsets."""
        return frozenset(folder_at(self.planner.checkpoint / "offsets").ids())

    def _stored(self, batch_id: int) -> bool:
        return folder_at(self._folder(batch_id)).exists("_SUCCESS")

    def _folder(self, batch_id: int) -> AnyPath:
        return self.into / "rows" / f"batch={batch_id}"

    def _gone(self, batch_id: int) -> str:
        """Say what is missing of a batch, why, and what would mend it."""
        told = f"batch {batch_id} cannot be read again: {self._why_not_again()}. "
        if self.spill is None or self._spilled is None:
            return told + (
                "Run the backfill sooner, have Spark keep more (spark.sql.streaming.minBatchesToRetain), or store all "
                f"rows while they come: {self.SPILL_NEXT_TIME}"
            )
        if batch_id < self._spilled.pruned()[0]:
            return told + f"The spill {self.spill.folder} had it and was pruned; keep more there (keep_batches)"
        if batch_id not in self.ledger:
            return told + "It was never counted, as the driver died, so nobody can tell whether the spill has it all"
        return told + self._lacks(self._spilled, self.ledger[batch_id], self.spill.folder)

    def _why_not_again(self) -> str:
        return "Spark has dropped its offsets, or the source its rows"

    def _as_they_came(self, stored: DataFrame) -> DataFrame:
        """Leave only rows as they came."""
        return stored

    @abstractmethod
    def _whole(self, spilled: SpillFolder, batch: Batch) -> Run | None:
        """Find all rows of a batch in the spill."""

    @abstractmethod
    def _lacks(self, spilled: SpillFolder, batch: Batch, folder: AnyPath) -> str:
        """Say what of a batch is in the spill, where that is not all."""

    @abstractmethod
    def _read_again(self, batch_id: int) -> None:
        """Read a batch again and write all its rows, as far as source and plan are there."""

    @abstractmethod
    def _not_the_same(self, batch_id: int) -> str | None:
        """Say how a batch that was read again differs from what the ledger has; None if it does not."""


@dataclass(frozen=True, kw_only=True)
class StreamRows(BatchRows):
    """Rows of the stream that a shedder or an operator was applied to, with what :data:`OF_STREAM` names."""

    SPILL_NEXT_TIME = 'spill=Spill(..., rows="all")'

    events: DataFrame | None
    mark: Mark

    def _whole(self, spilled: SpillFolder, batch: Batch) -> Run | None:
        # What was passed over unread is in no spill.
        return None if batch.unread else spilled.whole(batch, every=True)

    def _read_again(self, batch_id: int) -> None:
        decision = self.planner.log.decision(batch_id)
        if self.events is None or decision is None:
            return
        entry = read_entry(self.planner.checkpoint, batch_id)
        marked = _Marked(decision=decision, arc=self.planner.name, mark=self.mark, ends=entry.sources if entry else ())
        write = WriteRows(batch_id=batch_id, told=marked.__call__, path=str(self._folder(batch_id)))
        done = partial(self._stored, batch_id)
        run_again(self.events, self.planner, batch_id, write.__call__, done=done, read_all=True)

    def _not_the_same(self, batch_id: int) -> str | None:
        counted = self.rows([batch_id]).agg(F.count("*"), F.count_if(F.col("shed"))).first()
        batch = self.ledger[batch_id]
        if counted is not None and tuple(counted) == (batch.offered, batch.shed):
            return None
        return (
            f"batch {batch_id} was read again and has {counted} rows in all and shed, but the ledger has "
            f"{batch.offered} and {batch.shed}; the source did not give the same rows again"
        )

    def _why_not_again(self) -> str:
        if self.events is None:
            return "nothing was applied to a stream here (transform), so there is no source"
        return super()._why_not_again()

    def _lacks(self, spilled: SpillFolder, batch: Batch, folder: AnyPath) -> str:
        if batch.unread:
            return f"{batch.unread} of its rows were passed over unread (read_kafka), which no spill can store"
        if spilled.whole(batch, every=False) is not None:
            return (
                f"The spill {folder} has the {batch.shed} rows that it shed (spilled() reads them), "
                f"but not the {batch.kept} it kept, without which no window is exact; next time store all rows: "
                'Spill(..., rows="all"), or have Spark and the source keep theirs for longer'
            )
        had = ", ".join(f"{run.rows} rows" for run in spilled.runs(batch.batch_id)) or "nothing"
        return f"Of its {batch.read} rows the spill {folder} has {had}"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Marked:
    """Mark the rows of a batch as its plan did."""

    decision: Decision
    arc: str
    mark: Mark
    ends: tuple[str, ...]

    def __call__(self, events: DataFrame) -> DataFrame:
        """Add what is known of each row."""
        rows = self.mark(events, self.decision.plan, self.ends)
        told = {
            "batch": F.lit(self.decision.batch_id).cast("long"),
            "arc": F.lit(self.arc),
            "reason": F.lit(self.decision.plan.reason),
        }
        for name, value in told.items():
            rows = rows.withColumn(name, value)
        return rows


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteRows:
    """Write the rows of one batch with what is told of them; with Spark Connect this runs on the server."""

    batch_id: int
    told: Callable[[DataFrame], DataFrame]
    path: str

    def __call__(self, events: DataFrame, ran: int) -> None:
        """Do one batch; called by Spark."""
        # Batches after the one in question belong to the real query: they are not even read.
        if ran == self.batch_id:
            self.told(events).write.mode("overwrite").parquet(self.path)
