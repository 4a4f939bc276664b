"""Count again the batches that were committed, but whose counts died with the driver.

Spark reports what a batch observed only after its commit. A driver that is killed between the two leaves a committed
batch without an entry in the ledger. Offsets and plan of that batch are both on disk, so the same rows can be read and
judged again: a throw-away query runs just that batch from a copy of the offset log, and only counts.
"""

from __future__ import annotations

import json
import logging
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame

from penstock.control.governor import Decision
from penstock.model.batch import Batch
from penstock.model.plan import Plan
from penstock.spark.judge.each_batch import mark_planned
from penstock.spark.judge.marking import Marking
from penstock.spark.plan.planner import Planner
from penstock.spark.run.ledger import Ledger
from penstock.spark.run.progress import row_counts
from penstock.spark.sources.offsets import read_entry, read_whole, unread_units
from penstock.spark.store.folder import copy_tree, folder_at, remove_tree
from penstock.spark.store.paths import AnyPath, spark_address

LOGGER = logging.getLogger(__name__)
RECOUNT_SECONDS = 120.0


def close_gaps(ledger: Ledger, *, events: DataFrame, planner: Planner, marking: Marking) -> list[Batch]:
    """Enter every committed batch that the ledger lacks, and return those batches."""
    log = planner.log
    committed = set(folder_at(planner.checkpoint / "commits").ids())
    closed = []
    for batch_id in ledger.missing(committed & set(log.batch_ids())):
        decision = log.decision(batch_id)
        if decision is None:
            continue
        counts = planner.counts(batch_id) or _recount(events, planner, marking, decision)
        if counts is None:
            LOGGER.warning("batch %d was committed, but its rows can no longer be read: it has no entry", batch_id)
            continue
        entry = read_entry(planner.checkpoint, batch_id)
        unread = sum(unread_units(end) for end in entry.sources) if entry else 0
        batch = Batch(
            batch_id=batch_id,
            **row_counts(counts, unread=unread),
            keep=decision.plan.keep,
            reason=decision.plan.reason,
            recounted=True,
        )
        ledger.append(batch)
        closed.append(batch)
    return closed


def _recount(events: DataFrame, planner: Planner, marking: Marking, decision: Decision) -> dict[str, Any] | None:
    batch_id, log = decision.batch_id, planner.log
    count = CountOnly(batch_id=batch_id, plan=decision.plan, planner=planner, marking=marking)
    run_again(events, planner, batch_id, count.__call__, done=lambda: log.counts(batch_id) is not None)
    return dict(log.counts(batch_id) or {}) or None


def run_again(
    events: DataFrame,
    planner: Planner,
    batch_id: int,
    handle: Callable[[DataFrame, int], None],
    *,
    done: Callable[[], bool],
    read_all: bool = False,
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
        ends_at = time.monotonic() + RECOUNT_SECONDS
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
        marked = mark_planned(self.planner, self.marking, rows, self.plan)
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
