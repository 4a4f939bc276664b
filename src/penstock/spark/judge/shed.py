"""Judge the rows of a batch again as its shedder did, by the logged plan."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from penstock.model.plan import Plan
from penstock.spark.judge.each_batch import mark_planned
from penstock.spark.judge.marking import KEPT, THRESHOLD, WORKING, Marking
from penstock.spark.judge.sampling import WHOLE
from penstock.spark.sources.offsets import read_ranges


@dataclass(frozen=True, slots=True, kw_only=True)
class ShedMarks:
    """Which rows a shedder sheds; travels to where Spark runs a batch again by pickle."""

    marking: Marking

    def __call__(self, events: DataFrame, plan: Plan, ends: tuple[str, ...]) -> DataFrame:
        """Say of each row of a batch whether it was shed, and whether it was sampled."""
        marked = mark_planned(self.marking, events, plan)
        kept, sampled = F.col(KEPT), F.col(THRESHOLD) < WHOLE
        if (was_read := _was_read(ends)) is not None:
            kept, sampled = kept & was_read, F.lit(True)
        rows = marked.withColumns({"shed": ~kept, "sampled": sampled}).drop(*WORKING)
        weight = self.marking.weight
        return rows if weight in rows.columns else rows.withColumn(weight, F.lit(1.0))


def _was_read(ends: tuple[str, ...]) -> Column | None:
    """Tell, where a source passed ranges over, whether a row was in what it read."""
    ranges = next((found for end in ends if (found := read_ranges(end)) is not None), None)
    if ranges is None:
        return None
    blocks = [
        f"(topic = '{topic}' AND partition = {partition} AND offset >= {each.start} AND offset < {each.end})"
        for (topic, partition), each_of in ranges.items()
        for each in each_of
    ]
    return F.expr(" OR ".join(blocks) or "false")
