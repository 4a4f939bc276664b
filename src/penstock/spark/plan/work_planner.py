"""Plan one batch of an operator, on whichever executor comes first."""

from __future__ import annotations

import base64
from dataclasses import dataclass, field
from functools import lru_cache
from typing import ClassVar

from penstock.control.governor import Decision
from penstock.control.target import Target
from penstock.control.workplan import RowRule, plan_work
from penstock.sketch.cost_pair import CostPair
from penstock.spark.plan.log import PlanLog
from penstock.spark.plan.planner import Planner
from penstock.spark.store.paths import AnyPath


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkPlanner(Planner):
    """A planner whose batches have budgets, learned costs and a rule that decides row by row."""

    CALLED: ClassVar[str] = "operator"

    # A field in place of the property that others have; the call keeps that from being taken for its default.
    target: Target = field()
    rule: RowRule

    def make(self, batch_id: int) -> Decision:
        """Plan a batch with what the controller has learned so far."""
        return plan_work(self.guidance(), self._demand(batch_id, None), rule=self.rule, target=self.target)


def put_sketch(log: PlanLog, pair: CostPair | None) -> str | None:
    """Store learned costs once per content, and give their digest."""
    return None if pair is None else log.put(base64.b64encode(pair.to_bytes()).decode())


def get_sketch(log: PlanLog, digest: str | None) -> CostPair | None:
    """Read learned costs, once per process."""
    return None if digest is None else _sketch(log.path, digest)


@lru_cache(maxsize=8)
def _sketch(path: AnyPath, digest: str) -> CostPair:
    return CostPair.from_bytes(base64.b64decode(PlanLog(path).get(digest)))
