"""What a handle learns of an operator: what its rows cost, by key, and how far each partition is behind."""

from __future__ import annotations

import threading
import time

from penstock.control.guidance import Guidance
from penstock.control.workplan import Learned
from penstock.control.workshop import PartitionReport, Workshop
from penstock.model.batch import Batch
from penstock.spark.plan.work_planner import WorkPlanner
from penstock.spark.run.learner import Counts
from penstock.spark.work.task import read_report

REMEMBERED_REPORTS = 1_000


class OperatorLearner:
    """Learns from what the partitions report; ``run.operator`` gives it to users."""

    learns = "what rows cost by key"

    def __init__(self, planner: WorkPlanner) -> None:
        self._planner = planner
        self._workshop = Workshop(planner.policy, planner.constraint, resume=planner.work.learned())
        self._reports: dict[int, list[PartitionReport]] = {}
        self._lock = threading.Lock()

    @property
    def reports(self) -> dict[int, list[PartitionReport]]:
        """What each partition did, by batch id; the last batches of this run."""
        with self._lock:
            return dict(self._reports)

    @property
    def learned(self) -> Learned:
        """Costs by key and backlogs by partition, as the next batch is planned with them."""
        return self._workshop.learned(now=time.time())

    def learn(self, batch: Batch, counts: Counts) -> Batch:
        """Merge the sketches of the partitions."""
        reports = [read_report(state) for state in counts.own.get("states") or ()]
        with self._lock:
            self._reports[batch.batch_id] = reports
            self._reports.pop(batch.batch_id - REMEMBERED_REPORTS, None)
        planned = self._planner.work.plan(batch.batch_id)
        if planned is not None and batch.duration_seconds is not None:
            self._workshop.learn(reports, planned[0], duration_seconds=batch.duration_seconds)
        return batch

    def enter(self, batch: Batch, counts: Counts) -> None:
        """Store nothing: the entry has it all."""

    def guidance(self, known: Guidance) -> Guidance:
        """Publish costs and backlogs in a file of their own."""
        self._planner.work.publish(self.learned)
        return known
