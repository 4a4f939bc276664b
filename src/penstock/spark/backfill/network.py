"""Correct the answers of a network afterwards: run the same network over all rows, with nothing dropped.

Panes of windows are replaced by exact ones. A row that an output gave has no pane to tell it by. But drops go by hashes
and by the logged plans, so the network can be run over the same rows once more, with the drops of each batch, and gives
just what the batch had delivered; that is taken out, and all rows are put in its place.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from penstock.control.governor import Decision
from penstock.model.errors import InvalidInputError, PlanLogError
from penstock.spark.backfill.network_rows import SourceRows
from penstock.spark.checks import require_frame
from penstock.spark.compile.ground import Ground
from penstock.spark.compile.layout import Layout, layout_of, planner_of
from penstock.spark.compile.query import compile_network, source_rows
from penstock.spark.compile.stages import PLAN, TIME
from penstock.spark.compile.steps import AggregateStep, JoinStep, MapStep
from penstock.spark.names import quoted
from penstock.spark.plan.network_column import SQL_TYPE, drops_row, keep_all_row
from penstock.spark.run.ledger import Ledger
from penstock.spark.spill.network_reader import read_arc_ledger
from penstock.spark.spill.network_writer import ALSO
from penstock.spark.spill.schema import check_names
from penstock.spark.store.paths import Location, place

if TYPE_CHECKING:
    from penstock.spark.network import Network

# The batch of a row, and of the right-hand row of a pair: carried through the network, and given by no output.
BATCH, RIGHT_BATCH = "batch", "right_batch"
_PLANNED = "__planned"


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkBackfilled:
    """Exact answers of a network, and what they rest on.

    Attributes
    ----------
    answers
        In the columns of :meth:`Network.answers <penstock.spark.network.Network.answers>`: every pane that a batch with
        drops had rows in, and all that outputs of rows would have given in these batches, had nothing been dropped.
    delivered
        What outputs of rows gave in these batches; None for a network without such outputs.
    batches, rows
        How many batches the answers rest on, and the rows they hold.
    shed
        Drops in them; a row that was dropped on two arcs counts twice.
    from_spill
        How many of the batches came from the spill; the others were read again from the sources.
    """

    answers: DataFrame
    delivered: DataFrame | None
    batches: int
    rows: int
    shed: int
    from_spill: int = 0

    def correct(self, approximate: DataFrame) -> DataFrame:
        """Put the exact answers in place of the approximate ones: panes by output and time, rows by what they hold."""
        require_frame("approximate", approximate)
        pane = ["output", "start", "end"]
        exact = self.answers.select(*approximate.columns)
        panes = exact.where("start IS NOT NULL").select(*pane).distinct()
        windows = approximate.where("start IS NOT NULL").join(panes, pane, "left_anti").select(*approximate.columns)
        rows = approximate.where("start IS NULL")
        if self.delivered is not None:
            rows = rows.exceptAll(self.delivered.select(*approximate.columns))
        return windows.unionByName(rows).unionByName(exact)


def backfill_network(network: Network, *, into: Location) -> NetworkBackfilled:
    """Answer again, exactly, for all that drops have touched; see :meth:`Network.backfill`."""
    folder, planner = place(into, role="into"), planner_of(network)
    _check_columns(network)
    ledger = {batch.batch_id: batch for batch in Ledger(planner.log.path / "ledger").batches()}
    arcs = read_arc_ledger(planner.log.path / "arcs")
    shed = {number: sum(arcs.get(number, {}).values()) for number in ledger}
    if not ledger:
        raise InvalidInputError(f"no batch was committed on {planner.checkpoint} yet: there is nothing to backfill")
    stored = SourceRows(network=network, planner=planner, into=folder, ledger=ledger)
    touched = sorted(
        [number for number, batch in ledger.items() if batch.offered and (shed[number] or batch.keep < 1)]
        + [number for number in stored.uncounted if _may_shed(stored.decision(number))]
    )
    if not touched:
        raise InvalidInputError(f"nothing was shed on {planner.checkpoint}: there is nothing to backfill")
    again = _Again(network=network, layout=layout_of(network), stored=stored, touched=touched)
    # Before anything is read: of what is missing here, no reading will make up for it.
    plans = again.plans() if again.gives_rows else {}
    for number in touched:
        stored.store(number)
    wanted = again.with_neighbours()
    answers = again.write("exact", again.answers(wanted, again.exact_plan, windows=True))
    delivered = None
    if again.gives_rows:
        delivered = again.write("delivered", again.answers(wanted, again.logged_plan(plans), windows=False))
    return NetworkBackfilled(
        answers=answers,
        delivered=delivered,
        batches=len(wanted),
        rows=sum(map(stored.count, wanted)),
        shed=sum(shed.get(number, 0) for number in wanted),
        from_spill=sum(stored.from_spill(number) is not None for number in wanted),
    )


@dataclass(frozen=True, kw_only=True)
class _Again:
    """A network over stored rows of batches, of which some were touched by drops."""

    network: Network
    layout: Layout
    stored: SourceRows
    touched: Sequence[int]

    @cached_property
    def gives_rows(self) -> bool:
        """Whether an output gives rows, rather than windows."""
        steps = self.network.steps.steps
        return any(not isinstance(steps.get(o.input), AggregateStep) for o in self.network.model.outputs)

    def plans(self) -> dict[int, Decision]:
        """Read the plans of the batches that were touched; without one, nobody knows what its rows had become."""
        found = {number: self.stored.decision(number) for number in self.touched}
        gone = [str(number) for number, decision in found.items() if decision is None]
        if gone:
            raise PlanLogError(
                f"the plans of batches {', '.join(gone)} are gone, so nobody can tell which of their rows outputs had "
                "given; they go with Spark's offsets. Run the backfill sooner, have Spark keep more "
                "(spark.sql.streaming.minBatchesToRetain), or run the network with a spill, which keeps them"
            )
        return {number: decision for number, decision in found.items() if decision is not None}

    def with_neighbours(self) -> list[int]:
        """Add batches before, between and after, as long as they hold rows of the same panes, or partners in a join."""
        known = sorted({*self.stored.uncounted, *(n for n, batch in self.stored.ledger.items() if batch.offered)})
        wanted = set(self.touched)
        if self._pane_seconds is None and self._join_seconds is None:
            return sorted(wanted)
        for start, step in ((number, step) for number in self.touched for step in (-1, 1)):
            at = known.index(start) + step
            while 0 <= at < len(known) and known[at] not in wanted:
                self.stored.store(known[at])
                if not self._beside(self._timed([known[at]])):
                    break
                wanted.add(known[at])
                at += step
        return sorted(wanted)

    def answers(
        self, batch_ids: Sequence[int], with_plan: Callable[[DataFrame], DataFrame], *, windows: bool
    ) -> DataFrame:
        """Run the network over some batches; give what the touched ones have a part in."""
        ground = Ground(
            frames=self._frames(batch_ids),
            with_plan=with_plan,
            only=lambda frame: frame.where(_of_batches(frame, self.touched, windows=windows)),
            hidden=frozenset({BATCH, RIGHT_BATCH}),
        )
        found = compile_network(self.network, ground)
        if not windows or self._pane_seconds is None:
            return found
        # Of the neighbours there are panes in which nothing was dropped, and of which rows may be missing here.
        panes = found.join(F.broadcast(self._panes), "start", "left_semi").select(*found.columns)
        return panes.unionByName(found.where("start IS NULL")) if self.gives_rows else panes

    def exact_plan(self, frame: DataFrame) -> DataFrame:
        """Plan to keep all."""
        return frame.withColumn(PLAN, self._keep_all)

    def logged_plan(self, decisions: Mapping[int, Decision]) -> Callable[[DataFrame], DataFrame]:
        """Plan as it was: a row by its batch, a pair by the later one of its two."""
        rows = [(number, json.dumps(drops_row(each, self.layout.arcs))) for number, each in decisions.items()]
        listed = self.stored.spark.createDataFrame(rows, f"{_PLANNED} BIGINT, plan STRING")
        plans = listed.select(_PLANNED, F.from_json("plan", SQL_TYPE).alias(PLAN))

        def with_plan(frame: DataFrame) -> DataFrame:
            pair = RIGHT_BATCH in frame.columns
            batch = F.greatest(F.col(BATCH), F.col(RIGHT_BATCH)) if pair else F.col(BATCH)
            planned = frame.join(F.broadcast(plans), batch == F.col(_PLANNED), "left").drop(_PLANNED)
            return planned.withColumn(PLAN, F.coalesce(PLAN, self._keep_all))

        return with_plan

    def write(self, name: str, frame: DataFrame) -> DataFrame:
        """Store a frame, and read it back."""
        target = str(self.stored.into / name)
        frame.write.mode("overwrite").parquet(target)
        return self.stored.spark.read.parquet(target)

    @property
    def _keep_all(self) -> Column:
        return F.from_json(F.lit(json.dumps(keep_all_row(self.layout.arcs))), SQL_TYPE)

    def _frames(self, batch_ids: Sequence[int]) -> dict[str, DataFrame]:
        rows = self.stored.rows(batch_ids)
        return {
            name: rows.where(F.col("source") == name).select(*map(quoted, source.frame.columns), BATCH)
            for name, source in self.network.steps.sources.items()
        }

    def _timed(self, batch_ids: Sequence[int]) -> DataFrame:
        rows = source_rows(self.network, self.layout, self._frames(batch_ids)).select(TIME)
        cell = F.floor(F.unix_micros(F.col(TIME).cast("timestamp")) / round((self._join_seconds or 1.0) * 1e6))
        return rows.withColumn("cell", cell)

    @cached_property
    def _pane_seconds(self) -> int | None:
        slides = [s.slide_seconds for s in self.network.steps.steps.values() if isinstance(s, AggregateStep)]
        return math.gcd(*slides) if slides else None

    @cached_property
    def _join_seconds(self) -> float | None:
        within = [s.within_seconds for s in self.network.steps.steps.values() if isinstance(s, JoinStep)]
        return max(within, default=None)

    @cached_property
    def _panes(self) -> DataFrame:
        return self._with_start(self._timed(self.touched)).select("start").distinct().cache()

    @cached_property
    def _cells(self) -> DataFrame:
        """Stretches of time, as long as rows of a pair may be apart, in which partners may lie."""
        cell = F.col("cell")
        around = F.explode(F.array(cell - 1, cell, cell + 1))
        return self._timed(self.touched).select("cell").distinct().select(around.alias("cell")).distinct().cache()

    def _with_start(self, timed: DataFrame) -> DataFrame:
        pane = F.window(TIME, f"{self._pane_seconds} seconds")
        return timed.select("cell", pane.start.cast("timestamp").alias("start"))

    def _beside(self, timed: DataFrame) -> bool:
        """Whether there are rows in a pane of the touched batches, or close enough to be partners of their rows."""
        if self._pane_seconds is not None and not self._with_start(timed).join(self._panes, "start", "semi").isEmpty():
            return True
        return self._join_seconds is not None and not timed.join(self._cells, "cell", "semi").isEmpty()


def _of_batches(frame: DataFrame, batch_ids: Sequence[int], *, windows: bool) -> Column:
    """Whether a row, or one of a pair, is of these batches; and, if wanted, windows."""
    own = F.col(BATCH).isin(*batch_ids)
    if RIGHT_BATCH in frame.columns:
        own = own | F.col(RIGHT_BATCH).isin(*batch_ids)
    rows = F.coalesce(own, F.lit(False))
    return rows | F.col("__start").isNotNull() if windows else rows


def _may_shed(decision: Decision | None) -> bool:
    return decision is None or (decision.plan.network is not None and decision.plan.network.sheds)


def _check_columns(network: Network) -> None:
    """Refuse names that stored rows need, of columns that come or are made."""
    steps = network.steps
    made = [name for step in steps.steps.values() if isinstance(step, MapStep) for name in step.columns]
    names = [*(name for source in steps.sources.values() for name in source.frame.columns), *made]
    check_names(T.StructType([T.StructField(name, T.NullType()) for name in names]), also=(*ALSO, RIGHT_BATCH))
