"""Correct the answers of a burst afterwards: take all rows of its windows, and answer exactly."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from penstock.model.errors import InvalidInputError, require_function, require_kind, require_text
from penstock.spark.backfill.rows import BatchRows, Mark
from penstock.spark.checks import require_frame
from penstock.spark.names import names_of, quoted
from penstock.spark.plan.planner import Planner
from penstock.spark.run.ledger import Ledger
from penstock.spark.session import local_session
from penstock.spark.spill.options import Spill
from penstock.spark.spill.schema import OWN_COLUMNS, check_names
from penstock.spark.store.paths import Location, place

if TYPE_CHECKING:
    from penstock.spark.backfill.network import NetworkBackfilled

Query = Callable[[DataFrame], DataFrame]


@dataclass(frozen=True, slots=True, kw_only=True)
class Backfilled:
    """Exact answers, and what they rest on.

    Attributes
    ----------
    answers
        The query's rows for every window in which rows had been shed, from all rows of these windows.
    batches, rows, shed
        How many batches the answers rest on, the rows they hold, and those among them that had been shed.
    from_spill
        How many of the batches came from the spill; the others were read again from the source.
    windows
        The windows that were answered again, where a window may be left without any row; else None.
    """

    answers: DataFrame
    batches: int
    rows: int
    shed: int
    from_spill: int = 0
    windows: DataFrame | None = None

    def correct(self, approximate: DataFrame, *, on: str | Sequence[str]) -> DataFrame:
        """Put the exact answers in place of the approximate ones of the same windows; ``on`` names their columns."""
        require_frame("approximate", approximate)
        keys = names_of("on", on)
        if not keys:
            raise InvalidInputError("on names no column; name those that tell windows apart, as in on=['window']")
        for name in keys:
            if name not in approximate.columns or name not in self.answers.columns:
                raise InvalidInputError(
                    f"on names the column {name!r}, which both answers must have; they have "
                    f"{', '.join(approximate.columns)}"
                )
        named = self.windows is not None and set(keys) <= set(self.windows.columns)
        windows = (
            (self.windows if self.windows is not None and named else self.answers).select(*map(quoted, keys)).distinct()
        )
        return approximate.join(windows, list(keys), "left_anti").unionByName(
            self.answers.select(*map(quoted, approximate.columns))
        )


def rows_of_stream(rows: DataFrame) -> DataFrame:
    """Stored rows as a query gets them: with a weight of 1, and nothing of what became of them."""
    return rows.drop(*OWN_COLUMNS)


def backfill(
    spark: SparkSession,
    *,
    events: DataFrame | None,
    planner: Planner,
    mark: Mark,
    spill: Spill | None,
    prepare: Query = rows_of_stream,
    query: Query,
    window: Column,
    into: Location,
) -> Backfilled:
    """Answer again, exactly, for the windows in which rows were sampled; see :meth:`Shedder.backfill`.

    ``mark`` says which rows of a batch were shed, where it has to be read again; ``prepare`` makes of all rows of these
    windows what the query is to get.
    """
    folder = place(into, role="into")
    require_function("query", query, meaning="what follows the shedding: it gets all rows, weighted 1")
    require_kind("window", window, Column, called="a Column", example="F.window('timestamp', '10 seconds')")
    ledger = {batch.batch_id: batch for batch in Ledger(planner.log.path / "ledger").batches()}
    shedding = sorted(number for number, batch in ledger.items() if batch.shed)
    if not shedding:
        raise InvalidInputError(f"nothing was shed on {planner.checkpoint}: there is nothing to backfill")
    if events is not None:
        check_names(events.schema)
    stored = BatchRows(spark=spark, events=events, planner=planner, mark=mark, spill=spill, into=folder, ledger=ledger)
    for number in shedding:
        stored.store(number)
    # Also those in which all that was sampled happened to survive: their answers are weighted all the same.
    windows = stored.rows(shedding).where("sampled").select(window.alias("window")).distinct().cache()
    wanted = _with_neighbours(stored, shedding, window, windows)
    rows = stored.rows(wanted)
    touched = rows.withColumn("__window", window).join(
        F.broadcast(windows.withColumnRenamed("window", "__window")), "__window", "left_semi"
    )
    exact = query(prepare(touched.drop("__window")))
    target = str(stored.into / "exact")
    exact.write.mode("overwrite").parquet(target)
    return Backfilled(
        answers=spark.read.parquet(target),
        batches=len(wanted),
        rows=sum(ledger[number].offered for number in wanted),
        shed=sum(ledger[number].shed for number in wanted),
        from_spill=sum(stored.from_spill(number) is not None for number in wanted),
    )


def run_backfill(build: str, *, into: Location) -> Backfilled | NetworkBackfilled:
    """Backfill what ``module:function`` builds.

    The function gets a session and returns a shedder or an operator, the query and the window; or a network.
    """
    require_text("build", build, meaning="a function that builds the job, as module:function")
    module_name, _, name = build.partition(":")
    if not module_name or not name:
        raise InvalidInputError(f"name a function as module:function, got {build!r}")
    sys.path.insert(0, os.getcwd())
    try:
        function = getattr(import_module(module_name), name)
    except (ImportError, AttributeError) as cause:
        raise InvalidInputError(f"{build} cannot be imported ({cause}); run this in the folder of the job") from cause
    from penstock.spark.network import Network

    spark = SparkSession.getActiveSession() or local_session()
    built = function(spark)
    if isinstance(built, Network):
        return built.backfill(into=into)
    shedder, query, window = built
    done: Backfilled = shedder.backfill(query, window=window, into=into)
    return done


def _with_neighbours(stored: BatchRows, shedding: Sequence[int], window: Column, windows: DataFrame) -> list[int]:
    """Add batches before, between and after those that shed, as long as they hold rows of a window in question."""
    known = sorted(number for number, batch in stored.ledger.items() if batch.offered)
    wanted = set(shedding)
    for start, step in ((number, step) for number in shedding for step in (-1, 1)):
        at = known.index(start) + step
        while 0 <= at < len(known) and known[at] not in wanted:
            number = known[at]
            stored.store(number)
            touched = stored.rows([number]).select(window.alias("window")).join(windows, "window", "left_semi")
            if touched.isEmpty():
                break
            wanted.add(number)
            at += step
    return sorted(wanted)
