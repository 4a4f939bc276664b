"""The ledger: what every committed batch offered, kept and shed; and the same for every arc of a network.

Readers never write: an entry is a small file that is there as a whole or not at all, and a file that was merged into a
larger one stays for a while. Whoever enters batches merges files as it goes, see :mod:`penstock.spark.run.segments`.
"""

from __future__ import annotations

import logging
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from itertools import chain
from typing import Any, ClassVar, Generic, TypeVar

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from penstock.model.batch import Batch
from penstock.model.errors import PenstockError, PlanLogError, require_whole
from penstock.spark.run.segments import CURE, Fields, Holdings, MergedAwayError, Segment, SegmentFiles
from penstock.spark.store.paths import AnyPath

LOGGER = logging.getLogger(__name__)

# A file that was merged into a larger one stays for those who are about to read it: a data frame of Spark's reads
# later than it is made, and a listing of a folder is no snapshot of it.
GRACE_SECONDS = 600.0
# Long after the longest write, a file that never got its name belongs to a writer that died.
ABANDONED_SECONDS = 3600.0
# A start must not wait until thousands of files are removed from a store, one by one.
REMOVALS_PER_ENTRY = 20

_DROPS = pa.struct([("offered", pa.int64()), ("kept", pa.int64()), ("shed", pa.int64())])

E = TypeVar("E")


class Entries(ABC, Generic[E]):
    """One entry for every batch, durable when :meth:`append` returns. One process appends; any process may read."""

    schema: ClassVar[pa.Schema]

    def __init__(self, path: AnyPath) -> None:
        self.path = path
        self._files = SegmentFiles(path, self.schema)
        # Only for appending, and only from the first time on: readers list the folder whenever they read.
        self._held: Holdings | None = None
        # Names of files, in the order in which they are to be removed, with when.
        self._removals: deque[tuple[float, str]] = deque()
        self._damaged: set[str] = set()

    @abstractmethod
    def _to_fields(self, entry: E) -> Fields: ...

    @abstractmethod
    def _to_entry(self, fields: Fields) -> E: ...

    @abstractmethod
    def _counts(self, fields: Fields) -> Any:
        """Pick out what a replay of the batch must count again."""

    def append(self, entry: E) -> bool:
        """Enter a batch; False if it was entered before with the same counts."""
        fields = self._to_fields(entry)
        held = self._open() if self._held is None else self._held
        # A write that fails may have been done all the same: whoever tries again looks first.
        self._held = None
        try:
            entered = self._enter(held, fields)
        except MergedAwayError:
            return self.append(entry)
        self._held = held
        self._tidy(held)
        return entered

    def batches(self, *, since: int = 0) -> Iterator[E]:
        """Read the entries back in the order of their batches, ``since`` one on."""
        while True:
            try:
                held = self._files.holdings()
                for segment in (each for each in held if each.last >= since):
                    for fields in self._files.entries(segment, since=since, until=held.until):
                        since = fields["batch_id"] + 1
                        yield self._checked(fields, segment)
            except MergedAwayError:
                continue
            return

    def missing(self, batch_ids: Iterable[int]) -> list[int]:
        """Tell which of some batches have no entry; no more is read than the files that could have one of them."""
        wanted: dict[Segment | None, list[int]] = {}
        held = self._files.holdings()
        for batch_id in sorted(set(batch_ids)):
            wanted.setdefault(held.holder(batch_id), []).append(batch_id)
        found: list[int] = []
        try:
            for segment, numbers in wanted.items():
                entered = self._files.ids(segment) if segment is not None else ()
                found += np.setdiff1d(numbers, entered).tolist()
        except MergedAwayError:
            return self.missing(number for numbers in wanted.values() for number in numbers)
        return sorted(found)

    @property
    def last_id(self) -> int | None:
        """Id of the newest batch with an entry; None before the first."""
        return max((segment.last for segment in self._files.holdings()), default=None)

    def gaps(self) -> list[range]:
        """Tell which batches between the first and the last entry have none.

        Spark also runs batches without rows, to move its watermark: those that had no plan have no entry either.
        """
        found, before = [], None
        for first, last in self._runs():
            if before is not None and first > before + 1:
                found.append(range(before + 1, first))
            before = last
        return found

    def frame(self, spark: SparkSession, *, last: int | None = None) -> DataFrame:
        """Read the entries as a DataFrame, or the ``last`` so many of them.

        It holds what was entered when it was made, and can be read for ten minutes: then make a new one.
        """
        if last is not None:
            require_whole("last", last, meaning="how many batches to read, from the newest back")
        while True:
            try:
                return self._frame(spark, last)
            except MergedAwayError:
                continue

    def _frame(self, spark: SparkSession, last: int | None) -> DataFrame:
        held = self._files.holdings()
        since, until = self._start_of(held, last) if last is not None else 0, held.until
        wanted = [segment for segment in held if segment.last >= since]
        lines = (self._files.entries(each, since=since, until=until) for each in wanted if not each.columnar)
        recent = spark.createDataFrame(self._files.table(list(chain.from_iterable(lines))))
        columnar = [str(self.path / segment.name) for segment in wanted if segment.columnar]
        if not columnar:
            return recent
        older = spark.read.schema(recent.schema).parquet(*columnar)
        return older.where(F.col("batch_id").between(since, until)).unionByName(recent)

    def _start_of(self, held: Holdings, last: int) -> int:
        """Find the batch with which the last so many begin."""
        for segment in reversed(list(held)):
            ids = self._files.ids(segment, until=held.until)
            if len(ids) >= last:
                return int(ids[-last])
            last -= len(ids)
        return 0

    def _runs(self) -> Iterator[tuple[int, int]]:
        """Yield, in order, the first and the last of batches that follow one another."""
        since = 0
        while True:
            try:
                held = self._files.holdings()
                for segment in (each for each in held if each.last >= since):
                    ids = self._files.ids(segment, until=held.until)
                    for run in np.split(ids, np.flatnonzero(np.diff(ids) > 1) + 1):
                        if len(run) and run[-1] >= since:
                            yield int(run[0]), int(run[-1])
                    since = segment.last + 1
            except MergedAwayError:
                continue
            return

    def _checked(self, fields: Fields, segment: Segment) -> E:
        try:
            return self._to_entry(fields)
        except (TypeError, PenstockError) as cause:
            raise PlanLogError(
                f"batch {fields['batch_id']} in {self.path / segment.name} of the ledger is no entry ({cause}); {CURE}"
            ) from cause

    def _open(self) -> Holdings:
        """See what is there before the first entry, and what an earlier writer left to be removed."""
        ages = self._files.folder.ages(suffix="")
        held, now = Holdings(ages, path=self.path), time.monotonic()
        abandoned = [(now, name) for name, age in ages.items() if name.startswith(".") and age > ABANDONED_SECONDS]
        merged = [(now + GRACE_SECONDS - ages[by.name], name) for name, by in held.superseded.items()]
        self._removals = deque(sorted(abandoned + merged))
        return held

    def _enter(self, held: Holdings, fields: Fields) -> bool:
        batch_id = fields["batch_id"]
        holder = held.holder(batch_id)
        if holder is None:
            if (created := self._files.create(fields)) is not None:
                held.add(created)
                return True
            # Another writer was first, or died in the middle of it.
            holder = Segment(first=batch_id, last=batch_id, count=1, span=1)
        entered = self._files.find(holder, batch_id)
        if entered is None:
            self._put(held, holder.span, [holder], late=fields)
            return True
        if self._counts(entered) != self._counts(fields):
            raise PlanLogError(
                f"batch {batch_id} was replayed and counted {self._counts(fields)}, but the ledger in {self.path} has "
                f"{self._counts(entered)}; the source did not give the same rows again, or the plan log was changed"
            )
        return False

    def _put(self, held: Holdings, span: int, segments: list[Segment], *, late: Fields | None = None) -> None:
        """Write some files as one. Only when that is there, those in it are on their way out."""
        written = self._files.write(span, segments, late=late)
        for segment in segments:
            held.drop(segment)
        if written is not None:
            held.add(written)
        due = time.monotonic() + GRACE_SECONDS
        self._removals.extend((due, s.name) for s in segments if written is None or s.name != written.name)

    def _tidy(self, held: Holdings) -> None:
        """Merge one lot of files, so that nobody waits long, and remove some that were merged a while ago."""
        try:
            for span, segments in held.to_merge():
                if self._damaged.isdisjoint(segment.name for segment in segments):
                    self._merge(held, span, list(segments))
                    break
            for _ in range(REMOVALS_PER_ENTRY):
                if not self._removals or self._removals[0][0] > time.monotonic():
                    break
                self._files.folder.remove(self._removals[0][1])
                self._removals.popleft()
        except MergedAwayError:
            # Somebody else was here: see what there is before the next entry.
            self._held = None
        except (OSError, PenstockError) as trouble:
            LOGGER.warning("files of the ledger in %s are not merged or removed (%s)", self.path, trouble)

    def _merge(self, held: Holdings, span: int, segments: list[Segment]) -> None:
        try:
            self._put(held, span, segments)
        except PlanLogError:
            # Left as it is; what can be read of it still can.
            self._damaged.update(segment.name for segment in segments)
            raise


class Ledger(Entries[Batch]):
    """What every committed batch offered, kept and shed.

    Examples
    --------
    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     ledger = Ledger(Path(folder))
    ...     for batch_id in (0, 1, 4):
    ...         entered = ledger.append(Batch(batch_id=batch_id, offered=9, kept=5, shed=4, keep=0.5, reason="burst"))
    ...     [batch.batch_id for batch in ledger.batches()], ledger.gaps(), ledger.missing([1, 2])
    ([0, 1, 4], [range(2, 4)], [2])
    """

    schema = pa.schema(
        [
            *((name, pa.int64()) for name in ("batch_id", "offered", "kept", "shed")),
            ("keep", pa.float64()),
            ("reason", pa.string()),
            *((name, pa.float64()) for name in ("started_at", "duration_seconds", "overhead_seconds")),
            *((name, pa.float64()) for name in ("latency_seconds", "mean_latency_seconds", "backlog_tuples")),
            *((name, pa.int64()) for name in ("listed_offered", "listed_kept", "failed", "unread")),
            ("recounted", pa.bool_()),
            *((name, pa.map_(pa.string(), pa.int64())) for name in ("partition_offered", "partition_backlog")),
            ("outputs", pa.map_(pa.string(), _DROPS)),
        ]
    )

    def _to_fields(self, entry: Batch) -> Fields:
        return asdict(entry)

    def _to_entry(self, fields: Fields) -> Batch:
        return Batch(**fields)

    def _counts(self, fields: Fields) -> Any:
        return {name: fields[name] for name in ("kept", "shed")}


@dataclass(frozen=True, slots=True, kw_only=True)
class ArcEntry:
    """What one batch of a network counted: rows ``offered``, ``kept`` and ``shed`` at the drop of each arc, and by
    output the share that was ``delivered`` and its ``utility``."""

    batch_id: int
    arcs: Mapping[str, Mapping[str, int]]
    outputs: Mapping[str, Mapping[str, float]]

    @property
    def shed(self) -> dict[str, int]:
        """Rows that were dropped, by arc."""
        return {arc: counts["shed"] for arc, counts in self.arcs.items()}


class ArcLedger(Entries[ArcEntry]):
    """What every batch of a network counted on its arcs."""

    schema = pa.schema(
        [
            ("batch_id", pa.int64()),
            ("arcs", pa.map_(pa.string(), _DROPS)),
            ("outputs", pa.map_(pa.string(), pa.struct([("delivered", pa.float64()), ("utility", pa.float64())]))),
        ]
    )

    def _to_fields(self, entry: ArcEntry) -> Fields:
        return asdict(entry)

    def _to_entry(self, fields: Fields) -> ArcEntry:
        return ArcEntry(**fields)

    def _counts(self, fields: Fields) -> Any:
        return fields["arcs"]
