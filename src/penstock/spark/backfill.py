"""Correct the answers of a burst afterwards: read its batches again, store what was shed, and answer exactly.

The source is the spill: offsets and plans say which rows a batch shed, so writing them down can wait until the burst is
over and the machine has time. That holds while Spark keeps the offsets and the source keeps the rows.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import import_module

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from penstock.model.batch import Batch
from penstock.model.errors import InvalidInputError, PlanLogError
from penstock.model.plan import Plan
from penstock.spark.eachbatch import mark_planned
from penstock.spark.flags import KEPT, THRESHOLD, WORKING, Marking
from penstock.spark.ledger import Ledger
from penstock.spark.offsets import read_entry, read_ranges
from penstock.spark.planner import Planner
from penstock.spark.recount import run_again
from penstock.spark.sampler import WHOLE
from penstock.spark.session import local_session
from penstock.spark.storage import folder_at
from penstock.spark.storepath import AnyPath, StorePath, place

Query = Callable[[DataFrame], DataFrame]
# Whether a row was shed, whether that was left to its hash, in which batch, on which arc, and why.
OWN_COLUMNS = ("shed", "sampled", "batch", "arc", "reason")


@dataclass(frozen=True, slots=True, kw_only=True)
class Backfilled:
    """Exact answers, and what they rest on.

    Attributes
    ----------
    answers
        The query's rows for every window in which rows had been shed, from all rows of these windows.
    batches, rows, shed
        How many batches were read again, the rows they hold, and those among them that had been shed.
    """

    answers: DataFrame
    batches: int
    rows: int
    shed: int

    def correct(self, approximate: DataFrame, *, on: Sequence[str]) -> DataFrame:
        """Put the exact answers in place of the approximate ones of the same windows; ``on`` names their columns."""
        windows = self.answers.select(*on).distinct()
        return approximate.join(windows, list(on), "left_anti").unionByName(self.answers.select(*approximate.columns))


def backfill(
    spark: SparkSession,
    *,
    events: DataFrame,
    planner: Planner,
    marking: Marking,
    query: Query,
    window: Column,
    into: str | StorePath,
) -> Backfilled:
    """Answer again, exactly, for the windows in which rows were sampled; see :meth:`Shedder.backfill`."""
    ledger = {batch.batch_id: batch for batch in Ledger(planner.log.path / "ledger").batches()}
    shedding = sorted(number for number, batch in ledger.items() if batch.shed)
    if not shedding:
        raise InvalidInputError(f"nothing was shed on {planner.checkpoint}: there is nothing to backfill")
    spill = _Spill(spark=spark, events=events, planner=planner, marking=marking, into=place(into), ledger=ledger)
    for number in shedding:
        spill.store(number)
    # Also those in which all that was sampled happened to survive: their answers are weighted all the same.
    windows = spill.rows(shedding).where("sampled").select(window.alias("window")).distinct().cache()
    wanted = _with_neighbours(spill, shedding, window, windows)
    rows = spill.rows(wanted)
    touched = rows.withColumn("__window", window).join(
        F.broadcast(windows.withColumnRenamed("window", "__window")), "__window", "left_semi"
    )
    exact = query(touched.drop("__window", *OWN_COLUMNS))
    target = str(spill.into / "exact")
    exact.write.mode("overwrite").parquet(target)
    return Backfilled(
        answers=spark.read.parquet(target),
        batches=len(wanted),
        rows=sum(ledger[number].offered for number in wanted),
        shed=sum(ledger[number].shed for number in wanted),
    )


def run_backfill(build: str, *, into: str) -> Backfilled:
    """Backfill what ``module:function`` builds; the function gets a session and returns shedder, query and window."""
    module_name, _, name = build.partition(":")
    if not name:
        raise InvalidInputError(f"name a function as module:function, got {build!r}")
    sys.path.insert(0, os.getcwd())
    try:
        function = getattr(import_module(module_name), name)
    except (ImportError, AttributeError) as cause:
        raise InvalidInputError(f"{build} cannot be imported ({cause}); run this in the folder of the job") from cause
    spark = SparkSession.getActiveSession() or local_session()
    shedder, query, window = function(spark)
    done: Backfilled = shedder.backfill(query, window=window, into=into)
    return done


def _with_neighbours(spill: _Spill, shedding: Sequence[int], window: Column, windows: DataFrame) -> list[int]:
    """Add batches before, between and after those that shed, as long as they hold rows of a window in question."""
    known = sorted(spill.ledger)
    wanted = set(shedding)
    for start, step in ((number, step) for number in shedding for step in (-1, 1)):
        at = known.index(start) + step
        while 0 <= at < len(known) and known[at] not in wanted:
            number = known[at]
            spill.store(number)
            touched = spill.rows([number]).select(window.alias("window")).join(windows, "window", "left_semi")
            if touched.isEmpty():
                break
            wanted.add(number)
            at += step
    return sorted(wanted)


@dataclass(frozen=True, kw_only=True)
class _Spill:
    """Rows of batches in ``rows/batch=<id>``, each written once and whole."""

    spark: SparkSession
    events: DataFrame
    planner: Planner
    marking: Marking
    into: AnyPath
    ledger: dict[int, Batch]

    def store(self, batch_id: int) -> None:
        """Read a batch again and write its rows, unless that was done before."""
        folder = self._folder(batch_id)
        decision = self.planner.log.decision(batch_id)
        if folder_at(folder).exists("_SUCCESS"):
            return
        if decision is not None:
            entry = read_entry(self.planner.checkpoint, batch_id)
            write = _WriteRows(
                batch_id=batch_id,
                plan=decision.plan,
                planner=self.planner,
                marking=self.marking,
                ends=entry.sources if entry else (),
                path=str(folder),
            )
            done = partial(folder_at(folder).exists, "_SUCCESS")
            run_again(self.events, self.planner, batch_id, write.__call__, done=done, read_all=True)
        if not folder_at(folder).exists("_SUCCESS"):
            raise PlanLogError(
                f"batch {batch_id} cannot be read again: Spark has dropped its offsets, or the source its rows. Run "
                "the backfill sooner, or have Spark keep more (spark.sql.streaming.minBatchesToRetain)"
            )
        self._verify(batch_id)

    def rows(self, batch_ids: Sequence[int]) -> DataFrame:
        """Stored rows of some batches, with what :data:`OWN_COLUMNS` names."""
        return self.spark.read.parquet(*(str(self._folder(number)) for number in batch_ids))

    def _folder(self, batch_id: int) -> AnyPath:
        return self.into / "rows" / f"batch={batch_id}"

    def _verify(self, batch_id: int) -> None:
        counted = self.rows([batch_id]).agg(F.count("*"), F.count_if(F.col("shed"))).first()
        batch = self.ledger[batch_id]
        if counted is None or tuple(counted) != (batch.offered, batch.shed):
            folder_at(self._folder(batch_id)).remove("_SUCCESS")
            raise PlanLogError(
                f"batch {batch_id} was read again and has {counted} rows in all and shed, but the ledger has "
                f"{batch.offered} and {batch.shed}; the source did not give the same rows again"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class _WriteRows:
    """Mark the rows of one batch as its plan did, and write all of them."""

    batch_id: int
    plan: Plan
    planner: Planner
    marking: Marking
    ends: tuple[str, ...]
    path: str

    def __call__(self, events: DataFrame, ran: int) -> None:
        """Do one batch; called by Spark."""
        if ran != self.batch_id:
            return
        marked = mark_planned(self.planner, self.marking, events, self.plan)
        kept, sampled = F.col(KEPT), F.col(THRESHOLD) < WHOLE
        if (was_read := self._was_read()) is not None:
            kept, sampled = kept & was_read, F.lit(True)
        rows = marked.withColumns({"shed": ~kept, "sampled": sampled}).drop(*WORKING)
        if self.marking.weight not in rows.columns:
            rows = rows.withColumn(self.marking.weight, F.lit(1.0))
        rows = rows.withColumn("batch", F.lit(self.batch_id).cast("long")).withColumn("arc", F.lit(self.planner.name))
        rows.withColumn("reason", F.lit(self.plan.reason)).write.mode("overwrite").parquet(self.path)

    def _was_read(self) -> Column | None:
        """Tell, where a source passed ranges over, whether a row was in what it read."""
        ranges = next((found for end in self.ends if (found := read_ranges(end)) is not None), None)
        if ranges is None:
            return None
        blocks = [
            f"(topic = '{topic}' AND partition = {partition} AND offset >= {each.start} AND offset < {each.end})"
            for (topic, partition), each_of in ranges.items()
            for each in each_of
        ]
        return F.expr(" OR ".join(blocks) or "false")
