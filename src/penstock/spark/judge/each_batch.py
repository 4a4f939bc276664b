"""The plan as literals inside foreachBatch: no subquery, for queries that keep no state after the shedding."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Any

from pyspark.sql import Column, DataFrame, Observation
from pyspark.sql import functions as F

from penstock.model.errors import InvalidInputError
from penstock.model.plan import Plan
from penstock.spark.judge.marking import Marking
from penstock.spark.judge.sampling import table_literal, table_of, threshold_of
from penstock.spark.judge.two_passes import mark_by_concept
from penstock.spark.plan.column import sample_threshold
from penstock.spark.plan.planner import Planner
from penstock.spark.spill.options import Spill
from penstock.spark.spill.writer import spill_shed

# Metrics of an action that ran arrive within milliseconds; without an action they never do.
METRICS_SECONDS = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class EachBatch:
    """Plan, shed and count one batch, hand the survivors on, and store the counts before Spark commits."""

    planner: Planner
    marking: Marking
    spill: Spill | None = None
    write: Callable[[DataFrame, int], Any]

    def __call__(self, events: DataFrame, batch_id: int) -> None:
        """Do one batch; called by Spark."""
        decision = self.planner.decide(batch_id)
        sample = F.lit(sample_threshold(decision))
        marked = mark_planned(self.marking, events, decision.plan, sample=sample)
        observation = Observation(self.planner.name)
        counted = marked.observe(observation, *self.marking.counts(marked))
        if self.spill is not None:
            counted = spill_shed(
                counted, spill=self.spill, planner=self.planner, marking=self.marking, batch_id=batch_id
            )
        self.write(self.marking.survivors(counted), batch_id)
        self.planner.log.record_counts(batch_id, _counts_of(observation, batch_id))


def mark_planned(marking: Marking, rows: DataFrame, plan: Plan, *, sample: Column | None = None) -> DataFrame:
    """Mark the rows of a batch by its logged plan alone; the same rows and plan give the same marks every time."""
    if plan.by_group is not None and plan.sheds:
        return mark_by_concept(marking, rows, plan, plan.by_group)
    table = table_literal(rows.sparkSession, table_of(plan)) if plan.key_keep else None
    return marking.mark(rows, threshold=F.lit(threshold_of(plan.keep)), table=table, sample=sample)


def _counts_of(observation: Observation, batch_id: int) -> Mapping[str, Any]:
    # Spark offers no timeout: without an action its getter waits for ever. A daemon thread may wait with it and
    # does not keep the process alive; an executor's thread would.
    counts: SimpleQueue[Mapping[str, Any]] = SimpleQueue()

    def wait() -> None:
        # Fails only where Spark itself is being stopped, and with it the batch.
        with suppress(Exception):
            counts.put(dict(observation.get))

    Thread(target=wait, name="penstock-counts", daemon=True).start()
    try:
        return counts.get(timeout=METRICS_SECONDS)
    except Empty:
        raise InvalidInputError(
            f"the function given to start_each_batch ran no action on the rows of batch {batch_id}, so they were not "
            "counted; write them somewhere, or call .count()"
        ) from None
