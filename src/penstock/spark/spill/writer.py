"""Store rows as Parquet while they are shed, from inside the tasks that shed them.

A streaming query has one sink, so the rows leave by a side effect: a filter in Python, that looks at every row and lets
pass what is kept. Tasks may run twice. So each writes under a name of its own and renames when it has seen all of its
input; the name says which attempt of which partition it was, and one attempt of each partition is read.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, cast

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T
from pyspark.sql.pandas.functions import arrow_udf

from penstock.spark.judge.marking import KEPT, THRESHOLD, WORKING, Marking
from penstock.spark.judge.sampling import WHOLE
from penstock.spark.names import quoted
from penstock.spark.plan.column import current_batch_id
from penstock.spark.plan.planner import Planner
from penstock.spark.spill.file import SpillFile, cannot_spill
from penstock.spark.spill.folder import SpillFolder, part_name
from penstock.spark.spill.options import Spill
from penstock.spark.spill.schema import OF_STREAM, stored_columns


def spill_shed(
    marked: DataFrame, *, spill: Spill, planner: Planner, marking: Marking, batch_id: int | None = None
) -> DataFrame:
    """Store marked rows as they pass, and let through those that are kept.

    Kept rows reach Python as a null where only shed ones are stored: a bit each. ``batch_id`` is that of the batch, or
    None for a frame that runs inside a streaming query and can ask there.
    """
    names = [name for name in marked.columns if name not in WORKING]
    own = [(~F.col(KEPT)).alias("shed"), (F.col(THRESHOLD) < WHOLE).alias("sampled")]
    row = F.struct(*(F.col(quoted(name)) for name in names), *own)
    columns = marked.select(*map(quoted, names)).schema
    part = Part.of(columns, spill=spill, planner=planner, weight=marking.weight, batch_id=batch_id)
    return marked.where(stored_in_passing(part, row if spill.rows == "all" else F.when(~F.col(KEPT), row)))


def stored_in_passing(part: Part, row: Column) -> Column:
    """Give rows to Python, null where there is nothing to store; whether each goes on."""

    def store(rows: Iterator[pa.Array]) -> Iterator[pa.Array]:
        yield from part.store(rows)

    # PySpark takes the kind from the type hints, and its stubs do not know that form. Not deterministic, or Spark might
    # let later filters run first, or run this one twice.
    return cast("Column", cast("Any", arrow_udf)(store, "boolean").asNondeterministic()(row))


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """What a task needs to know to store its rows; travels to the executors by pickle."""

    spill: Spill
    planner: Planner
    weight: str | None
    columns_json: str
    build: str
    batch_id: int | None

    @classmethod
    def of(
        cls, columns: T.StructType, *, spill: Spill, planner: Planner, weight: str, batch_id: int | None = None
    ) -> Part:
        """Prepare to store rows of these columns, for one build of a query."""
        return cls(
            spill=spill,
            planner=planner,
            weight=None if weight in columns.fieldNames() else weight,
            columns_json=stored_columns(columns, OF_STREAM, weight=weight).json(),
            build=uuid.uuid4().hex,
            batch_id=batch_id,
        )

    def store(self, rows: Iterator[pa.Array]) -> Iterator[pa.Array]:
        """Store rows, null where there is nothing to store, and tell for each whether it goes on."""
        file: SpillFile | None = None
        records: Callable[[pa.StructArray], Iterable[pa.StructArray]] | None = None
        try:
            for each in rows:
                if each.null_count < len(each):
                    file = file or self.open()
                    records = records or self.recording(file.batch_id)
                    for some in records(each.filter(each.is_valid()) if each.null_count else each):
                        file.add(some)
                yield self.goes_on(each)
            # Not reached where whoever asks has seen enough and stops: then there is no file, rather than half of one.
            if file is not None:
                file.finish()
        finally:
            if file is not None:
                file.discard()

    def recording(self, _batch_id: int) -> Callable[[pa.StructArray], Iterable[pa.StructArray]]:
        """Prepare to make records of the rows of a batch: by default, of each row itself."""
        return lambda rows: (rows,)

    def goes_on(self, rows: pa.StructArray) -> pa.Array:
        """Tell which rows go on: those that are not shed, or not here at all."""
        if rows.null_count == len(rows):
            return pa.repeat(True, len(rows))
        shed = rows.field("shed")
        return pc.invert(pc.and_kleene(shed, rows.is_valid()) if rows.null_count else shed)

    def open(self) -> SpillFile:
        """Begin the file of this task."""
        batch_id = current_batch_id() if self.batch_id is None else self.batch_id
        context = cast("TaskContext", TaskContext.get())
        root = self.spill.folder
        # A retry of a stage keeps its number, and every other execution has another one.
        run = f"{self.build}-{context.stageId()}"
        try:
            spilled = self.spill.of_query(self.planner.checkpoint)
            self._keep_beside(spilled, batch_id)
            partition, attempt = context.partitionId(), context.taskAttemptId()
            return SpillFile(
                root=root,
                folder=spilled.run(batch_id, run),
                name=lambda rows, shed: part_name(partition, attempt, rows=rows, shed=shed),
                batch_id=batch_id,
                constants=self._constants(batch_id),
                columns_json=self.columns_json,
            )
        except OSError as cause:
            raise cannot_spill(batch_id, root, cause) from cause

    def _keep_beside(self, spilled: SpillFolder, batch_id: int) -> None:
        """Store what else is to be kept of a batch."""

    def _constants(self, batch_id: int) -> dict[str, pa.Scalar]:
        """What is the same in all rows of a batch, by column, in the order of the columns."""
        reason = self.planner.decide(batch_id).plan.reason
        weight = {} if self.weight is None else {self.weight: pa.scalar(1.0, pa.float64())}
        return {
            **weight,
            "batch": pa.scalar(batch_id, pa.int64()),
            "arc": pa.scalar(self.planner.name, pa.string()),
            "reason": pa.scalar(reason, pa.string()),
        }
