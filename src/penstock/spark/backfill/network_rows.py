"""All rows that the sources of a network offered in a batch, for a backfill: from the spill, or read again.

Rows are stored as they came, with their source, and with no word of what became of them: a row may be dropped on one
branch and kept on another. The plan of the batch tells that, and is kept beside them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, partial, reduce
from itertools import chain
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from penstock.control.governor import Decision
from penstock.model.batch import Batch
from penstock.model.errors import PlanLogError, SpillError
from penstock.spark.names import quoted
from penstock.spark.plan.log import decision_in
from penstock.spark.plan.planner import Planner
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
class SourceRows:
    """Rows of batches as they came: where the spill has them, or in ``rows/batch=<id>``, each written once and whole.

    ``ledger`` has the batches that were counted.
    """

    network: Network
    planner: Planner
    into: AnyPath
    ledger: dict[int, Batch]

    @cached_property
    def events(self) -> DataFrame:
        """The streams of all sources together, in the order in which Spark logs their offsets."""
        sources = self.network.steps.sources.values()
        frames = (source.frame.withColumn("source", F.lit(source.name)) for source in sources)
        return reduce(lambda one, other: one.unionByName(other, allowMissingColumns=True), frames)

    @property
    def spark(self) -> SparkSession:
        """The session of the sources."""
        return self.events.sparkSession

    @cached_property
    def uncounted(self) -> frozenset[int]:
        """Batches that hold rows, but no entry in the ledger, as the driver died when they were committed."""
        committed = set(folder_at(self.planner.checkpoint / "commits").ids())
        spilled = self._spilled.batch_ids() if self._spilled is not None else set()
        spilled = {number for number in spilled if number <= max(self.ledger)}
        # Spark runs batches without rows, too, to move its watermark: those need no entry.
        moved = {number: self._moved(number) for number in (committed | spilled) - self.ledger.keys()}
        return frozenset(number for number, known in moved.items() if known or (known is None and number in spilled))

    def store(self, batch_id: int) -> None:
        """Read a batch again and write its rows, unless they are stored already."""
        if self._stored(batch_id) or self.from_spill(batch_id) is not None:
            return
        folder = self._folder(batch_id)
        decision = self.decision(batch_id)
        reason = decision.plan.reason if decision is not None else ""
        write = _WriteRows(batch_id=batch_id, reason=reason, path=str(folder))
        run_again(self.events, self.planner, batch_id, write.__call__, done=partial(self._stored, batch_id))
        if not self._stored(batch_id):
            raise (PlanLogError if self.network.spill is None else SpillError)(self._gone(batch_id))
        if (text := self.planner.log.sealed(batch_id)) is not None:
            folder_at(folder).replace(PLAN_FILE, text)
        self._verify(batch_id)

    def from_spill(self, batch_id: int) -> Run | None:
        """Find the batch in the spill, if all of its rows are there as they came."""
        if self._spilled is None or batch_id not in self.ledger or self._stored(batch_id):
            return None
        return whole_sources(self._spilled, self.ledger[batch_id])

    def rows(self, batch_ids: Sequence[int]) -> DataFrame:
        """Stored rows of some batches, with ``source`` and ``batch``."""
        spilled = {number: run.paths for number in batch_ids if (run := self.from_spill(number)) is not None}
        frames = []
        if spilled:
            frames.append(self.spark.read.parquet(*map(str, chain(*spilled.values()))).where("arc IS NULL"))
        if read_again := [str(self._folder(number)) for number in batch_ids if number not in spilled]:
            frames.append(self.spark.read.parquet(*read_again))
        columns = [*map(quoted, self.events.columns), "batch"]
        return reduce(lambda one, other: one.unionByName(other), (frame.select(*columns) for frame in frames))

    def decision(self, batch_id: int) -> Decision | None:
        """Read the plan of a batch: in the log, or where it was kept when the log was pruned; None if it is gone."""
        if (logged := self.planner.log.decision(batch_id)) is not None:
            return logged
        kept = [self._folder(batch_id), *([self._spilled.batch(batch_id)] if self._spilled is not None else [])]
        for folder in kept:
            if (text := folder_at(folder).read(PLAN_FILE)) is not None:
                return decision_in(text, folder / PLAN_FILE)
        return None

    def count(self, batch_id: int) -> int:
        """Count the rows of a batch that is stored."""
        counted = self.ledger.get(batch_id)
        return counted.read if counted is not None else self.rows([batch_id]).count()

    @cached_property
    def _spilled(self) -> SpillFolder | None:
        spill = self.network.spill
        return None if spill is None else SpillFolder.of(spill.folder, self.planner.checkpoint)

    def _stored(self, batch_id: int) -> bool:
        return folder_at(self._folder(batch_id)).exists("_SUCCESS")

    def _folder(self, batch_id: int) -> AnyPath:
        return self.into / "rows" / f"batch={batch_id}"

    def _moved(self, batch_id: int) -> bool | None:
        """Tell whether the sources moved in a batch; None where the offsets are gone."""
        entry, before = (read_entry(self.planner.checkpoint, number) for number in (batch_id, batch_id - 1))
        if entry is None or (before is None and batch_id):
            return None
        return before is None or entry.sources != before.sources

    def _gone(self, batch_id: int) -> str:
        """Say what is missing of a batch, why, and what would mend it."""
        told = f"batch {batch_id} cannot be read again: Spark has dropped its offsets, or the source its rows. "
        spill = self.network.spill
        if spill is None or self._spilled is None:
            return told + (
                "Run the backfill sooner, have Spark keep more (spark.sql.streaming.minBatchesToRetain), or store all "
                'rows while they come: Network(spill=Spill(..., rows="all"))'
            )
        if batch_id < self._spilled.pruned()[0]:
            return told + f"The spill {spill.folder} had it and was pruned; keep more there (keep_batches)"
        if batch_id not in self.ledger:
            return told + "It was never counted, as the driver died, so nobody can tell whether the spill has it all"
        had = ", ".join(f"{run.rows - run.shed} rows as they came and {run.shed} drops" for run in self._had(batch_id))
        return told + (
            f"Of its {self.ledger[batch_id].read} rows the spill {spill.folder} has {had or 'nothing'}; drops alone "
            'make no answer exact, so next time store all rows: Spill(..., rows="all"), or have Spark and the source '
            "keep theirs for longer"
        )

    def _had(self, batch_id: int) -> list[Run]:
        runs = self._spilled.runs(batch_id) if self._spilled is not None else []
        return [run for run in runs if run.name.startswith("0-")]

    def _verify(self, batch_id: int) -> None:
        if batch_id not in self.ledger:
            return
        counted, batch = self.rows([batch_id]).count(), self.ledger[batch_id]
        if counted != batch.read:
            folder_at(self._folder(batch_id)).remove("_SUCCESS")
            raise PlanLogError(
                f"batch {batch_id} was read again and has {counted} rows, but the ledger has {batch.read}; the sources "
                "did not give the same rows again"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class _WriteRows:
    """Write the rows of one batch as they come; with Spark Connect this runs on the server."""

    batch_id: int
    reason: str
    path: str

    def __call__(self, events: DataFrame, ran: int) -> None:
        """Do one batch; called by Spark."""
        if ran != self.batch_id:
            return
        told = {
            "shed": F.lit(False),
            "sampled": F.lit(False),
            "weight": F.lit(1.0),
            "batch": F.lit(self.batch_id).cast("long"),
            "arc": F.lit(None).cast("string"),
            "reason": F.lit(self.reason),
        }
        events.withColumns(told).write.mode("overwrite").parquet(self.path)
