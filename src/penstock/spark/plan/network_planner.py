"""Plan a batch of a network: the same governor as elsewhere, with the table that the driver published last."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import ClassVar

from penstock.control.governor import Decision, Governor
from penstock.control.guidance import Guidance, TableInForce
from penstock.policy.baseline import KeepAll
from penstock.policy.network.plan_table import PlanTable
from penstock.spark.plan.log import PlanLog
from penstock.spark.plan.planner import ShedPlanner
from penstock.spark.store.paths import AnyPath


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkPlanner(ShedPlanner):
    """Reads road map and latency target when a batch is planned, for both change while the query runs."""

    CALLED: ClassVar[str] = "network"

    def make(self, batch_id: int) -> Decision:
        """Plan a batch by the table in force, and say which column its drops by value go by."""
        decision = ShedPlanner.make(self, batch_id)
        if decision.plan.network is None:
            return decision
        return replace(decision, plan=replace(decision.plan, network=replace(decision.plan.network, value=self.value)))

    def governing(self, guidance: Guidance) -> Governor:
        """The governor with the newest table as its policy."""
        in_force = guidance.table
        if in_force is None:
            return replace(self.governor, policy=KeepAll())
        table = _table(self.log.path, in_force.digest)
        return replace(self.governor, policy=table, latency_seconds=in_force.latency_seconds)

    def put(self, table: PlanTable, *, latency_seconds: float, shedding: str) -> TableInForce:
        """Store a table, to be published with the guidance that the next batches are planned with."""
        digest = self.log.put(json.dumps(table.to_json(), sort_keys=True))
        return TableInForce(digest=digest, latency_seconds=latency_seconds, shedding=shedding)

    def published(self, *, shedding: str) -> tuple[PlanTable, TableInForce] | None:
        """The table of an earlier run that shed in the same way, and what it was made for; None if there is none."""
        guidance = self.log.guidance()
        in_force = guidance.table if guidance is not None else None
        if in_force is None or in_force.shedding != shedding:
            return None
        return _table(self.log.path, in_force.digest), in_force


@lru_cache(maxsize=2)
def _table(path: AnyPath, digest: str) -> PlanTable:
    return PlanTable.from_json(json.loads(PlanLog(path).get(digest)))
