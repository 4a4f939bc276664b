"""Read the spill of a network back: what is whole in it is told by the ledger and the counts of the arcs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from functools import reduce
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame

from penstock.model.batch import Batch
from penstock.model.network import arc_name
from penstock.spark.compile.layout import Layout, layout_of, planner_of
from penstock.spark.names import quoted
from penstock.spark.run.ledger import LINES
from penstock.spark.spill.folder import SpillFolder
from penstock.spark.spill.network_writer import STORED, level_name
from penstock.spark.spill.options import Spill
from penstock.spark.spill.reader import require_whole, spilled_batches
from penstock.spark.store.folder import folder_at
from penstock.spark.store.paths import AnyPath

if TYPE_CHECKING:
    from penstock.spark.network import Network

# Rows that were dropped in a batch, by arc.
ArcShed = Mapping[str, int]


def read_arc_ledger(path: AnyPath) -> dict[int, ArcShed]:
    """Read how many rows each batch dropped on each arc; a line that a crash cut short leaves its batch without."""
    folder = folder_at(path)
    found: dict[int, ArcShed] = {}
    for name in folder.ages(suffix=LINES):
        for line in (folder.read(name) or "").splitlines():
            with suppress(ValueError, KeyError, TypeError):
                fields = json.loads(line)
                found[fields["batch_id"]] = {arc: shed for arc, _, _, shed in fields["arcs"]}
    return found


def whole_level(spilled: SpillFolder, batch: Batch, level: str, *, shed: int, every: bool) -> AnyPath | None:
    """Find an execution that stored all that a level dropped in a batch; with ``every``, also all rows as they came."""
    for run, (rows, shed_rows) in sorted(spilled.counts(batch.batch_id).items()):
        as_they_came = rows - shed_rows
        if run.startswith(f"{level}-") and shed_rows == shed and as_they_came in (batch.read, *([] if every else [0])):
            return spilled.run(batch.batch_id, run)
    return None


def whole_sources(spilled: SpillFolder, batch: Batch) -> AnyPath | None:
    """Find an execution that stored all rows of a batch as they came."""
    for run, (rows, shed) in sorted(spilled.counts(batch.batch_id).items()):
        if run.startswith("0-") and rows - shed == batch.read:
            return spilled.run(batch.batch_id, run)
    return None


def spilled_drops(network: Network, spill: Spill) -> DataFrame:
    """Read what a spill has of the batches in the ledger; see :meth:`Network.spilled`."""
    planner, layout = planner_of(network), layout_of(network)
    spilled, batches = spilled_batches(planner, spill)
    arcs = read_arc_ledger(planner.log.path / "arcs")
    found: dict[str, list[str]] = {}
    torn = []
    for batch in batches:
        told = arcs.get(batch.batch_id, {})
        if batch.keep < 1 and any(arc_name(arc) not in told for arc in layout.arcs):
            # Nobody counted on some arcs, as in a batch that was counted again: what it dropped there, nobody can tell.
            torn.append(batch.batch_id)
            continue
        for level, shed in shed_by_level(told, layout).items():
            every = spill.rows == "all" and level == "0"
            if not shed and not (every and batch.read):
                continue
            if (folder := whole_level(spilled, batch, level, shed=shed, every=every)) is None:
                torn.append(batch.batch_id)
                break
            found.setdefault(level, []).append(str(folder))
    require_whole(planner, spill, found=found, torn=torn)
    spark = next(iter(network.steps.sources.values())).frame.sparkSession
    frames = [spark.read.parquet(*folders) for _, folders in sorted(found.items())]
    rows = reduce(lambda one, other: one.unionByName(other, allowMissingColumns=True), frames)
    rows = rows.select(*(quoted(name) for name in rows.columns if name not in STORED), *STORED)
    # All rows may have been stored by an earlier run that was asked to.
    return rows if spill.rows == "all" else rows.where("shed")


def shed_by_level(shed: ArcShed, layout: Layout) -> dict[str, int]:
    """Sum the drops of each level up."""
    found: dict[str, int] = {}
    for arc in layout.arcs:
        level = level_name(arc, layout)
        found[level] = found.get(level, 0) + shed.get(arc_name(arc), 0)
    return found
