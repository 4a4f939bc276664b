"""Tuples as blocks: columns of many tuples in one file, with what shedding them needs to know.

A block holds the tuples of one pane and one bucket that arrived in one partition of a micro-batch, as Arrow columns;
beside them stand the group and the hash of each tuple, so that a window is shed without looking at anything else, and
only survivors are ever turned into rows. Blocks are files that are mapped into memory when a window is answered:
none of their bytes pass through Spark's shuffle or its state store, which keep their names.

A *pane* is the part of the time axis between two consecutive window edges; windows are unions of panes. A *bucket*
holds some groups completely, so that windows can be worked on in parallel.
"""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa

from penstock.policy.strata.groups import Floats, GroupConcept, Ints
from penstock.policy.strata.selection import Codes
from penstock.spark.store.durable import sync_all, sync_folders, write_bytes

TIME = "__penstock_time"
KEY = "__penstock_key"
HASH = "__penstock_hash"
VALUE = "__penstock_value"
CODE = "__penstock_code"
KEYS = b"penstock_keys"
WINDOWS = "windows"
WORKING = (TIME, KEY, HASH, VALUE, CODE)

# Keys of buckets, chosen such that Spark's hash sends the n-th to partition n (modulo the number of partitions), for 1,
# 2, 4 and 8 partitions; a test holds them against Spark.
LABELS = (12, 6, 5, 1, 25, 15, 2, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """How a stream is cut into panes and buckets."""

    pane_micros: int
    buckets: int

    def bucket_of(self, keys: Ints) -> npt.NDArray[np.int64]:
        """Spread groups over the buckets, by bits of their hash that nothing else depends on."""
        return (keys >> 17) % self.buckets


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """Where the tuples of one pane and bucket are, and how many there are."""

    pane: int
    bucket: int
    name: str
    tuples: int


@dataclass(frozen=True, slots=True)
class BlockFolder:
    """The blocks of a query: ``<pane>/<bucket>/<name>.arrow``, with the concept of the pane in ``.concept`` beside it.

    Names are never used twice, so that a task that is tried again leaves what it wrote before alone; what nobody refers
    to goes with its pane. A name tells how many rows of the pane came with it, in all buckets together. After the
    commit of a batch its blocks are the only copy of its rows, so contents and names are on the disk before anybody is
    told of them.
    """

    path: Path

    def write(self, batches: Iterable[pa.RecordBatch], cut: Cut) -> list[Block]:
        """Cut the tuples of a partition into blocks.

        Every bucket gets a block for every pane, with the concept of the pane even where it has no tuple of it: so
        all buckets know the whole window, and come to the same quotas.
        """
        filled = [batch for batch in batches if len(batch)]
        if not filled:
            return []
        table = pa.Table.from_batches(filled)
        keys, codes = _numbered(table[KEY].to_numpy())
        panes, pane_of = _numbered(table[TIME].to_numpy() // cut.pane_micros)
        values = table[VALUE].to_numpy() if VALUE in table.column_names else None
        few = len(panes) * cut.buckets < 2**16
        part = (pane_of * cut.buckets + cut.bucket_of(keys)[codes]).astype(np.uint16 if few else np.int64)
        edges = np.concatenate([[0], np.cumsum(np.bincount(part, minlength=len(panes) * cut.buckets))])
        payload = table.drop_columns([name for name in WORKING if name in table.column_names and name != HASH])
        if len(edges) > 2:
            order = np.argsort(part, kind="stable")
            payload, codes = payload.take(pa.array(order)), codes[order]
            values = None if values is None else values[order]
        payload = payload.combine_chunks()
        unique = uuid.uuid4().hex
        written: list[Block] = []
        files: list[Path] = []
        for place, pane in enumerate(panes.tolist()):
            low, high = edges[place * cut.buckets], edges[(place + 1) * cut.buckets]
            name = f"{unique}-{high - low}"
            concept = pack_concept(_concept(keys, codes[low:high], None if values is None else values[low:high]))
            for bucket in range(cut.buckets):
                low, high = edges[place * cut.buckets + bucket : place * cut.buckets + bucket + 2]
                block = Block(pane=pane * cut.pane_micros, bucket=bucket, name=name, tuples=int(high - low))
                folder = self.path / str(block.pane) / str(bucket)
                folder.mkdir(parents=True, exist_ok=True)
                files.append(folder / f"{name}.concept")
                files[-1].write_bytes(concept)
                if block.tuples:
                    present, local = _local(codes[low:high], len(keys))
                    rows = payload.slice(low, high - low).append_column(CODE, pa.array(local))
                    files.append(folder / f"{name}.arrow")
                    _write(rows.replace_schema_metadata({KEYS: keys[present].tobytes()}), files[-1])
                written.append(block)
        sync_all(files, {file.parent for file in files}, up_to=self._checkpoint)
        return written

    def read(self, block: Block) -> Stored:
        """Map a block into memory."""
        table = pa.ipc.open_file(pa.memory_map(str(self._file(block, ".arrow")))).read_all()
        return Stored(
            rows=table.drop_columns([CODE, HASH]).replace_schema_metadata(None),
            keys=np.frombuffer(table.schema.metadata[KEYS], dtype=np.int64),
            codes=table[CODE].chunk(0).to_numpy(),
            hashes=table[HASH].chunk(0).to_numpy(),
        )

    def read_concept(self, block: Block) -> bytes:
        """The packed concept of a block's pane, in the partition that the block came from."""
        return self._file(block, ".concept").read_bytes()

    def panes(self) -> list[int]:
        """List the panes that have blocks."""
        if not self.path.exists():
            return []
        return sorted(int(folder.name) for folder in self.path.iterdir() if folder.name != WINDOWS)

    def rows_in(self, pane: int) -> int:
        """Count the rows of a pane by the names of its blocks; those of a task that was tried again count twice."""
        names = (self.path / str(pane) / "0").glob("*.concept")
        return sum(int(file.stem.rpartition("-")[2]) for file in names)

    def remove_pane(self, pane: int, bucket: int) -> None:
        """Remove the blocks of a pane, and what tasks that failed left there."""
        shutil.rmtree(self.path / str(pane) / str(bucket), ignore_errors=True)
        with suppress(OSError):
            # The last bucket to leave takes the folder with it.
            (self.path / str(pane)).rmdir()

    def write_window(self, end: int, bucket: int, concept: bytes) -> None:
        """Remember the concept of an answered window, for the drift to the next; a replay writes the same again."""
        folder = self.path / WINDOWS / str(bucket)
        folder.mkdir(parents=True, exist_ok=True)
        write_bytes(folder / f"{end}.concept", concept)
        sync_folders(folder, up_to=self._checkpoint)

    def read_window(self, end: int, bucket: int) -> bytes | None:
        """The concept of an answered window; None if it is gone."""
        try:
            return (self.path / WINDOWS / str(bucket) / f"{end}.concept").read_bytes()
        except FileNotFoundError:
            return None

    def remove_windows(self, bucket: int, *, before: int | None) -> None:
        """Remove the concepts of windows that were answered before this one."""
        if before is None:
            return
        for file in (self.path / WINDOWS / str(bucket)).glob("*.concept"):
            if int(file.stem) < before:
                file.unlink(missing_ok=True)

    @property
    def _checkpoint(self) -> Path:
        """The folder above those that are made here and above: ``<checkpoint>/penstock/blocks``."""
        return self.path.parent.parent

    def _file(self, block: Block, ending: str) -> Path:
        return self.path / str(block.pane) / str(block.bucket) / f"{block.name}{ending}"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Stored:
    """A block that was read: its rows, and group and hash of each."""

    rows: pa.Table
    keys: Ints
    codes: Codes
    hashes: Ints

    def coded(self, concept: GroupConcept) -> tuple[Codes, Ints]:
        """Group of each tuple as its place in a concept, and its hash."""
        places = np.searchsorted(concept.keys, self.keys).astype(np.int32)
        return places[self.codes], self.hashes


def gather(blocks: Sequence[Stored], rows: Sequence[Ints] | None) -> pd.DataFrame:
    """Turn the survivors of all blocks into rows; everything, if no rows are named."""
    tables = [block.rows for block in blocks]
    if rows is not None:
        tables = [table.take(pa.array(kept)) for table, kept in zip(tables, rows, strict=True)]
    frame: pd.DataFrame = pa.concat_tables(tables).to_pandas()
    return frame


def pack_concept(concept: GroupConcept) -> bytes:
    """Write a concept to bytes: four arrays of the same length."""
    return b"".join(part.tobytes() for part in (concept.keys, concept.counts, concept.means, concept.squares))


def unpack_concept(packed: bytes) -> GroupConcept:
    """Read what :func:`pack_concept` wrote.

    >>> unpack_concept(pack_concept(GroupConcept.of(np.array([4, 4, 9])))).counts.tolist()
    [2, 1]
    """
    quarter = len(packed) // 4
    ints, floats = np.frombuffer(packed, dtype=np.int64), np.frombuffer(packed, dtype=np.float64)
    groups = quarter // 8
    return GroupConcept(
        keys=ints[:groups],
        counts=ints[groups : 2 * groups],
        means=floats[2 * groups : 3 * groups],
        squares=floats[3 * groups :],
    )


def _numbered(keys: Ints) -> tuple[Ints, Codes]:
    """Number values in ascending order; by hashing, which is several times faster than sorting all of them."""
    codes, distinct = pd.factorize(keys)
    order = np.argsort(distinct)
    places = np.empty(len(order), dtype=np.int32)
    places[order] = np.arange(len(order), dtype=np.int32)
    return np.asarray(distinct)[order], places[codes]


def _concept(keys: Ints, codes: Codes, values: Floats | None) -> GroupConcept:
    present, local = _local(codes, len(keys))
    return GroupConcept.of_codes(keys[present], local, values)


def _local(codes: Codes, groups: int) -> tuple[Ints, Codes]:
    """Number again only the groups that occur."""
    there = np.zeros(groups, dtype=bool)
    there[codes] = True
    present = np.flatnonzero(there)
    places = np.zeros(groups, dtype=np.int32)
    places[present] = np.arange(len(present), dtype=np.int32)
    return present, places[codes]


def _write(table: pa.Table, path: Path) -> None:
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)
