"""All rows that the sources of a network offered in a batch, for a backfill: from the spill, or read again.

Rows are stored as they came, with their source, and with no word of what became of them: a row may be dropped on one
branch and kept on another. The plan of the batch tells that, and is kept beside them.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, partial, reduce
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from penstock.control.governor import Decision
from penstock.model.batch import Batch
from penstock.spark.backfill.rows import BatchRows, WriteRows
from penstock.spark.names import quoted
from penstock.spark.plan.log import decision_in
from penstock.spark.run.recount import run_again
from penstock.spark.sources.offsets import read_entry
from penstock.spark.spill.folder import Run, SpillFolder
from penstock.spark.spill.network_reader import whole_sources
from penstock.spark.spill.network_writer import PLAN_FILE
from penstock.spark.store.folder import folder_at
from penstock.spark.store.paths import AnyPath

if TYPE_CHECKING:
    from penstock.spark.network import Network


@dataclass(frozen=True, kw_only=True)
class SourceRows(BatchRows):
    """Rows of the sources of a network, with ``source`` and ``batch``."""

    SPILL_NEXT_TIME = 'Network(spill=Spill(..., rows="all"))'

    network: Network

    @cached_property
    def events(self) -> DataFrame:
        """The streams of all sources together, in the order in which Spark logs their offsets."""
        sources = self.network.steps.sources.values()
        frames = (source.frame.withColumn("source", F.lit(source.name)) for source in sources)
        return reduce(lambda one, other: one.unionByName(other, allowMissingColumns=True), frames)

    @cached_property
    def uncounted(self) -> frozenset[int]:
        """Batches that hold rows, but no entry in the ledger, as the driver died when they were committed."""
        committed = set(folder_at(self.planner.checkpoint / "commits").ids())
        spilled = {number for number in self._spilled_ids if number <= max(self.ledger)}
        # Spark runs batches without rows, too, to move its watermark: those need no entry.
        moved = {number: self._moved(number) for number in (committed | spilled) - self.ledger.keys()}
        return frozenset(number for number, known in moved.items() if known or (known is None and number in spilled))

    def decision(self, batch_id: int) -> Decision | None:
        """Read the plan of a batch: in the log, or where it was kept when the log was pruned; None if it is gone."""
        if (logged := self.planner.log.decision(batch_id)) is not None:
            return logged
        kept = [self._folder(batch_id), *([self._spilled.batch(batch_id)] if self._spilled is not None else [])]
        for folder in kept:
            if (text := folder_at(folder).read(PLAN_FILE)) is not None:
                return decision_in(text, folder / PLAN_FILE)
        return None

    def _moved(self, batch_id: int) -> bool | None:
        """Tell whether the sources moved in a batch; None where the offsets are gone."""
        entry, before = (read_entry(self.planner.checkpoint, number) for number in (batch_id, batch_id - 1))
        if entry is None or (before is None and batch_id):
            return None
        return before is None or entry.sources != before.sources

    def _as_they_came(self, stored: DataFrame) -> DataFrame:
        # Among the spilled ones there are drops, too.
        return stored.where("arc IS NULL").select(*map(quoted, self.events.columns), "batch")

    def _whole(self, spilled: SpillFolder, batch: Batch) -> Run | None:
        return whole_sources(spilled, batch)

    def _read_again(self, batch_id: int) -> None:
        decision, folder = self.decision(batch_id), self._folder(batch_id)
        as_it_came = _AsItCame(batch_id=batch_id, reason=decision.plan.reason if decision is not None else "")
        write = WriteRows(batch_id=batch_id, told=as_it_came.__call__, path=str(folder))
        run_again(self.events, self.planner, batch_id, write.__call__, done=partial(self._stored, batch_id))
        if self._stored(batch_id) and (text := self.planner.log.sealed(batch_id)) is not None:
            folder_at(folder).replace(PLAN_FILE, text)

    def _not_the_same(self, batch_id: int) -> str | None:
        counted = self.rows([batch_id]).count()
        if batch_id not in self.ledger or counted == self.ledger[batch_id].read:
            return None
        return (
            f"batch {batch_id} was read again and has {counted} rows, but the ledger has {self.ledger[batch_id].read}; "
            "the sources did not give the same rows again"
        )

    def _lacks(self, spilled: SpillFolder, batch: Batch, folder: AnyPath) -> str:
        runs = [run for run in spilled.runs(batch.batch_id) if run.name.startswith("0-")]
        had = ", ".join(f"{run.rows - run.shed} rows as they came and {run.shed} drops" for run in runs)
        return (
            f"Of its {batch.read} rows the spill {folder} has {had or 'nothing'}; drops alone "
            'make no answer exact, so next time store all rows: Spill(..., rows="all"), or have Spark and the source '
            "keep theirs for longer"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _AsItCame:
    """Say of the rows of a batch that they are as they came."""

    batch_id: int
    reason: str

    def __call__(self, events: DataFrame) -> DataFrame:
        """Add the columns of stored rows."""
        told = {
            "shed": F.lit(False),
            "sampled": F.lit(False),
            "weight": F.lit(1.0),
            "batch": F.lit(self.batch_id).cast("long"),
            "arc": F.lit(None).cast("string"),
            "reason": F.lit(self.reason),
        }
        return events.withColumns(told)
