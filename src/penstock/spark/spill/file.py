"""One Parquet file of a spill: written aside, and put in its place when it is whole."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.model.errors import SpillError
from penstock.spark.store.durable import sync_folders
from penstock.spark.store.objects import store_of
from penstock.spark.store.paths import AnyPath, StorePath

# Under this name Spark looks for its own types in a Parquet file.
SPARK_SCHEMA = b"org.apache.spark.sql.parquet.row.metadata"
# Arrow batches are small, and each that is written makes a row group: some are put together.
GROUP_ROWS, GROUP_BYTES = 128_000, 32 * 1024 * 1024


class SpillFile:
    """Rows of one writer: in a file beside the one to be, or in memory for a store.

    ``name`` makes the name of the file out of the rows in it, and those among them that were shed. ``root`` is the
    folder of the spill, which holds ``folder``.
    """

    def __init__(
        self,
        *,
        root: AnyPath,
        folder: AnyPath,
        name: Callable[[int, int], str],
        batch_id: int,
        constants: dict[str, pa.Scalar],
        columns_json: str,
    ) -> None:
        self._root = root
        self._folder = folder
        self._name = name
        self.batch_id = batch_id
        self._constants = constants
        self._columns_json = columns_json
        self._waiting: list[pa.RecordBatch] = []
        self._rows = self._shed = 0
        self._writer: pq.ParquetWriter | None = None
        self._aside: Path | None = None
        if isinstance(folder, StorePath):
            self._sink: Any = pa.BufferOutputStream()
        else:
            folder.mkdir(parents=True, exist_ok=True)
            self._aside = folder / f".part-{uuid.uuid4().hex}"
            self._sink = self._aside.open("wb")

    def add(self, rows: pa.StructArray) -> None:
        """Take rows in."""
        batch = pa.RecordBatch.from_struct_array(rows)
        self._rows += len(batch)
        self._shed += batch.column("shed").true_count
        self._waiting.append(batch)
        waiting = sum(map(len, self._waiting))
        if waiting >= GROUP_ROWS or sum(each.nbytes for each in self._waiting) >= GROUP_BYTES:
            self._guarded(self._write)

    def finish(self) -> None:
        """Put the file in its place, whole."""
        self._guarded(self._finish)

    def discard(self) -> None:
        """Leave nothing behind of a file that was not finished."""
        if self._aside is not None:
            self._sink.close()
            self._aside.unlink(missing_ok=True)

    def _write(self) -> None:
        table = pa.Table.from_batches(self._waiting)
        self._waiting = []
        for name, value in self._constants.items():
            table = table.append_column(name, _repeated(value, len(table)))
        if self._writer is None:
            schema = table.schema.with_metadata({SPARK_SCHEMA: self._columns_json.encode()})
            self._writer = pq.ParquetWriter(self._sink, schema, compression="zstd", compression_level=1)
        self._writer.write_table(table.replace_schema_metadata(self._writer.schema.metadata))

    def _finish(self) -> None:
        self._write()
        cast("pq.ParquetWriter", self._writer).close()
        name = self._name(self._rows, self._shed)
        if isinstance(self._folder, StorePath):
            data = self._sink.getvalue().to_pybytes()
            store_of(self._folder).replace(f"{self._folder.key}/{name}", data)
        elif self._aside is not None and isinstance(self._root, Path):
            self._sink.flush()
            os.fsync(self._sink.fileno())
            self._sink.close()
            self._aside.replace(self._folder / name)
            # Spark commits once the task is done, and what was shed is nowhere else.
            sync_folders(self._folder, up_to=self._root)

    def _guarded(self, action: Callable[[], None]) -> None:
        try:
            action()
        except (OSError, pa.ArrowException) as cause:
            raise cannot_spill(self.batch_id, self._folder, cause) from cause


def cannot_spill(batch_id: int, folder: AnyPath, cause: Exception) -> SpillError:
    """Say that rows could not be stored, and what follows."""
    told = " ".join(str(cause).split())
    return SpillError(
        f"rows of batch {batch_id} cannot be spilled to {folder} ({told}), so the batch is not committed and nothing "
        "is lost. Make room or mend the disk, then start the query again: it sheds the same rows; or start it without "
        "a spill"
    )


def _repeated(value: pa.Scalar, rows: int) -> pa.Array:
    if not pa.types.is_string(value.type):
        return pa.repeat(value, rows)
    # Said once, and not hashed again for every row.
    return pa.DictionaryArray.from_arrays(pa.repeat(pa.scalar(0, pa.int8()), rows), pa.array([value.as_py()]))
