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
from penstock.spark.backfill.reach import Gaps, Moment, Period, Reach, nothing_touched
from penstock.spark.backfill.result import NetworkBackfilled
from penstock.spark.compile.ground import Ground
from penstock.spark.compile.layout import Layout, layout_of, planner_of
from penstock.spark.compile.query import compile_network, source_rows
from penstock.spark.compile.stages import PLAN, TIME
from penstock.spark.compile.steps import AggregateStep, JoinStep, MapStep
from penstock.spark.names import quoted
from penstock.spark.plan.network_column import SQL_TYPE, drops_row, keep_all_row
from penstock.spark.run.ledger import Ledger
from penstock.spark.spill.network_reader import read_arc_ledger
from penstock.spark.spill.schema import OF_NETWORK, check_names
from penstock.spark.store.paths import Location, place

if TYPE_CHECKING:
    from penstock.spark.network import Network

# The batch of a row, and of the right-hand row of a pair: carried through the network, and given by no output.
BATCH, RIGHT_BATCH = "batch", "right_batch"
_PLANNED = "__planned"


def backfill_network(
    network: Network, *, into: Location, since: Moment | None = None, until: Moment | None = None
) -> NetworkBackfilled:
    """Answer again, exactly, for all that drops have touched; see :meth:`Network.backfill`."""
    folder, planner = place(into, role="into"), planner_of(network)
    sources = list(network.steps.sources.values())
    if not sources:
        raise InvalidInputError("this network has no source, and so no rows; build it as it was run, then backfill")
    spark = sources[0].frame.sparkSession
    _check_columns(network)
    period = Period.of(spark, since, until)
    if period.bounded and not any(source.event_time for source in sources):
        raise InvalidInputError("since and until are times of events, and no source has any; give it: event_time=...")
    ledger = {batch.batch_id: batch for batch in Ledger(planner.log.path / "ledger").batches()}
    arcs = read_arc_ledger(planner.log.path / "arcs")
    shed = {number: sum(arcs.get(number, {}).values()) for number in ledger}
    if not ledger:
        raise InvalidInputError(f"no batch was committed on {planner.checkpoint} yet: there is nothing to backfill")
    stored = SourceRows(spark=spark, network=network, planner=planner, spill=network.spill, into=folder, ledger=ledger)
    with_rows = [*stored.uncounted, *(number for number, batch in ledger.items() if batch.offered)]
    known = sorted(number for number in with_rows if period.may_hold(ledger.get(number)))
    dropped = [
        number
        for number in known
        if (shed[number] or ledger[number].keep < 1 if number in ledger else _may_shed(stored.decision(number)))
    ]
    again = _Again(network=network, layout=layout_of(network), stored=stored)
    # Before anything is read: of what is missing here, no reading will make up for it.
    plans = again.plans(dropped) if again.gives_rows else {}
    reach = Reach(stored=stored, known=known, starts=again.starts, period=period)
    again.touched = reach.touched(dropped)
    if not again.touched:
        raise nothing_touched(stored, period)
    wanted = reach.with_neighbours(again.touched, again.beside) if again.has_times else list(again.touched)
    gaps = reach.gaps(margin_seconds=again.margin_seconds)
    return NetworkBackfilled(
        answers=again.write("exact", again.exact(wanted, period=period, gaps=gaps)),
        delivered=again.write("delivered", again.delivered(wanted, plans)) if again.gives_rows else None,
        batches=len(wanted),
        rows=sum(map(stored.count, wanted)),
        shed=sum(shed.get(number, 0) for number in wanted),
        from_spill=sum(stored.from_spill(number) is not None for number in wanted),
        gaps=gaps.listed,
        approximate=again.panes(period, gaps.approximate),
    )


@dataclass(kw_only=True)
class _Again:
    """A network over stored rows of batches, of which some are ``touched`` by drops and to be made good for."""

    network: Network
    layout: Layout
    stored: SourceRows
    touched: Sequence[int] = ()

    @cached_property
    def gives_rows(self) -> bool:
        """Whether an output gives rows, rather than windows."""
        steps = self.network.steps.steps
        return any(not isinstance(steps.get(o.input), AggregateStep) for o in self.network.model.outputs)

    @cached_property
    def has_times(self) -> bool:
        """Whether rows of one batch have a part in what those of another one give."""
        return self._pane_seconds is not None or self._join_seconds is not None

    @cached_property
    def margin_seconds(self) -> float:
        """How far from a pane, in whole panes, a row may be that has a part in it: as far as partners in a join."""
        pane = self._pane_seconds or 1
        return math.ceil((self._join_seconds or 0.0) / pane) * pane

    def plans(self, batch_ids: Sequence[int]) -> dict[int, Decision]:
        """Read the plans of batches with drops; without one, nobody knows what had become of the rows of a batch."""
        found = {number: self.stored.decision(number) for number in batch_ids}
        gone = [number for number, decision in found.items() if decision is None]
        told = (
            "gone, so nobody can tell which of their rows outputs had "
            "given; they go with Spark's offsets. Run the backfill sooner, have Spark keep more "
            "(spark.sql.streaming.minBatchesToRetain), or run the network with a spill, which keeps them"
        )
        if gone and len(gone) == len(found):
            raise PlanLogError(f"the plans of batches {', '.join(map(str, gone))} are {told}")
        self.stored.missing.update({number: f"the plan of batch {number} is {told}" for number in gone})
        return {number: decision for number, decision in found.items() if decision is not None}

    def starts(self, batch_ids: Sequence[int]) -> DataFrame:
        """The start of the pane of each row, or its time where there are no panes; null without times of events."""
        if not any(source.event_time for source in self.network.steps.sources.values()):
            return self.stored.rows(batch_ids).select(F.lit(None).cast("timestamp").alias("start"))
        timed = self._timed(batch_ids)
        if self._pane_seconds is not None:
            return self._with_start(timed).select("start")
        return timed.select(F.col(TIME).cast("timestamp").alias("start"))

    def beside(self, batch_id: int) -> bool:
        """Whether a batch has rows in a pane of the touched ones, or close enough to be partners of their rows."""
        timed = self._timed([batch_id])
        if self._pane_seconds is not None and not self._with_start(timed).join(self._panes, "start", "semi").isEmpty():
            return True
        return self._join_seconds is not None and not timed.join(self._cells, "cell", "semi").isEmpty()

    def panes(self, period: Period, choose: Callable[[DataFrame, str], DataFrame]) -> DataFrame | None:
        """Of the panes of the touched batches, choose some that are in a period; None without windows."""
        return None if self._pane_seconds is None else choose(self._panes.where(period.holds("start")), "start")

    def exact(self, batch_ids: Sequence[int], *, period: Period, gaps: Gaps) -> DataFrame:
        """Run the network over all rows; give all that the touched batches have a part in, but what lacks rows."""
        found = self._answers(batch_ids, lambda frame: frame.withColumn(PLAN, self._keep_all), windows=True)
        wanted = self.panes(period, gaps.exact)
        if wanted is None:
            return found
        # Of the neighbours there are panes in which nothing was dropped, and of which rows may be missing here.
        panes = found.join(F.broadcast(wanted), "start", "left_semi").select(*found.columns)
        return panes.unionByName(found.where("start IS NULL")) if self.gives_rows else panes

    def delivered(self, batch_ids: Sequence[int], plans: Mapping[int, Decision]) -> DataFrame:
        """Run the network as it ran, for the rows that the touched batches gave."""
        return self._answers(batch_ids, self._logged_plan(plans), windows=False)

    def _answers(
        self, batch_ids: Sequence[int], with_plan: Callable[[DataFrame], DataFrame], *, windows: bool
    ) -> DataFrame:
        ground = Ground(
            frames=self._frames(batch_ids),
            with_plan=with_plan,
            only=lambda frame: frame.where(_of_batches(frame, self.touched, windows=windows)),
            hidden=frozenset({BATCH, RIGHT_BATCH}),
        )
        return compile_network(self.network, ground)

    def _logged_plan(self, decisions: Mapping[int, Decision]) -> Callable[[DataFrame], DataFrame]:
        """Plan as it was: a row by its batch, a pair by the later one of its two."""
        arcs, value = self.layout.arcs, self.network.steps.value_column
        rows = [(number, json.dumps(drops_row(each, arcs, value=value))) for number, each in decisions.items()]
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
    check_names(T.StructType([T.StructField(name, T.NullType()) for name in names]), (*OF_NETWORK, RIGHT_BATCH))
