"""Read the spill of a network back: what is whole in it is told by the ledger and the counts of the arcs."""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame

from penstock.model.batch import Batch
from penstock.model.network import arc_name
from penstock.spark.compile.layout import Layout, layout_of, planner_of
from penstock.spark.names import quoted
from penstock.spark.run.ledger import ArcLedger
from penstock.spark.spill.folder import Run, SpillFolder
from penstock.spark.spill.network_writer import level_name
from penstock.spark.spill.options import Spill
from penstock.spark.spill.reader import Parts, committed_paths
from penstock.spark.spill.schema import OF_NETWORK
from penstock.spark.store.paths import AnyPath

if TYPE_CHECKING:
    from penstock.spark.network import Network

# Rows that were dropped in a batch, by arc.
ArcShed = Mapping[str, int]


def read_arc_ledger(path: AnyPath, *, since: int = 0) -> dict[int, ArcShed]:
    """Read how many rows each batch dropped on each arc, ``since`` one on."""
    return {entry.batch_id: entry.shed for entry in ArcLedger(path).batches(since=since)}


def whole_sources(spilled: SpillFolder, batch: Batch) -> Run | None:
    """Find an execution that stored all rows of a batch as they came."""
    return spilled.find(batch, lambda run: run.name.startswith("0-") and run.rows - run.shed == batch.read)


def spilled_drops(network: Network, spill: Spill) -> DataFrame:
    """Read what a spill has of the batches in the ledger; see :meth:`Network.spilled`."""
    planner, layout = planner_of(network), layout_of(network)
    arcs = read_arc_ledger(planner.log.path / "arcs")

    def parts_of(spilled: SpillFolder, batch: Batch) -> Parts:
        told = arcs.get(batch.batch_id, {})
        if batch.keep < 1 and any(arc_name(arc) not in told for arc in layout.arcs):
            # Nobody counted on some arcs, as in a batch that was counted again: what it dropped there, nobody can tell.
            return {"0": None}
        parts: dict[str, Run | None] = {}
        for level, shed in shed_by_level(told, layout).items():
            every = spill.rows == "all" and level == "0"
            if shed or (every and batch.read):
                parts[level] = _whole_level(spilled, batch, level, shed=shed, every=every)
        return parts

    spark = next(iter(network.steps.sources.values())).frame.sparkSession
    frames = [spark.read.parquet(*paths) for _, paths in sorted(committed_paths(planner, spill, parts_of).items())]
    rows = reduce(lambda one, other: one.unionByName(other, allowMissingColumns=True), frames)
    rows = rows.select(*(quoted(name) for name in rows.columns if name not in OF_NETWORK), *OF_NETWORK)
    # All rows may have been stored by an earlier run that was asked to.
    return rows if spill.rows == "all" else rows.where("shed")


def _whole_level(spilled: SpillFolder, batch: Batch, level: str, *, shed: int, every: bool) -> Run | None:
    """Find an execution that stored all that a level dropped in a batch; with ``every``, also all rows as they came."""
    came = (batch.read,) if every else (batch.read, 0)
    return spilled.find(
        batch, lambda run: run.name.startswith(f"{level}-") and run.shed == shed and run.rows - run.shed in came
    )


def shed_by_level(shed: ArcShed, layout: Layout) -> dict[str, int]:
    """Sum the drops of each level up."""
    found: dict[str, int] = {}
    for arc in layout.arcs:
        level = level_name(arc, layout)
        found[level] = found.get(level, 0) + shed.get(arc_name(arc), 0)
    return found
