"""Store rows of a network as Parquet while they are dropped: one record for each drop, with the arc it happened on.

Drops are spread over the stages of a network, and rows go on after one: a row that is dropped on one branch may be kept
on another. So each stage has a filter in Python that lets every row pass. It gets, beside the row, a flag for each arc
of the stage that says whether the row was dropped there, and a null in place of a row that no arc has dropped.
"""

from __future__ import annotations

import math
import uuid
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, cast

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from penstock.model.network import OUTSIDE, Arc, arc_name, inputs_of
from penstock.model.network import Network as Model
from penstock.spark.compile.layout import Layout, planner_of
from penstock.spark.compile.stages import PORT, WEIGHT, Stage
from penstock.spark.compile.steps import MapStep, Steps
from penstock.spark.judge.sampling import WHOLE
from penstock.spark.names import quoted
from penstock.spark.plan.network_column import drops_row
from penstock.spark.plan.network_planner import NetworkPlanner
from penstock.spark.spill.folder import SpillFolder
from penstock.spark.spill.options import Spill
from penstock.spark.spill.schema import OF_NETWORK, check_storable, stored_columns
from penstock.spark.spill.writer import Part, stored_in_passing
from penstock.spark.store.folder import folder_at

if TYPE_CHECKING:
    from penstock.spark.network import Network

PLAN_FILE = "_plan.json"
JOINS = "joins"
_DROPPED = "__dropped"


def level_name(arc: Arc, layout: Layout) -> str:
    """Name the stage in which a row meets the drop of an arc."""
    if arc[0] in layout.below_join:
        return JOINS
    return str(0 if arc[0] == OUTSIDE else layout.levels[arc[0]])


@dataclass(frozen=True, slots=True, kw_only=True)
class StageSpill:
    """Where the stages of a network store what they drop, and what they need to know for that."""

    spill: Spill
    planner: NetworkPlanner
    arcs: tuple[Arc, ...]
    # By port.
    sources: dict[int, str]


def stage_spill(network: Network, layout: Layout) -> StageSpill | None:
    """Prepare the spill of a network; None where the user wants none."""
    if network.spill is None:
        return None
    return StageSpill(
        spill=network.spill,
        planner=planner_of(network),
        arcs=layout.arcs,
        sources={layout.ports[name]: name for name in network.steps.sources},
    )


def spill_stage(counted: DataFrame, stage: Stage, spilling: StageSpill, *, level: int | None) -> DataFrame:
    """Store what the drops of a stage take out, and at the sources, if asked for, every row; all rows pass."""
    every = level == 0 and spilling.spill.rows == "all"
    if not stage.drops and not every:
        return counted
    names = [name for name in counted.columns if not name.startswith("__")]
    columns = counted.select(*map(quoted, names)).schema
    check_storable(columns, OF_NETWORK)
    made = _made_columns(stage.steps)
    row = F.struct(
        *(F.col(quoted(name)) for name in names),
        F.col(WEIGHT),
        *(dropped.alias(f"{_DROPPED}{number}") for number, dropped in stage.drops.items()),
        *([F.col(PORT)] if every else []),
    )
    part = StagePart(
        spill=spilling.spill,
        planner=spilling.planner,
        weight=None,
        columns_json=stored_columns(columns, OF_NETWORK).json(),
        # Two stages may run in one task, so the level is part of the name of their folders.
        build=f"{JOINS if level is None else level}-{uuid.uuid4().hex}",
        batch_id=None,
        arcs=spilling.arcs,
        drops=tuple(
            _ArcDrop(
                number=number,
                crossed=stage.crossed.get(spilling.arcs[number][0], ()),
                unknown=made - _columns_at(spilling.arcs[number][0], stage.network, stage.steps),
            )
            for number in stage.drops
        ),
        names=tuple(names),
        made=made,
        sources=spilling.sources if every else None,
    )

    any_dropped = reduce(lambda one, other: one | other, stage.drops.values(), F.lit(False))
    return counted.where(stored_in_passing(part, row if every else F.when(any_dropped, row)))


@dataclass(frozen=True, slots=True, kw_only=True)
class _ArcDrop:
    """One arc of a stage: the drops a row has passed on its way there, and columns that are made elsewhere."""

    number: int
    crossed: tuple[int, ...]
    unknown: frozenset[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class StagePart(Part):
    """What a task needs to know to store the rows of one stage; ``sources`` only where rows are stored as they came."""

    arcs: tuple[Arc, ...]
    drops: tuple[_ArcDrop, ...]
    names: tuple[str, ...]
    made: frozenset[str]
    sources: dict[int, str] | None

    def recording(self, batch_id: int) -> Callable[[pa.StructArray], Iterable[pa.StructArray]]:
        """Prepare to make records of drops, by the plan of the batch."""
        planner = cast("NetworkPlanner", self.planner)
        row = drops_row(planner.decide(batch_id), self.arcs, value=planner.value)
        thresholds = cast("list[int]", row["thresholds"])
        return lambda rows: self._records(pa.RecordBatch.from_struct_array(rows), thresholds)

    def goes_on(self, rows: pa.StructArray) -> pa.Array:
        """Let all rows pass: what was dropped on one branch may be kept on another."""
        return pa.repeat(True, len(rows))

    def _records(self, offered: pa.RecordBatch, thresholds: list[int]) -> Iterator[pa.StructArray]:
        """One record for each drop, and one for each row as it came."""
        if self.sources is not None:
            names = [self.sources.get(port) for port in range(max(self.sources) + 1)]
            source = pa.array(names, pa.string()).take(offered.column(PORT))
            arc = pa.nulls(len(offered), pa.string())
            weight = offered.column(WEIGHT)
            yield self._record(offered, self.made, shed=False, sampled=False, weight=weight, arc=arc, source=source)
        for drop in self.drops:
            rows = offered.filter(offered.column(f"{_DROPPED}{drop.number}"))
            if len(rows):
                stands_for = math.prod(WHOLE / max(thresholds[number], 1) for number in drop.crossed)
                yield self._record(
                    rows,
                    drop.unknown,
                    shed=True,
                    sampled=thresholds[drop.number] < WHOLE,
                    weight=pc.multiply(rows.column(WEIGHT), stands_for),
                    arc=pa.repeat(pa.scalar(arc_name(self.arcs[drop.number]), pa.string()), len(rows)),
                    source=pa.nulls(len(rows), pa.string()),
                )

    def _record(
        self, rows: pa.RecordBatch, unknown: frozenset[str], *, shed: bool, sampled: bool, **told: pa.Array
    ) -> pa.StructArray:
        columns = {name: rows.column(name) for name in self.names}
        # A row carries what its other branches have made of it, too: that is not how it was at this arc.
        columns |= {name: pa.nulls(len(rows), columns[name].type) for name in self.names if name in unknown}
        columns |= {"shed": pa.repeat(shed, len(rows)), "sampled": pa.repeat(sampled, len(rows)), **told}
        return pa.StructArray.from_arrays(list(columns.values()), list(columns))

    def _keep_beside(self, spilled: SpillFolder, batch_id: int) -> None:
        """Store the plan: a backfill of rows needs it, and in the log it goes when Spark drops its offsets."""
        folder = folder_at(spilled.batch(batch_id))
        if not folder.exists(PLAN_FILE) and (text := self.planner.log.sealed(batch_id)) is not None:
            folder.replace(PLAN_FILE, text)

    def _constants(self, batch_id: int) -> dict[str, pa.Scalar]:
        reason = self.planner.decide(batch_id).plan.reason
        return {"batch": pa.scalar(batch_id, pa.int64()), "reason": pa.scalar(reason, pa.string())}


def _made_columns(steps: Steps) -> frozenset[str]:
    made = [name for step in steps.steps.values() if isinstance(step, MapStep) for name in step.columns]
    return frozenset([*made, *(f"right_{name}" for name in made)])


def _columns_at(name: str, model: Model, steps: Steps) -> frozenset[str]:
    """List the columns that maps have made above a node, or in it."""
    if name == OUTSIDE:
        return frozenset()
    step = steps.steps.get(name)
    own = list(step.columns) if isinstance(step, MapStep) else []
    node = next(each for each in model.nodes if each.name == name)
    above = (_columns_at(each, model, steps) for each in inputs_of(node))
    return frozenset([*own, *(f"right_{each}" for each in own)]).union(*above)
