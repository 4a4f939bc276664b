"""Judge the rows of a batch again as its operator did, without executing anything."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from penstock.model.plan import Plan
from penstock.spark.names import map_in_arrow
from penstock.spark.work.columns import Columns
from penstock.spark.work.task import REPORT, REPORT_DDL, WorkTask


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkMarks:
    """Which rows an operator sheds, by the logged plan alone; travels to where Spark runs a batch again by pickle.

    ``returns`` are the columns of the results, with their weight.
    """

    task: WorkTask
    columns: Columns
    returns: str

    def reported(self, events: DataFrame) -> DataFrame:
        """Run the task: its results, and one row from each partition that reports on it."""
        rows = self.columns.add(events)
        return map_in_arrow(rows, self.task.__call__, f"{self.returns}, {REPORT} {REPORT_DDL}")

    def executed(self, rows: DataFrame) -> DataFrame:
        """Execute the operator on all rows, each with a weight of 1."""
        return map_in_arrow(rows, self.task.execute_all, self.returns)

    def __call__(self, events: DataFrame, _plan: Plan, _ends: tuple[str, ...]) -> DataFrame:
        """Say of each row of a batch whether it was shed, and whether it was sampled."""
        own = [T.StructField(name, T.BooleanType()) for name in ("shed", "sampled")]
        rows = map_in_arrow(self.columns.add(events), self.task.mark, T.StructType([*events.schema.fields, *own]))
        weight = self.task.calling.weight
        return rows if weight in rows.columns else rows.withColumn(weight, F.lit(1.0))

    def mark(self, events: DataFrame, **_: object) -> DataFrame:
        """Decide on the rows of a batch whose counts were lost."""
        return self.reported(events)

    def counts(self, _: DataFrame) -> Sequence[Column]:
        """Aggregates over reported rows: what the ledger and the controller need to know of a batch."""
        report = F.col(REPORT)
        return [
            *(
                F.coalesce(F.sum(report.getField(name)), F.lit(0)).alias(name)
                for name in ("offered", "kept", "shed", "failed")
            ),
            F.min(report.getField("oldest_micros")).alias("oldest_micros"),
            (F.sum(report.getField("sum_micros")) / F.sum(report.getField("kept"))).alias("mean_micros"),
            F.collect_list(report.getField("state")).alias("states"),
        ]
