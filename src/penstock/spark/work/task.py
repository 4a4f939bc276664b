"""What runs in every task of an operator: decide by the logged plan alone, execute, measure, report."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from pyspark import TaskContext

from penstock.control.governor import Decision
from penstock.control.workshop import PartitionReport
from penstock.model.errors import PlanLogError
from penstock.policy.rows.density import fitting_limit
from penstock.policy.rows.load_aware import AT_RANDOM, BY_DENSITY, LEARNED, TRUE, utility_of
from penstock.policy.rows.sequence import decide
from penstock.sketch.cost_pair import CostPair
from penstock.sketch.hashing import item_of
from penstock.spark.plan.column import current_batch_id
from penstock.spark.plan.work_planner import WorkPlanner, get_sketch
from penstock.spark.work.calls import Calling, Calls

if TYPE_CHECKING:
    # Only where rows are spilled: workers start sooner without.
    from penstock.spark.spill.file import SpillFile
    from penstock.spark.spill.writer import Part

ITEM, ARRIVED, UTILITY, TRUE_COST = (f"__penstock_{name}" for name in ("item", "arrived", "utility", "cost"))
WORKING = (ITEM, ARRIVED, UTILITY, TRUE_COST)
REPORT = "__penstock_report"
REPORT_TYPE = pa.struct(
    [
        ("offered", pa.int64()),
        ("kept", pa.int64()),
        ("shed", pa.int64()),
        ("failed", pa.int64()),
        ("oldest_micros", pa.float64()),
        ("sum_micros", pa.float64()),
        ("state", pa.string()),
    ]
)
REPORT_DDL = (
    "struct<offered:bigint,kept:bigint,shed:bigint,failed:bigint,oldest_micros:double,sum_micros:double,state:string>"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkTask:
    """The function that Spark runs over the Arrow batches of a partition; it holds nothing but values.

    With ``execute`` off it only decides and counts, for batches whose counts were lost. With a ``spill`` it stores what
    it sheds, or all. ``stage`` seeds its draws (:func:`~penstock.spark.judge.sampling.stage_seed`).
    """

    calling: Calling
    planner: WorkPlanner
    stage: int
    execute: bool = True
    spill: Part | None = None

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield results and, last, one row that reports on the partition."""
        shift = self._shift(self.planner.decide(current_batch_id()))
        try:
            for batch in batches:
                yield from shift.work(batch)
            # Not reached where the operator fails, or whoever asks has seen enough: then nothing is stored.
            shift.finish_spill()
            yield shift.report()
        finally:
            shift.discard_spill()

    def mark(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield all rows with whether they were shed and sampled, by the logged plan, without executing anything."""
        batch_id = current_batch_id()
        if (logged := self.planner.log.decision(batch_id)) is None:
            raise PlanLogError(
                f"batch {batch_id} has no plan in {self.planner.log.path}, so nobody knows which rows it shed; "
                "restore it from a copy"
            )
        shift = self._shift(logged)
        for batch in batches:
            yield marked(batch, shift.decide(batch)[2])

    def execute_all(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the results of all rows, each with a weight of 1; no plan is needed."""
        calls = Calls(self.calling)
        for batch in batches:
            alike = np.ones(batch.num_rows)
            yield from calls.run(batch, alike, alike)[0]

    def _shift(self, plan: Decision) -> _Shift:
        context = TaskContext.get()
        return _Shift(self, plan, context.partitionId() if context else 0)


class _Shift:
    """One partition's share of one batch."""

    def __init__(self, task: WorkTask, plan: Decision, partition: int) -> None:
        if plan.plan.work is None:
            raise PlanLogError(
                f"batch {plan.batch_id} was not planned for an operator (see {task.planner.log.path}); start from a "
                "new checkpoint, or give the operator a name of its own: name=..."
            )
        self._task = task
        self._calls = Calls(task.calling)
        self._file: SpillFile | None = None
        self._decision = plan
        self._plan = plan.plan.work
        self._known = get_sketch(task.planner.log, self._plan.sketch)
        self._partition = partition
        # The rule that the plan was made for decides, and what is learned is for the one that is in force now.
        rule = task.planner.rule.of(self._plan, batch_id=plan.batch_id)
        shape = task.planner.rule.policy.learning.shape
        self._policy = rule.policy
        self._shedder = rule.shedder(self._plan, partition)
        self._window = np.zeros(rule.constraint.window_tuples)
        # Draws differ between stages, partitions and batches, and are the same in every replay.
        self._seed = np.uint64(item_of(str(task.stage), str(plan.batch_id), str(partition)))
        self._fresh = CostPair(shape)
        # Where every survivor stands for itself, one sketch is both.
        by_density = self._policy.RULE == BY_DENSITY
        self._executed = CostPair(shape) if by_density else self._fresh
        self._offered = self._kept = self._shed = self._unweighed = 0
        self._oldest, self._micros, self._work = np.inf, 0.0, 0.0

    def work(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Decide on an Arrow batch, execute what is kept, and learn from it."""
        items, costs, weights = self.decide(batch)
        chosen = np.flatnonzero(weights)
        self._kept += chosen.size
        self._shed += int(np.count_nonzero(weights == 0))
        self._note_arrivals(batch, chosen)
        if self._task.spill is not None:
            self._store(batch, weights)
        if not chosen.size or not self._task.execute:
            return
        kept = _own(batch) if chosen.size == items.size else _own(batch).take(pa.array(chosen))
        stands_for = weights[chosen]
        results, seconds = self._calls.run(kept, stands_for, costs[chosen])
        self._work += float(seconds.sum())
        self._executed.update(items[chosen], seconds)
        if self._executed is not self._fresh:
            # Density learns as if each survivor came as often as it stands for: else what it drops would be forgotten.
            self._fresh.update(items[chosen], seconds, stands_for)
        for result in results:
            yield self._with_report(result)

    def decide(self, batch: pa.RecordBatch) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Give each tuple of the next Arrow batch its item, what it should cost, and its weight: 0 if it is shed."""
        items = batch.column(ITEM).to_numpy(zero_copy_only=False).astype(np.int64).view(np.uint64)
        costs = self._expected(batch, items)
        weights = self._weights(batch, items, costs)
        self._offered += items.size
        return items, costs, weights

    def finish_spill(self) -> None:
        """Put what was stored in its place."""
        if self._file is not None:
            self._file.finish()

    def discard_spill(self) -> None:
        """Leave nothing behind of a file that was not finished."""
        if self._file is not None:
            self._file.discard()

    def report(self) -> pa.RecordBatch:
        """Make the row that tells the driver what this partition did."""
        state = {
            "partition": self._partition,
            "offered": self._offered,
            "kept": self._kept,
            "failed": self._calls.failed,
            "silent": self._calls.silent,
            "work_seconds": self._work,
            "arrived_at": self._micros / self._kept / 1e6 if self._kept and np.isfinite(self._oldest) else None,
            "pair": base64.b64encode(self._fresh.to_bytes()).decode(),
            "executed": base64.b64encode(self._executed.to_bytes()).decode(),
        }
        row = {
            "offered": self._offered,
            "kept": self._kept,
            "shed": self._shed,
            "failed": self._calls.failed,
            "oldest_micros": float(self._oldest) if np.isfinite(self._oldest) else None,
            "sum_micros": self._micros if self._kept else None,
            "state": json.dumps(state),
        }
        calling = self._task.calling
        fields = [*calling.schema, pa.field(calling.weight, pa.float64())]
        arrays = [pa.nulls(1, field.type) for field in fields]
        return pa.RecordBatch.from_arrays(
            [*arrays, pa.array([row], type=REPORT_TYPE)], names=[*(field.name for field in fields), REPORT]
        )

    def _expected(self, batch: pa.RecordBatch, items: np.ndarray) -> np.ndarray:
        if self._policy.KNOWS == TRUE:
            true = batch.column(TRUE_COST).to_numpy(zero_copy_only=False).astype(np.float64)
            return np.asarray(np.nan_to_num(true))
        if self._policy.KNOWS == LEARNED and self._known is not None:
            return self._known.estimate(items, fallback_seconds=self._plan.mean_seconds) * self._plan.pace
        return np.full(items.size, float(self._shedder["fallback_seconds"][0]))

    def _weights(self, batch: pa.RecordBatch, items: np.ndarray, costs: np.ndarray) -> np.ndarray:
        plan = self._plan
        if not plan.sheds:
            return self._tried(items.size)
        utility = utility_of(items, self._policy.check_utility)
        if UTILITY in batch.schema.names:
            utility = utility * np.nan_to_num(batch.column(UTILITY).to_numpy(zero_copy_only=False).astype(np.float64))
        arrived = self._arrived(batch, items.size)
        if self._policy.RULE == BY_DENSITY and items.size:
            self._set_limit(costs, utility, since=float(arrived[0]) if self._offered else 0.0)
        weights = decide(
            self._policy.RULE, self._shedder, self._window, arrived, costs, utility, self._seed, self._offered
        )
        return weights if self._policy.RULE == BY_DENSITY else self._evened(weights)

    def _set_limit(self, costs: np.ndarray, utility: np.ndarray, *, since: float) -> None:
        """Start from the limit that fits: tuple by tuple it would be found only after some batches.

        An Arrow batch gets its part of what is left of the budget, by the tuples that are still to come.
        """
        since = max(since, float(self._shedder["busy_until"][0]))
        left_seconds = max(0.0, self._plan.interval_seconds - since) * self._plan.share(self._partition)
        due = max(costs.size, self._expected_tuples(costs.size) - self._offered)
        limit = fitting_limit(
            costs,
            utility,
            min_keep=float(self._shedder["min_keep"][0]),
            budget_seconds=left_seconds * costs.size / due,
        )
        self._shedder["price_limit"] = limit
        self._shedder["price_ceiling"] = max(limit, float(self._shedder["price_ceiling"][0]))

    def _expected_tuples(self, size: int) -> float:
        """Tuples that this partition should get in all; ``size`` where nobody knows."""
        plan = self._plan
        state = plan.partitions.get(self._partition)
        share = (state.offered_share if state else None) or 1.0 / max(1, len(plan.partitions))
        return max(1.0, (self._decision.expected_tuples or size) * share)

    def _tried(self, size: int) -> np.ndarray:
        """Keep all, or a random share while costs are not known."""
        keep = self._decision.plan.keep
        if keep == 1:
            return np.ones(size)
        self._shedder["min_keep"] = keep
        nothing = np.zeros(size)
        return decide(AT_RANDOM, self._shedder, self._window, nothing, nothing, nothing, self._seed, self._offered)

    def _evened(self, weights: np.ndarray) -> np.ndarray:
        """Let the survivors of an Arrow batch stand for all of it.

        Load-aware shedding decides by the queue a tuple finds, not by the tuple: it has no rate to be weighed by. Each
        survivor stands for as many as were offered per survivor; what has none to stand for it waits for the next.
        """
        kept = int((weights > 0).sum())
        self._unweighed += weights.size
        if not kept:
            return weights
        evened = np.where(weights > 0, self._unweighed / kept, 0.0)
        self._unweighed = 0
        return evened

    def _arrived(self, batch: pa.RecordBatch, size: int) -> np.ndarray:
        """When each tuple arrived, in seconds since the batch began to collect; evenly spread where nobody knows."""
        plan = self._plan
        if ARRIVED in batch.schema.names:
            micros = batch.column(ARRIVED).to_numpy(zero_copy_only=False).astype(np.float64)
            seconds = np.nan_to_num(micros / 1e6 - plan.starts_at, nan=plan.interval_seconds)
        else:
            seconds = (self._offered + 1.0 + np.arange(size)) / self._expected_tuples(size) * plan.interval_seconds
        return np.asarray(np.clip(seconds, 0.0, plan.interval_seconds))

    def _note_arrivals(self, batch: pa.RecordBatch, chosen: np.ndarray) -> None:
        if ARRIVED not in batch.schema.names or not chosen.size:
            return
        micros = batch.column(ARRIVED).to_numpy(zero_copy_only=False).astype(np.float64)[chosen]
        micros = micros[~np.isnan(micros)]
        if micros.size:
            self._oldest = min(self._oldest, float(micros.min()))
            # Nulls count as the mean of the others.
            self._micros += float(micros.mean()) * chosen.size

    def _store(self, batch: pa.RecordBatch, weights: np.ndarray) -> None:
        """Store what is shed of an Arrow batch, or all of it."""
        part = self._task.spill
        if part is None or (part.spill.rows == "shed" and weights.all()) or not weights.size:
            return
        rows = marked(batch, weights)
        if part.spill.rows == "shed":
            rows = rows.filter(rows.column("shed"))
        self._file = self._file or part.open()
        self._file.add(rows.to_struct_array())

    def _with_report(self, result: pa.RecordBatch) -> pa.RecordBatch:
        nothing = pa.nulls(result.num_rows, REPORT_TYPE)
        return pa.RecordBatch.from_arrays([*result.columns, nothing], names=[*result.schema.names, REPORT])


def marked(batch: pa.RecordBatch, weights: np.ndarray) -> pa.RecordBatch:
    """Say of each row whether it was shed, and whether it was sampled.

    Sampled are rows whose results do not count as one: those that were shed, and those that stand for others.
    """
    rows = _own(batch).append_column("shed", pa.array(weights == 0))
    return rows.append_column("sampled", pa.array(weights != 1))


def _own(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Rows as the stream has them, without the working columns."""
    return batch.select([name for name in batch.schema.names if name not in WORKING])


def read_report(state: str) -> PartitionReport:
    """Read what a task reported."""
    fields = json.loads(state)
    pairs = {name: CostPair.from_bytes(base64.b64decode(fields[name])) for name in ("pair", "executed")}
    return PartitionReport(**{**fields, **pairs})
