"""Read a spill back, and keep it within bounds."""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence

from pyspark.sql import DataFrame, SparkSession

from penstock.model.batch import Batch
from penstock.model.errors import InvalidInputError, PenstockError, SpillError
from penstock.spark.plan.planner import Planner
from penstock.spark.run.ledger import Ledger
from penstock.spark.spill.folder import SpillFolder
from penstock.spark.spill.options import Spill
from penstock.spark.store.paths import AnyPath

LOGGER = logging.getLogger(__name__)


def spilled_rows(spark: SparkSession, *, planner: Planner, spill: Spill) -> DataFrame:
    """Read what a spill has of the batches in the ledger; see :meth:`Shedder.spilled`."""
    spilled, batches = spilled_batches(planner, spill)
    every = spill.rows == "all"
    found: list[str] = []
    torn: list[int] = []
    for batch in batches:
        if not (batch.read if every else batch.shed - batch.unread):
            continue
        if (run := spilled.whole(batch, every=every)) is not None:
            found += map(str, run.paths)
        else:
            torn.append(batch.batch_id)
    require_whole(planner, spill, found=found, torn=torn)
    return spark.read.parquet(*found)


def spilled_batches(planner: Planner, spill: Spill) -> tuple[SpillFolder, list[Batch]]:
    """Find what a query has spilled, and the batches in its ledger that should be there."""
    spilled = SpillFolder.of(spill.folder, planner.checkpoint)
    batches = list(Ledger(planner.log.path / "ledger").batches())
    if spilled is None or not batches:
        raise InvalidInputError(f"no batch was committed on {planner.checkpoint} yet: nothing was spilled")
    # A spill may be added to a query that has run without one.
    first = max(spilled.pruned()[0], min(spilled.batch_ids(), default=0))
    return spilled, [batch for batch in batches if batch.batch_id >= first]


def require_whole(planner: Planner, spill: Spill, *, found: Collection[str], torn: Sequence[int]) -> None:
    """Refuse a spill that lacks rows of some batches, or has none at all."""
    if torn:
        raise SpillError(
            f"the spill {spill.folder} has not all rows of batches {', '.join(map(str, torn))} that the ledger has; "
            f"were they run with another spill, or without one, or without rows={spill.rows!r}? Files that were moved "
            "must be put back; without them only a backfill from the source finds these rows"
        )
    if not found:
        raise InvalidInputError(f"nothing was shed on {planner.checkpoint}: nothing was spilled")


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
