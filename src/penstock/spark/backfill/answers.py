"""Correct the answers of a burst afterwards: take all rows of its windows, and answer exactly."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import TYPE_CHECKING

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from penstock.model.errors import InvalidInputError, require_function, require_kind, require_text
from penstock.spark.backfill.reach import Moment, Period, Reach, nothing_touched
from penstock.spark.backfill.result import Backfilled
from penstock.spark.backfill.rows import Mark, StreamRows
from penstock.spark.plan.planner import Planner
from penstock.spark.run.ledger import Ledger
from penstock.spark.session import local_session
from penstock.spark.spill.options import Spill
from penstock.spark.spill.schema import OF_STREAM, check_names
from penstock.spark.store.paths import Location, place

if TYPE_CHECKING:
    from penstock.spark.backfill.result import NetworkBackfilled

Query = Callable[[DataFrame], DataFrame]


def rows_of_stream(rows: DataFrame) -> DataFrame:
    """Stored rows as a query gets them: with a weight of 1, and nothing of what became of them."""
    return rows.drop(*OF_STREAM)


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
    since: Moment | None = None,
    until: Moment | None = None,
) -> Backfilled:
    """Answer again, exactly, for the windows in which rows were sampled; see :meth:`Shedder.backfill`.

    ``mark`` says which rows of a batch were shed, where it has to be read again; ``prepare`` makes of all rows of these
    windows what the query is to get.
    """
    folder = place(into, role="into")
    require_function("query", query, meaning="what follows the shedding: it gets all rows, weighted 1")
    require_kind("window", window, Column, called="a Column", example="F.window('timestamp', '10 seconds')")
    period = Period.of(spark, since, until)
    ledger = {batch.batch_id: batch for batch in Ledger(planner.log.path / "ledger").batches()}
    if events is not None:
        check_names(events.schema, OF_STREAM)
    stored = StreamRows(spark=spark, events=events, planner=planner, mark=mark, spill=spill, into=folder, ledger=ledger)

    def windows_of(batch_ids: Sequence[int], *, sampled: bool = False) -> DataFrame:
        rows = stored.rows(batch_ids)
        return _with_start((rows.where("sampled") if sampled else rows).select(window.alias("window")), period)

    known = sorted(number for number, batch in ledger.items() if batch.offered and period.may_hold(batch))
    reach = Reach(stored=stored, known=known, starts=windows_of, period=period)
    touched = reach.touched(number for number in known if ledger[number].shed)
    if not touched:
        raise nothing_touched(stored, period)
    # Also those in which all that was sampled happened to survive: their answers are weighted all the same.
    sampled = windows_of(touched, sampled=True).where(period.holds("start")).distinct().cache()
    wanted = reach.with_neighbours(
        touched, lambda number: not windows_of([number]).join(sampled, "window", "left_semi").isEmpty()
    )
    gaps = reach.gaps()
    windows = gaps.exact(sampled, "start").select(F.col("window").alias("__window"))
    rows = stored.rows(wanted).withColumn("__window", window).join(F.broadcast(windows), "__window", "left_semi")
    exact = query(prepare(rows.drop("__window")))
    target = str(stored.into / "exact")
    exact.write.mode("overwrite").parquet(target)
    return Backfilled(
        answers=spark.read.parquet(target),
        batches=len(wanted),
        rows=sum(ledger[number].offered for number in wanted),
        shed=sum(ledger[number].shed for number in wanted),
        from_spill=sum(stored.from_spill(number) is not None for number in wanted),
        gaps=gaps.listed,
        approximate=gaps.approximate(sampled, "start").select("window"),
    )


def _with_start(windows: DataFrame, period: Period) -> DataFrame:
    """Windows with their start; a window that is no span of time stands for itself."""
    kind = windows.schema["window"].dataType
    spans = isinstance(kind, T.StructType) and "start" in kind.fieldNames()
    found = windows.withColumn("start", F.col("window.start" if spans else "window"))
    of_time = isinstance(found.schema["start"].dataType, (T.TimestampType, T.TimestampNTZType, T.DateType))
    if period.bounded and not of_time:
        raise InvalidInputError(
            f"since and until choose windows by their start, and window= gives {kind.simpleString()}; give spans of "
            "time, as F.window does, or leave since and until out"
        )
    return found


def run_backfill(
    build: str, *, into: Location, since: str | None = None, until: str | None = None
) -> Backfilled | NetworkBackfilled:
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
        return built.backfill(into=into, since=since, until=until)
    shedder, query, window = built
    done: Backfilled = shedder.backfill(query, window=window, into=into, since=since, until=until)
    return done
