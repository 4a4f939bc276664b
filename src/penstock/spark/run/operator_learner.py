"""What a handle learns of an operator: what its rows cost, by key, and how far each partition is behind."""

from __future__ import annotations

import threading
from dataclasses import replace

from penstock.control.guidance import Guidance
from penstock.control.workshop import PartitionReport, Workshop
from penstock.model.batch import Batch
from penstock.spark.plan.work_planner import WorkPlanner, get_sketch, put_sketch
from penstock.spark.run.learner import Counts
from penstock.spark.work.task import read_report

REMEMBERED_REPORTS = 1_000


class OperatorLearner:
    """Learns from what the partitions report; ``run.operator`` gives it to users."""

    learns = "what rows cost by key"

    def __init__(self, planner: WorkPlanner) -> None:
        self._planner = planner
        earlier = planner.log.guidance()
        resume = earlier.work if earlier is not None else None
        self._workshop = Workshop(
            planner.rule.policy,
            planner.rule.constraint,
            resume=resume,
            pair=get_sketch(planner.log, resume.sketch if resume is not None else None),
        )
        self._reports: dict[int, list[PartitionReport]] = {}
        self._lock = threading.Lock()

    @property
    def reports(self) -> dict[int, list[PartitionReport]]:
        """What each partition did, by batch id; the last batches of this run."""
        with self._lock:
            return dict(self._reports)

    @property
    def workshop(self) -> Workshop:
        """Costs by key and backlogs by partition, as the next batch is planned with them."""
        return self._workshop

    def learn(self, batch: Batch, counts: Counts) -> Batch:
        """Merge the sketches of the partitions."""
        reports = [read_report(state) for state in counts.own.get("states") or ()]
        with self._lock:
            self._reports[batch.batch_id] = reports
            self._reports.pop(batch.batch_id - REMEMBERED_REPORTS, None)
        decision = self._planner.log.decision(batch.batch_id)
        if decision is not None and batch.duration_seconds is not None:
            self._workshop.learn(reports, decision, duration_seconds=batch.duration_seconds)
        return batch

    def enter(self, batch: Batch, counts: Counts) -> None:
        """Store nothing: the entry has it all."""

    def guidance(self, known: Guidance) -> Guidance:
        """Name the sketch of costs, and add the backlogs."""
        sketch = put_sketch(self._planner.log, self._workshop.pair)
        return replace(known, work=self._workshop.learned(sketch=sketch))
