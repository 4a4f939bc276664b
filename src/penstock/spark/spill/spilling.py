"""What a shedder and an operator have in common: a stream, a plan log, and perhaps a spill."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import ClassVar

from pyspark.sql import Column, DataFrame, SparkSession

from penstock.model.errors import InvalidInputError
from penstock.spark.backfill.answers import Query, backfill, rows_of_stream
from penstock.spark.backfill.reach import Moment
from penstock.spark.backfill.result import Backfilled
from penstock.spark.backfill.rows import Mark
from penstock.spark.plan.planner import Planner
from penstock.spark.spill.options import Spill
from penstock.spark.spill.reader import prune_spill, spilled_rows
from penstock.spark.spill.schema import OF_STREAM, check_storable
from penstock.spark.store.paths import Location


class Spilling:
    """A transformation of a stream whose shed rows can be stored, read back and made good for."""

    # What users call it, and the function that makes it.
    CALLED: ClassVar[tuple[str, str]]

    def __init__(self, *, planner: Planner, spill: Spill | None) -> None:
        self._planner = planner
        self._spill = spill
        self._events: DataFrame | None = None

    def spilled(self) -> DataFrame:
        """Read what the spill has of committed batches.

        Rows come with ``shed``, ``sampled``, ``batch``, ``arc`` and ``reason``. Each batch appears once, however often
        it was replayed. A batch that the ledger has and the spill has not, or not all of it, is an error that names it,
        unless it was pruned, or committed before anything was spilled.
        """
        if self._spill is None:
            called, maker = self.CALLED
            raise InvalidInputError(
                f"this {called} has no spill; name the folder it was run with: {maker}(..., spill=...)"
            )
        return spilled_rows(self._session(), planner=self._planner, spill=self._spill)

    def _backfill(
        self,
        query: Query,
        *,
        window: Column,
        into: Location,
        since: Moment | None,
        until: Moment | None,
        mark: Mark,
        prepare: Query = rows_of_stream,
    ) -> Backfilled:
        if self._events is None and (self._spill is None or self._spill.rows != "all"):
            raise InvalidInputError(
                f"nothing was shed yet; apply this {self.CALLED[0]} to the stream that it shed: transform"
            )
        return backfill(
            self._session(),
            events=self._events,
            planner=self._planner,
            mark=mark,
            spill=self._spill,
            prepare=prepare,
            query=query,
            window=window,
            into=into,
            since=since,
            until=until,
        )

    def _session(self) -> SparkSession:
        spark = self._events.sparkSession if self._events is not None else SparkSession.getActiveSession()
        if spark is None:
            raise InvalidInputError("there is no Spark session yet; start one first, as with ps.local_session()")
        return spark

    def _check_storable(self, events: DataFrame) -> None:
        """Refuse, before anything starts, a stream whose rows are to be stored and cannot be."""
        if self._spill is not None:
            check_storable(events.schema, OF_STREAM)

    def _tidying(self) -> Callable[[int], None] | None:
        """Make sure that the spill can be written; return what keeps it within bounds, if there is one."""
        if self._spill is None:
            return None
        self._spill.require_writable()
        return partial(prune_spill, self._spill, self._planner.checkpoint)
