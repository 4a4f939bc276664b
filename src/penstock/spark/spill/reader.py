"""Read a spill back, and keep it within bounds."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

from pyspark.sql import DataFrame, SparkSession

from penstock.model.batch import Batch
from penstock.model.errors import InvalidInputError, PenstockError, SpillError
from penstock.spark.plan.planner import Planner
from penstock.spark.run.ledger import Ledger
from penstock.spark.spill.folder import Run, SpillFolder
from penstock.spark.spill.options import Spill
from penstock.spark.store.paths import AnyPath

LOGGER = logging.getLogger(__name__)


# What of a batch should be in a spill, by the stage that stored it, and where it is; None for what is not there whole.
Parts = Mapping[str, Run | None]


def spilled_rows(spark: SparkSession, *, planner: Planner, spill: Spill) -> DataFrame:
    """Read what a spill has of the batches in the ledger; see :meth:`Shedder.spilled`."""
    every = spill.rows == "all"

    def parts_of(spilled: SpillFolder, batch: Batch) -> Parts:
        stored = batch.read if every else batch.shed - batch.unread
        return {"": spilled.whole(batch, every=every)} if stored else {}

    return spark.read.parquet(*committed_paths(planner, spill, parts_of)[""])


def committed_paths(
    planner: Planner, spill: Spill, parts_of: Callable[[SpillFolder, Batch], Parts]
) -> dict[str, list[str]]:
    """List, by stage, what a query has spilled of the batches in its ledger, each batch once.

    A spill that lacks rows of some batches, or has none at all, is refused.
    """
    spilled = SpillFolder.of(spill.folder, planner.checkpoint)
    # A spill may be added to a query that has run without one.
    first = max(spilled.pruned()[0], min(spilled.batch_ids(), default=0)) if spilled is not None else 0
    batches = list(Ledger(planner.log.path / "ledger").batches(since=first))
    if spilled is None or not batches:
        raise InvalidInputError(f"no batch was committed on {planner.checkpoint} yet: nothing was spilled")
    found: dict[str, list[str]] = {}
    torn: list[int] = []
    for batch in batches:
        parts = parts_of(spilled, batch)
        if None in parts.values():
            torn.append(batch.batch_id)
        for stage, run in parts.items():
            found.setdefault(stage, []).extend(map(str, run.paths if run is not None else ()))
    if torn:
        raise SpillError(
            f"the spill {spill.folder} has not all rows of batches {', '.join(map(str, torn))} that the ledger has; "
            f"were they run with another spill, or without one, or without rows={spill.rows!r}? Files that were moved "
            "must be put back; without them only a backfill from the source finds these rows"
        )
    if not found:
        raise InvalidInputError(f"nothing was shed on {planner.checkpoint}: nothing was spilled")
    return found


def prune_spill(spill: Spill, checkpoint: AnyPath, last_batch_id: int) -> None:
    """Keep as many of the latest batches as were asked for; what cannot be removed is left for the next time."""
    if spill.keep_batches is None:
        return
    try:
        spilled = SpillFolder.of(spill.folder, checkpoint)
        removed = spilled.prune(before=last_batch_id - spill.keep_batches + 1) if spilled is not None else 0
    except (OSError, PenstockError) as trouble:
        LOGGER.warning("old batches could not be removed from the spill %s (%s)", spill.folder, trouble)
        return
    if removed:
        LOGGER.info("%d batches were removed from the spill %s", removed, spill.folder)
