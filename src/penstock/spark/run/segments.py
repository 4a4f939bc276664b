"""Files of entries by batch id: one for each new entry, merged ten by ten into larger ones.

The name of a file says which batches are in it: ``000000000120-000000000129-10-of-10.jsonl`` has ten entries, from
batch 120 to batch 129, and is the only file with entries of that range of 10. So names alone tell what a ledger holds,
and which files were merged into larger ones, whether those were removed yet or not.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from penstock.model.errors import PlanLogError
from penstock.spark.store.folder import folder_at
from penstock.spark.store.paths import AnyPath

# How many batch ids a file spans. Ranges of a span begin at its multiples.
SPANS = (1, 10, 100, 1_000, 10_000, 100_000)
# Below: JSON lines, which people read with their usual tools. From here on: Parquet, a tenth as large.
COLUMNAR_SPAN = 1_000
# What is in memory at once when a large file is read or written.
ROWS_PER_GROUP = 10_000
# No batch has so high an id.
EVER = 2**62

_NAME = re.compile(r"(\d{12,})-(\d{12,})-(\d+)-of-(\d+)\.(?:jsonl|parquet)")
CURE = "restore the file from a copy, or move it aside: batches that Spark still holds are counted again"

Fields = dict[str, Any]


class MergedAwayError(Exception):
    """A file was merged into a larger one and removed since the folder was listed: list it anew."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """One file of entries: the ids of its ``first`` and ``last`` batch, how many it has, and the ``span`` of its range.

    >>> Segment(first=120, last=128, count=8, span=10).name
    '000000000120-000000000128-8-of-10.jsonl'
    """

    first: int
    last: int
    count: int
    span: int

    @property
    def name(self) -> str:
        """Name of the file."""
        ending = "parquet" if self.columnar else "jsonl"
        return f"{self.first:012d}-{self.last:012d}-{self.count}-of-{self.span}.{ending}"

    @property
    def columnar(self) -> bool:
        """Whether the file is Parquet."""
        return self.span >= COLUMNAR_SPAN

    @property
    def whole(self) -> bool:
        """Whether the name alone tells that no batch between first and last is missing.

        It does not for a single new entry: where a file system has no hard links, its name is there before its text.
        """
        return self.span > 1 and self.count == self.last - self.first + 1


class Holdings:
    """What the files of a folder hold between them: one segment for every range, the rest was merged into these.

    ``until`` is the last batch up to which nothing is overlooked.
    """

    def __init__(self, names: Iterable[str], *, path: AnyPath) -> None:
        self._by_range: dict[tuple[int, int], Segment] = {}
        # Merged or rewritten, and not removed yet: by name, with what has taken its place.
        self.superseded: dict[str, Segment] = {}
        found = sorted((_segment(name, path) for name in names if _is_entry_file(name)), key=_widest_and_fullest_first)
        for segment in found:
            if (holder := self.holder(segment.first, span=segment.span)) is not None:
                self.superseded[segment.name] = holder
            else:
                self.add(segment)
        self.until = self.newest

    @property
    def newest(self) -> int:
        """The last batch of all; -1 if there is none."""
        return max((segment.last for segment in self._by_range.values()), default=-1)

    def __iter__(self) -> Iterator[Segment]:
        return iter(sorted(self._by_range.values(), key=lambda segment: segment.first))

    def holder(self, batch_id: int, *, span: int = 1) -> Segment | None:
        """Find the one file that could have a batch; with ``span``, only among ranges at least as wide."""
        for wide in reversed(SPANS[SPANS.index(span) :]):
            if (segment := self._by_range.get((wide, batch_id // wide))) is not None:
                return segment
        return None

    def add(self, segment: Segment) -> None:
        """Take in a file that was written, in place of what was there of its range."""
        self._by_range[segment.span, segment.first // segment.span] = segment

    def drop(self, segment: Segment) -> None:
        """Forget a file that was merged into another."""
        self._by_range.pop((segment.span, segment.first // segment.span), None)

    def to_merge(self) -> Iterator[tuple[int, Sequence[Segment]]]:
        """Yield, narrowest first, spans with all files that are to be one: of ranges to which no new batch belongs."""
        newest = self.newest
        for span in SPANS[1:]:
            ranges: dict[int, list[Segment]] = {}
            for segment in self:
                if segment.span < span and segment.last // span < newest // span:
                    ranges.setdefault(segment.first // span, []).append(segment)
            yield from ((span, segments) for segments in ranges.values())


class SegmentFiles:
    """Reads and writes the files of a folder; all entries have the columns of ``schema``, ``batch_id`` first."""

    def __init__(self, path: AnyPath, schema: pa.Schema) -> None:
        self.path = path
        self.schema = schema
        self.folder = folder_at(path)
        self._maps = [field.name for field in schema if pa.types.is_map(field.type)]

    def holdings(self) -> Holdings:
        """List what is there.

        A listing is no snapshot: of two files that are created meanwhile, it may have the later one alone. But it has
        all that were there when it began, so a second one has all files before the last one of the first.
        """
        before = Holdings(self.folder.names(), path=self.path)
        held = Holdings(self.folder.names(), path=self.path)
        held.until = before.newest
        return held

    def create(self, fields: Fields) -> Segment | None:
        """Store a new entry; None if its file is there already."""
        # A file that could never be merged is refused now, not when it is too late.
        self.table([fields])
        segment = Segment(first=fields["batch_id"], last=fields["batch_id"], count=1, span=1)
        return segment if self.folder.create(segment.name, _line(fields)) else None

    def write(self, span: int, segments: Sequence[Segment], *, late: Fields | None = None) -> Segment | None:
        """Write what is in some files into one, with an entry that came late; None if there is nothing in them."""
        if span < COLUMNAR_SPAN:
            entries = [*(fields for segment in segments for fields in self.entries(segment)), *([late] if late else [])]
            entries.sort(key=lambda fields: int(fields["batch_id"]))
            ids, content = [fields["batch_id"] for fields in entries], "".join(map(_line, entries)).encode()
            first, last, count = (ids[0], ids[-1], len(ids)) if ids else (0, 0, 0)
        else:
            first, last, count, content = self._columns(segments, late)
        if not count:
            return None
        written = Segment(first=first, last=last, count=count, span=span)
        self.folder.replace(written.name, content)
        return written

    def entries(self, segment: Segment, *, since: int = 0, until: int = EVER) -> Iterator[Fields]:
        """Read the entries of a file in the order of their batches."""
        if segment.columnar:
            groups = self._groups(segment, since=since, until=until)
            for fields in chain.from_iterable(group.to_pylist() for group in groups):
                yield fields | {name: dict(fields[name] or ()) for name in self._maps}
        else:
            yield from (fields for fields in self._lines(segment) if since <= fields["batch_id"] <= until)

    def find(self, segment: Segment, batch_id: int) -> Fields | None:
        """Read the entry of a batch in the file that could have it."""
        return next(self.entries(segment, since=batch_id, until=batch_id), None)

    def ids(self, segment: Segment, *, until: int = EVER) -> npt.NDArray[np.int64]:
        """Read which batches have an entry in a file, in order."""
        if segment.whole:
            ids = np.arange(segment.first, segment.last + 1)
        elif segment.columnar:
            groups = self._groups(segment, columns=["batch_id"])
            ids = np.concatenate([group["batch_id"].to_numpy() for group in groups])
        else:
            ids = np.array([fields["batch_id"] for fields in self._lines(segment)], dtype=np.int64)
        return ids[ids <= until]

    def table(self, entries: list[Fields]) -> pa.Table:
        """Lay entries out in columns."""
        return pa.Table.from_pylist(entries, schema=self.schema)

    def _columns(self, segments: Sequence[Segment], late: Fields | None) -> tuple[int, int, int, bytes]:
        """Write entries of some files as Parquet, and no more of them in memory than a group."""
        buffer, first, last, count = io.BytesIO(), None, 0, 0
        tables = self._tables(segments) if late is None else _with_late(self._tables(segments), self.table([late]))
        with pq.ParquetWriter(buffer, self.schema, compression="zstd", write_page_checksum=True) as writer:
            for table in _grouped(tables):
                first = _first(table) if first is None else first
                last, count = _last(table), count + len(table)
                writer.write_table(table, row_group_size=len(table))
        return first or 0, last, count, buffer.getvalue()

    def _tables(self, segments: Sequence[Segment]) -> Iterator[pa.Table]:
        for segment in segments:
            if segment.columnar:
                yield from self._groups(segment)
            elif lines := list(self._lines(segment)):
                yield self.table(lines)

    def _groups(
        self, segment: Segment, *, since: int = 0, until: int = EVER, columns: list[str] | None = None
    ) -> Iterator[pa.Table]:
        """Read a Parquet file group by group, those without any of the batches left out."""
        data = self.folder.read_bytes(segment.name)
        if data is None:
            raise MergedAwayError(segment.name)
        try:
            file = pq.ParquetFile(io.BytesIO(data), page_checksum_verification=True)
            if file.metadata.num_rows != segment.count or not file.schema_arrow.equals(self.schema):
                raise ValueError(f"{file.metadata.num_rows} entries of {file.schema_arrow.names}")
            for number in range(file.metadata.num_row_groups):
                known = file.metadata.row_group(number).column(0).statistics
                if known.max < since or known.min > until:
                    continue
                table = file.read_row_group(number, columns=columns)
                begin, end = np.searchsorted(table["batch_id"].to_numpy(), (since, until + 1))
                yield table.slice(begin, end - begin)
        except (ValueError, OSError) as cause:
            raise PlanLogError(
                f"the segment {self.path / segment.name} of the ledger cannot be read ({cause}); {CURE}"
            ) from cause

    def _lines(self, segment: Segment) -> list[Fields]:
        """Read a file of JSON lines. An entry that is still being written, or never was to its end, is none yet."""
        data = self.folder.read_bytes(segment.name)
        if data is None:
            raise MergedAwayError(segment.name)
        if segment.span == 1 and not data.endswith(b"\n"):
            return []
        lines = data.splitlines()
        found = [self._fields(line, segment, number) for number, line in enumerate(lines, start=1)]
        if len(found) != segment.count:
            raise PlanLogError(
                f"the segment {self.path / segment.name} of the ledger has {len(found)} entries, its name says "
                f"{segment.count}; {CURE}"
            )
        return found

    def _fields(self, line: bytes, segment: Segment, number: int) -> Fields:
        try:
            fields = json.loads(line)
            if not segment.first <= fields["batch_id"] <= segment.last or fields.keys() != set(self.schema.names):
                raise ValueError(f"batch {fields['batch_id']} with {', '.join(fields)}")
        except (ValueError, TypeError, KeyError, AttributeError) as cause:
            raise PlanLogError(
                f"line {number} of the ledger {self.path / segment.name} cannot be read ({cause!r}); {CURE}"
            ) from cause
        return dict(fields)


def _is_entry_file(name: str) -> bool:
    # A name with a dot in front belongs to a file that is being written.
    return name.endswith((".jsonl", ".parquet")) and not name.startswith(".")


def _segment(name: str, path: AnyPath) -> Segment:
    found = _NAME.fullmatch(name)
    segment = None
    if found is not None:
        first, last, count, span = map(int, found.groups())
        segment = Segment(first=first, last=last, count=count, span=span)
    if segment is None or segment.name != name or segment.span not in SPANS:
        raise PlanLogError(
            f"{path / name} is no file of a ledger as this Penstock writes it (named like "
            "000000000120-000000000129-10-of-10.jsonl); go on with the Penstock that wrote it, start from a new "
            "checkpoint, or move the file elsewhere"
        )
    return segment


def _widest_and_fullest_first(segment: Segment) -> tuple[int, int]:
    # A file with an entry that came late is written beside the one before it, which has one entry less.
    return -segment.span, -segment.count


def _with_late(tables: Iterable[pa.Table], late: pa.Table) -> Iterator[pa.Table]:
    """Put an entry that came late in its place."""
    placed = False
    for table in tables:
        if not placed and _last(table) > _first(late):
            at, placed = np.searchsorted(table["batch_id"].to_numpy(), _first(late)), True
            yield pa.concat_tables([table.slice(0, at), late, table.slice(at)])
        else:
            yield table
    if not placed:
        yield late


def _grouped(tables: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """Put small tables together, so that a large file has few groups."""
    waiting: list[pa.Table] = []
    for table in tables:
        waiting.append(table)
        if sum(map(len, waiting)) >= ROWS_PER_GROUP:
            yield pa.concat_tables(waiting).combine_chunks()
            waiting = []
    if waiting:
        yield pa.concat_tables(waiting).combine_chunks()


def _first(table: pa.Table) -> int:
    return int(table["batch_id"][0].as_py())


def _last(table: pa.Table) -> int:
    return int(table["batch_id"][-1].as_py())


def _line(fields: Fields) -> str:
    return json.dumps(fields) + "\n"
