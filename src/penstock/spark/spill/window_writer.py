"""Store the rows of a window when it is answered: what was shed of it, or all.

``query=<id>/window=<start>/part-<bucket>-<batch>-<rows>-<shed>-<offered>-<whole>.parquet``: the start in microseconds;
which bucket, and the batch that answered it; rows and shed rows in the file; rows of the window in this bucket, and in
all. Of a join there are files ``left-...`` and ``right-...``, and the whole is both sides together. There is no ledger
for windows, so names alone say whether one is whole. A batch that is replayed answers the same windows from the same
rows, and puts the same file in the same place.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import types as T

from penstock.model.errors import NotSupportedError
from penstock.policy.contract import Policy
from penstock.policy.strata.windows import Survivors
from penstock.spark.spill.file import SpillFile, cannot_spill
from penstock.spark.spill.folder import files_below
from penstock.spark.spill.options import Spill
from penstock.spark.spill.schema import OF_WINDOW, check_storable, stored_columns
from penstock.spark.store.folder import folder_at
from penstock.spark.store.paths import AnyPath
from penstock.spark.windows.blocks import Stored

ARC = "window"
ONLY, SIDES = "part", ("left", "right")
_PART = re.compile(r"window=(-?\d+)/(part|left|right)-(\d+)-(\d+)-(\d+)-(\d+)-(\d+)-(\d+)\.parquet")


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowPart:
    """The rows of one window in one bucket, as far as the name of their file tells."""

    side: str
    bucket: int
    batch_id: int
    rows: int
    shed: int
    offered: int
    whole: int

    @property
    def name(self) -> str:
        """Name of the file."""
        counts = (self.batch_id, self.rows, self.shed, self.offered, self.whole)
        return f"{self.place}{'-'.join(map(str, counts))}.parquet"

    @property
    def place(self) -> str:
        """How the names of all files begin that may hold these rows."""
        return f"{self.side}-{self.bucket}-"


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowSpill:
    """Where the windows of a query are stored, by side; travels to the executors by pickle."""

    spill: Spill
    checkpoint: AnyPath
    columns_json: Mapping[str, str]
    policy: Policy

    @classmethod
    def of(cls, *streams: T.StructType, spill: Spill, checkpoint: AnyPath, policy: Policy) -> WindowSpill:
        """Refuse what cannot be stored, and make sure that the folder can be written."""
        if spill.keep_batches is not None:
            raise NotSupportedError(
                f"keep_batches={spill.keep_batches} is not for windows, whose query nobody controls; leave it out, and "
                "remove the folders of old windows from time to time"
            )
        for columns in streams:
            check_storable(columns, OF_WINDOW)
        spill.require_writable()
        sides = SIDES if len(streams) > 1 else (ONLY,)
        # Only joins have sides.
        own = OF_WINDOW if len(sides) > 1 else [name for name in OF_WINDOW if name != "side"]
        texts = {side: stored_columns(columns, own).json() for side, columns in zip(sides, streams, strict=True)}
        return cls(spill=spill, checkpoint=checkpoint, columns_json=texts, policy=policy)

    def store(
        self,
        blocks: Sequence[Sequence[Stored]],
        left: Sequence[Survivors],
        *,
        start: int,
        end: int,
        bucket: int,
        batch_id: int,
        whole: int,
    ) -> None:
        """Store what a window has in one bucket, side by side; nothing where it has nothing."""
        for side, its_blocks, its_left in zip(self.columns_json, blocks, left, strict=True):
            if not its_left.offered:
                continue
            rows = pa.concat_tables([_marked(block, its_left, number) for number, block in enumerate(its_blocks)])
            shed = int(pc.sum(rows["shed"]).as_py())
            if self.spill.rows == "shed":
                rows = rows.filter(rows["shed"])
            part = WindowPart(
                side=side,
                bucket=bucket,
                batch_id=batch_id,
                rows=len(rows),
                shed=shed,
                offered=its_left.offered,
                whole=whole,
            )
            self._write(rows, part, start=start, end=end, reason=_reason(self.policy, its_left))

    def _write(self, rows: pa.Table, part: WindowPart, *, start: int, end: int, reason: str) -> None:
        try:
            file = self._open(part, start=start, end=end, reason=reason)
        except OSError as cause:
            raise cannot_spill(part.batch_id, self.spill.folder, cause) from cause
        try:
            # A file without rows has columns all the same: the window shed nothing here, and that is told by its name.
            for batch in rows.combine_chunks().to_batches() or [pa.RecordBatch.from_pylist([], schema=rows.schema)]:
                file.add(batch.to_struct_array())
            file.finish()
        finally:
            file.discard()
        self._remove_others(part, start)

    def _open(self, part: WindowPart, *, start: int, end: int, reason: str) -> SpillFile:
        folder = self._folder(start)
        moment = pa.timestamp("us", tz="UTC")
        return SpillFile(
            root=self.spill.folder,
            folder=folder,
            name=lambda *_: part.name,
            batch_id=part.batch_id,
            constants={
                "window_start": pa.scalar(start, moment),
                "window_end": pa.scalar(end, moment),
                "bucket": pa.scalar(part.bucket, pa.int32()),
                **({} if part.side == ONLY else {"side": pa.scalar(part.side, pa.string())}),
                "batch": pa.scalar(part.batch_id, pa.int64()),
                "arc": pa.scalar(ARC, pa.string()),
                "reason": pa.scalar(reason, pa.string()),
            },
            columns_json=self.columns_json[part.side],
        )

    def _remove_others(self, part: WindowPart, start: int) -> None:
        """Remove what an attempt that was not committed stored of this bucket, with another policy, say."""
        folder = self._folder(start)
        for name in folder_at(folder).ages(suffix=".parquet"):
            if name.startswith(part.place) and name != part.name:
                with suppress(OSError):
                    folder_at(folder).remove(name)

    def _folder(self, start: int) -> AnyPath:
        return self.spill.of_query(self.checkpoint).path / f"window={start}"


def stored_windows(path: AnyPath) -> dict[int, list[WindowPart]]:
    """List what a query has stored, by the start of the window."""
    found: dict[int, list[WindowPart]] = {}
    for name in files_below(path):
        if told := _PART.fullmatch(name):
            start, side = int(told.group(1)), told.group(2)
            bucket, batch_id, rows, shed, offered, whole = map(int, told.groups()[2:])
            found.setdefault(start, []).append(
                WindowPart(
                    side=side, bucket=bucket, batch_id=batch_id, rows=rows, shed=shed, offered=offered, whole=whole
                )
            )
    return found


def _marked(block: Stored, left: Survivors, number: int) -> pa.Table:
    return block.rows.append_column("shed", pa.array(left.left_out(number, len(block.rows))))


def _reason(policy: Policy, left: Survivors) -> str:
    """Say what the policy did to a window in one bucket."""
    missing = f", {left.missing_groups:,} of them without any" if left.missing_groups else ""
    return f"{type(policy).__name__} kept {left.kept:,} of {left.offered:,} rows of {left.groups:,} groups{missing}"
