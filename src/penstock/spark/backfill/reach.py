"""Which batches and which windows a backfill reaches, and which stay as they were since rows of them are gone.

Of a batch that is gone nobody knows which windows it had rows of. But batches follow each other in event time: neither
the oldest nor the newest window of a batch lies before that of the batch before it. So the windows of a batch that is
gone are among those from the first one of the batch before it to the last one of the batch after it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property, reduce

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from penstock.model.batch import Batch
from penstock.model.errors import InvalidInputError, PenstockError
from penstock.spark.backfill.result import Gap
from penstock.spark.backfill.rows import BatchRows

# An end of a range of windows: a moment, or a text that says one.
Moment = datetime | str


@dataclass(frozen=True, slots=True, kw_only=True)
class Period:
    """Windows that start in a stretch of event time; None where it has no end."""

    since_micros: int | None
    until_micros: int | None

    @classmethod
    def of(cls, spark: SparkSession, since: Moment | None, until: Moment | None) -> Period:
        """Take what a user gives; a time without a zone is one of the session."""
        low = None if since is None else _micros(spark, "since", since)
        high = None if until is None else _micros(spark, "until", until)
        if low is not None and high is not None and low >= high:
            raise InvalidInputError(f"since must lie before until, got {since} and {until}; no window is in between")
        return cls(since_micros=low, until_micros=high)

    @property
    def bounded(self) -> bool:
        """Whether windows are left out at all."""
        return self.since_micros is not None or self.until_micros is not None

    def holds(self, name: str) -> Column:
        """Whether a window starts in this period, by the column with its start."""
        held, start = F.lit(True), F.col(name).cast("timestamp") if self.bounded else F.lit(None)
        if self.since_micros is not None:
            held = held & (start >= F.timestamp_micros(F.lit(self.since_micros)))
        if self.until_micros is not None:
            held = held & (start < F.timestamp_micros(F.lit(self.until_micros)))
        return held

    def holds_micros(self, start: int) -> bool:
        """Whether a window that starts here is in this period."""
        return (self.since_micros is None or start >= self.since_micros) and (
            self.until_micros is None or start < self.until_micros
        )

    def may_hold(self, batch: Batch | None) -> bool:
        """Whether a batch may have rows in it: one that was over before it began has none."""
        over = batch.committed_at if batch is not None else None
        return self.since_micros is None or over is None or over * 1e6 >= self.since_micros


@dataclass(frozen=True, kw_only=True)
class Reach:
    """The batches with rows, in order, and how to tell in which windows a batch has rows.

    ``starts`` gives the start of the window of each row of some batches, in the column ``start``.
    """

    stored: BatchRows
    known: Sequence[int]
    starts: Callable[[Sequence[int]], DataFrame]
    period: Period

    def touched(self, shed: Iterable[int]) -> list[int]:
        """Of the batches that shed, list those that are at hand and have rows in windows of the period."""
        found = []
        for number in sorted(shed):
            if not self.stored.has(number):
                continue
            if self.period.bounded:
                ends = self.starts([number]).agg(F.min("start"), F.max("start"))
                since, until = self.period.since_micros, self.period.until_micros
                first, last = (F.unix_micros(F.col(name).cast("timestamp")) for name in ends.columns)
                row = ends.select(first, last).first()
                if row is None or row[0] is None or (since is not None and row[1] < since):
                    continue
                if until is not None and row[0] >= until:
                    # So do all that follow.
                    break
            found.append(number)
        return found

    def with_neighbours(self, touched: Sequence[int], beside: Callable[[int], bool]) -> list[int]:
        """Add batches before, between and after, as long as they are ``beside``; pass over those that are gone."""
        wanted, place = set(touched), self._place
        for start, step in ((number, step) for number in touched for step in (-1, 1)):
            at = place[start] + step
            while 0 <= at < len(self.known) and self.known[at] not in wanted:
                number = self.known[at]
                if self.stored.has(number):
                    if not beside(number):
                        break
                    wanted.add(number)
                at += step
        return sorted(wanted)

    def gaps(self, *, margin_seconds: float = 0.0) -> Gaps:
        """List what is missing and may concern windows of the period; all stretches are wider by a margin."""
        found, frames = [], []
        for run, before, after in self._runs():
            stretch = self._stretch(before, after, margin_seconds).where(self._may_concern()).cache()
            if (row := stretch.first()) is not None:
                reason = self.stored.missing[run[-1]]
                found.append(Gap(batches=tuple(run), reason=reason, first=row["first"], last=row["last"]))
                frames.append(stretch)
        return Gaps(listed=tuple(found), stretches=reduce(DataFrame.union, frames) if frames else None)

    @cached_property
    def _place(self) -> dict[int, int]:
        return {number: at for at, number in enumerate(self.known)}

    def _runs(self) -> list[tuple[list[int], int | None, int | None]]:
        """Batches in a row that are missing, with the nearest before and after them that are not."""
        place, found, at = self._place, list[tuple[list[int], int | None, int | None]](), 0
        for number in sorted(self.stored.missing):
            if place[number] < at:
                continue
            low = high = place[number]
            while low > 0 and not self.stored.has(self.known[low - 1]):
                low -= 1
            while high + 1 < len(self.known) and not self.stored.has(self.known[high + 1]):
                high += 1
            at = high + 1
            before = self.known[low - 1] if low else None
            after = self.known[at] if at < len(self.known) else None
            found.append((list(self.known[low:at]), before, after))
        return found

    def _stretch(self, before: int | None, after: int | None, margin_seconds: float) -> DataFrame:
        """From the first window of one batch to the last one of another."""
        ends = {"first": (before, F.min("start"), -margin_seconds), "last": (after, F.max("start"), margin_seconds)}
        kind = self.starts([each for each in (before, after) if each is not None][:1]).schema["start"].dataType
        frames = []
        for name, (number, end, shift) in ends.items():
            if number is None:
                frames.append(self.stored.spark.range(1).select(F.lit(None).cast(kind).alias(name)))
                continue
            moved = end + F.make_dt_interval(secs=F.lit(shift)) if shift else end
            frames.append(self.starts([number]).agg(moved.alias(name)))
        return frames[0].crossJoin(frames[1])

    def _may_concern(self) -> Column:
        found = F.lit(True)
        first, last = (F.unix_micros(F.col(name).cast("timestamp")) for name in ("first", "last"))
        if self.period.since_micros is not None:
            found = found & F.coalesce(last >= self.period.since_micros, F.lit(True))
        if self.period.until_micros is not None:
            found = found & F.coalesce(first < self.period.until_micros, F.lit(True))
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Gaps:
    """What is missing, and the stretches of windows that may lack rows; None where nothing is missing."""

    listed: tuple[Gap, ...]
    stretches: DataFrame | None

    def approximate(self, windows: DataFrame, start: str) -> DataFrame:
        """Of windows, those that may lack rows, by the column with their start."""
        return windows.where("false") if self.stretches is None else self._joined(windows, start, "left_semi")

    def exact(self, windows: DataFrame, start: str) -> DataFrame:
        """Of windows, those that lack no row."""
        return windows if self.stretches is None else self._joined(windows, start, "left_anti")

    def _joined(self, windows: DataFrame, start: str, kind: str) -> DataFrame:
        at, stretches = F.col(start), F.broadcast(self.stretches)  # type: ignore[arg-type]
        from_first = F.coalesce(at >= F.col("first"), F.lit(True))
        return windows.join(stretches, from_first & F.coalesce(at <= F.col("last"), F.lit(True)), kind)


def nothing_touched(stored: BatchRows, period: Period) -> PenstockError:
    """Say why there is nothing to backfill: all that shed is gone, or nothing was shed."""
    if stored.missing:
        return stored.gone()
    when = " in windows between since and until" if period.bounded else ""
    return InvalidInputError(f"nothing was shed{when} on {stored.planner.checkpoint}: there is nothing to backfill")


def _micros(spark: SparkSession, name: str, moment: Moment) -> int:
    given: object = moment
    if isinstance(given, (datetime, str)):
        row = spark.range(1).select(F.unix_micros(F.lit(given).try_cast("timestamp"))).first()
        if row is not None and row[0] is not None:
            return int(row[0])
    raise InvalidInputError(
        f"{name} must be a moment, got {given!r}; give a datetime, or a text such as '2026-01-31 12:00:00'"
    )
