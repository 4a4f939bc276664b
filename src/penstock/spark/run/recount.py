"""Count again the batches that were committed, but whose counts died with the driver.

Spark reports what a batch observed only after its commit. A driver that is killed between the two leaves a committed
batch without an entry in the ledger. Offsets and plan of that batch are both on disk, so the same rows can be read and
judged again: a throw-away query runs just that batch from a copy of the offset log, and only counts.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from penstock.control.governor import Decision
from penstock.model.batch import Batch
from penstock.model.plan import Plan
from penstock.spark.compile.ground import Ground
from penstock.spark.compile.layout import Layout
from penstock.spark.compile.query import passed_rows
from penstock.spark.compile.stages import PLAN
from penstock.spark.judge.each_batch import mark_planned
from penstock.spark.judge.marking import Marking
from penstock.spark.names import quoted
from penstock.spark.plan.network_column import SQL_TYPE, drops_row
from penstock.spark.plan.network_planner import NetworkPlanner
from penstock.spark.plan.planner import Planner
from penstock.spark.run.learner import Counts
from penstock.spark.run.progress import row_counts
from penstock.spark.sources.offsets import read_entry, read_whole, unread_units
from penstock.spark.store.folder import copy_tree, folder_at, remove_tree
from penstock.spark.store.paths import AnyPath, spark_address

if TYPE_CHECKING:
    from penstock.spark.network import Network

RECOUNT_SECONDS = 120.0
# In which column a stored row says which stream it is of.
SOURCE = "__source"
# What Spark leaves in a folder once all rows are there.
WRITTEN = "_SUCCESS"


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamRecount:
    """Counts a batch of a shed stream or an operator again."""

    events: DataFrame
    planner: Planner
    marking: Marking

    def __call__(self, batch_id: int, *, seconds: float) -> tuple[Batch, Counts] | None:
        """Count a committed batch; None if its rows can no longer be read."""
        log = self.planner.log
        decision = log.decision(batch_id)
        if decision is None:
            return None
        counts = log.counts(batch_id) or _recount(self.events, self.planner, self.marking, decision, seconds=seconds)
        if counts is None:
            return None
        batch = recounted_batch(self.planner, decision, counts)
        return batch, Counts(name=self.planner.name, observed={self.planner.name: counts})


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredCounts:
    """Finds the counts of a batch whose tasks have stored them before its commit: its rows need not be read again."""

    planner: Planner

    def __call__(self, batch_id: int, *, seconds: float) -> tuple[Batch, Counts] | None:
        """Find what a committed batch counted; None if it was never planned."""
        del seconds
        decision, counts = self.planner.log.decision(batch_id), self.planner.counts(batch_id)
        if decision is None or counts is None:
            return None
        name = self.planner.name
        return recounted_batch(self.planner, decision, counts), Counts(name=name, observed={name: counts})


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkRecount:
    """Counts a batch of a network again, on all arcs that lie above joins and windows.

    The rows of the batch are stored, and pass the same compiled stages under the logged plan. What lies below a join is
    left out: its pairs hang on the rows of other batches.
    """

    network: Network
    layout: Layout
    planner: NetworkPlanner

    def __call__(self, batch_id: int, *, seconds: float) -> tuple[Batch, Counts] | None:
        """Count a committed batch; None if its rows can no longer be read."""
        decision = self.planner.log.decision(batch_id)
        if decision is None:
            return None
        folder = self.planner.log.path / "recounted"
        remove_tree(folder)
        try:
            events = source_events(self.network)
            write = StoreRows(batch_id=batch_id, path=str(folder))
            run_again(
                events,
                self.planner,
                batch_id,
                write.__call__,
                done=lambda: folder_at(folder).exists(WRITTEN),
                seconds=seconds,
            )
            if not folder_at(folder).exists(WRITTEN):
                return None
            rows = events.sparkSession.read.schema(events.schema).parquet(str(folder))
            observed = self._count(rows, decision)
        finally:
            remove_tree(folder)
        name = self.planner.name
        return recounted_batch(self.planner, decision, observed[name]), Counts(name=name, observed=observed)

    def _count(self, rows: DataFrame, decision: Decision) -> dict[str, Mapping[str, Any]]:
        """Pass rows through the stages of the network, and give what each counts."""
        counting: dict[str, DataFrame] = {}

        def observe(frame: DataFrame, name: str, metrics: Sequence[Column]) -> DataFrame:
            counting[name] = frame.agg(*metrics)
            # See compile.query: past what is observed Spark pushes no filters.
            return frame.observe(name, F.count(F.lit(1)).alias("rows"))

        planned = F.from_json(
            F.lit(json.dumps(drops_row(decision, self.layout.arcs, value=self.planner.value))), SQL_TYPE
        )
        ground = Ground(
            frames={
                name: rows.where(F.col(SOURCE) == name).select(*map(quoted, source.frame.columns))
                for name, source in self.network.steps.sources.items()
            },
            with_plan=lambda frame: frame.withColumn(PLAN, planned),
            observe=observe,
        )
        passed_rows(self.network, ground)
        counted = {name: frame.first() for name, frame in counting.items()}
        return {name: row.asDict() for name, row in counted.items() if row is not None}


def source_events(network: Network) -> DataFrame:
    """The streams of all sources together, in the order in which Spark logs their offsets."""
    frames = (source.frame.withColumn(SOURCE, F.lit(source.name)) for source in network.steps.sources.values())
    return reduce(lambda one, other: one.unionByName(other, allowMissingColumns=True), frames)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreRows:
    """Store the rows of one batch as they come; with Spark Connect this runs on the server."""

    batch_id: int
    path: str

    def __call__(self, rows: DataFrame, ran: int) -> None:
        """Do one batch; called by Spark."""
        if ran == self.batch_id:
            rows.write.mode("overwrite").parquet(self.path)


def recounted_batch(planner: Planner, decision: Decision, counts: Mapping[str, Any]) -> Batch:
    """Make the entry of a batch that was counted again: nobody measured its times."""
    entry = read_entry(planner.checkpoint, decision.batch_id)
    unread = sum(unread_units(end) for end in entry.sources) if entry else 0
    return Batch(
        batch_id=decision.batch_id,
        **row_counts(counts, unread=unread),
        keep=decision.plan.keep,
        reason=decision.plan.reason,
        recounted=True,
    )


def _recount(
    events: DataFrame, planner: Planner, marking: Marking, decision: Decision, *, seconds: float
) -> dict[str, Any] | None:
    batch_id, log = decision.batch_id, planner.log
    count = CountOnly(batch_id=batch_id, plan=decision.plan, planner=planner, marking=marking)
    run_again(events, planner, batch_id, count.__call__, done=lambda: log.counts(batch_id) is not None, seconds=seconds)
    return dict(log.counts(batch_id) or {}) or None


def run_again(
    events: DataFrame,
    planner: Planner,
    batch_id: int,
    handle: Callable[[DataFrame, int], None],
    *,
    done: Callable[[], bool],
    read_all: bool = False,
    seconds: float = RECOUNT_SECONDS,
) -> None:
    """Give the rows of a committed batch to a function once more, until it is done, fails or takes too long.

    ``read_all`` reads what the batch passed over, too. Nothing happens if the offsets of the batch are gone.
    """
    copy = planner.log.path / "recount"
    if not _copy_checkpoint(planner.checkpoint, copy, batch_id):
        return
    if read_all:
        _widen(copy / "offsets", batch_id)
    query = events.writeStream.foreachBatch(handle).option("checkpointLocation", spark_address(copy)).start()
    try:
        ends_at = time.monotonic() + seconds
        while not done() and query.isActive and time.monotonic() < ends_at:
            time.sleep(0.05)
    finally:
        query.stop()
        remove_tree(copy)


def _widen(offsets: AnyPath, batch_id: int) -> None:
    folder, name = folder_at(offsets), str(batch_id)
    *head, end = (folder.read(name) or "").split("\n")
    folder.replace(name, "\n".join([*head, read_whole(end)]))


@dataclass(frozen=True, slots=True, kw_only=True)
class CountOnly:
    """Count one batch and store the counts beside its plan; with Spark Connect this runs on the server."""

    batch_id: int
    plan: Plan
    planner: Planner
    marking: Marking

    def __call__(self, rows: DataFrame, ran: int) -> None:
        """Do one batch; called by Spark."""
        if ran != self.batch_id:
            # Batches after the one in question belong to the real query: they are not even read.
            return
        marked = mark_planned(self.marking, rows, self.plan)
        counts = marked.agg(*self.marking.counts(marked)).first()
        self.planner.log.record_counts(self.batch_id, counts.asDict() if counts else {})


def _copy_checkpoint(checkpoint: AnyPath, copy: AnyPath, batch_id: int) -> bool:
    """Lay out a checkpoint in which just this batch was planned and not committed; False if its offsets are gone."""
    logged = [("offsets", batch_id)]
    if batch_id:
        # Where the batch starts is where the one before it ended.
        logged += [("offsets", batch_id - 1), ("commits", batch_id - 1)]
    texts = {(kind, number): folder_at(checkpoint / kind).read(str(number)) for kind, number in logged}
    remove_tree(copy)
    for (kind, number), text in texts.items():
        if text is None:
            return False
        folder_at(copy / kind).replace(str(number), text)
    copy_tree(checkpoint / "sources", copy / "sources")
    # A query of its own: Spark refuses two of one id.
    folder_at(copy).replace("metadata", json.dumps({"id": str(uuid.uuid4())}))
    return True
