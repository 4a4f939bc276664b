"""All rows of a batch, for a backfill: from the spill, or read again from the source.

Offsets and plans say which rows a batch shed, so a batch that was not spilled can be read again as a replay would read
it, once the burst is over and the machine has time. That holds while Spark keeps the offsets and the source keeps the
rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import chain

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from penstock.model.batch import Batch
from penstock.model.errors import PlanLogError, SpillError
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
class BatchRows:
    """All rows of batches: where the spill has them, or in ``rows/batch=<id>``, each written once and whole."""

    spark: SparkSession
    events: DataFrame | None
    planner: Planner
    mark: Mark
    spill: Spill | None
    into: AnyPath
    ledger: dict[int, Batch]

    def store(self, batch_id: int) -> None:
        """Read a batch again and write its rows, unless they are stored already."""
        if self._stored(batch_id) or self.from_spill(batch_id) is not None:
            return
        folder = self._folder(batch_id)
        decision = self.planner.log.decision(batch_id) if self.events is not None else None
        if self.events is not None and decision is not None:
            entry = read_entry(self.planner.checkpoint, batch_id)
            write = _WriteRows(
                batch_id=batch_id,
                plan=decision.plan,
                arc=self.planner.name,
                mark=self.mark,
                ends=entry.sources if entry else (),
                path=str(folder),
            )
            done = partial(self._stored, batch_id)
            run_again(self.events, self.planner, batch_id, write.__call__, done=done, read_all=True)
        if not self._stored(batch_id):
            raise (PlanLogError if self.spill is None else SpillError)(self._gone(batch_id))
        self._verify(batch_id)

    def from_spill(self, batch_id: int) -> Run | None:
        """Find the batch in the spill, if all of its rows are there: shed and kept, and none passed over unread."""
        if self._spilled is None or self._stored(batch_id):
            return None
        batch = self.ledger[batch_id]
        return None if batch.unread else self._spilled.whole(batch, every=True)

    def rows(self, batch_ids: Sequence[int]) -> DataFrame:
        """Stored rows of some batches, with what :data:`OWN_COLUMNS` names."""
        found = ((number, self.from_spill(number)) for number in batch_ids)
        paths = (run.paths if run is not None else (self._folder(number),) for number, run in found)
        return self.spark.read.parquet(*map(str, chain(*paths)))

    @cached_property
    def _spilled(self) -> SpillFolder | None:
        return None if self.spill is None else SpillFolder.of(self.spill.folder, self.planner.checkpoint)

    def _stored(self, batch_id: int) -> bool:
        return folder_at(self._folder(batch_id)).exists("_SUCCESS")

    def _folder(self, batch_id: int) -> AnyPath:
        return self.into / "rows" / f"batch={batch_id}"

    def _gone(self, batch_id: int) -> str:
        """Say what is missing of a batch, why, and what would mend it."""
        batch = self.ledger[batch_id]
        why = "Spark has dropped its offsets, or the source its rows"
        if self.events is None:
            why = "nothing was applied to a stream here (transform), so there is no source"
        told = f"batch {batch_id} cannot be read again: {why}. "
        if self.spill is None or self._spilled is None:
            return told + (
                "Run the backfill sooner, have Spark keep more (spark.sql.streaming.minBatchesToRetain), or store all "
                'rows while they come: spill=Spill(..., rows="all")'
            )
        if batch_id < self._spilled.pruned()[0]:
            return told + f"The spill {self.spill.folder} had it and was pruned; keep more there (keep_batches)"
        if batch.unread:
            return told + f"{batch.unread} of its rows were passed over unread (read_kafka), which no spill can store"
        if self._spilled.whole(batch, every=False) is not None:
            return told + (
                f"The spill {self.spill.folder} has the {batch.shed} rows that it shed (spilled() reads them), "
                f"but not the {batch.kept} it kept, without which no window is exact; next time store all rows: "
                'Spill(..., rows="all"), or have Spark and the source keep theirs for longer'
            )
        had = ", ".join(f"{run.rows} rows" for run in self._spilled.runs(batch_id)) or "nothing"
        return told + f"Of its {batch.read} rows the spill {self.spill.folder} has {had}"

    def _verify(self, batch_id: int) -> None:
        counted = self.rows([batch_id]).agg(F.count("*"), F.count_if(F.col("shed"))).first()
        batch = self.ledger[batch_id]
        if counted is None or tuple(counted) != (batch.offered, batch.shed):
            folder_at(self._folder(batch_id)).remove("_SUCCESS")
            raise PlanLogError(
                f"batch {batch_id} was read again and has {counted} rows in all and shed, but the ledger has "
                f"{batch.offered} and {batch.shed}; the source did not give the same rows again"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class _WriteRows:
    """Mark the rows of one batch as its plan did, and write all of them."""

    batch_id: int
    plan: Plan
    arc: str
    mark: Mark
    ends: tuple[str, ...]
    path: str

    def __call__(self, events: DataFrame, ran: int) -> None:
        """Do one batch; called by Spark."""
        if ran != self.batch_id:
            return
        rows = self.mark(events, self.plan, self.ends)
        rows = rows.withColumn("batch", F.lit(self.batch_id).cast("long")).withColumn("arc", F.lit(self.arc))
        rows.withColumn("reason", F.lit(self.plan.reason)).write.mode("overwrite").parquet(self.path)
