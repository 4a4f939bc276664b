"""Plan a batch of a network: the same governor as elsewhere, with the table that the driver published last."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from penstock.control.governor import Governor
from penstock.policy.baseline import KeepAll
from penstock.policy.plan_table import PlanTable
from penstock.spark.plan.planner import Planner

TABLE = "roadmap"


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkPlanner(Planner):
    """Reads road map and latency target when a batch is planned, for both change while the query runs."""

    CALLED: ClassVar[str] = "network"

    def governing(self) -> Governor:
        """The governor with the newest table as its policy."""
        fields = self.log.table(TABLE)
        if fields is None:
            return replace(self.governor, policy=KeepAll())
        return replace(self.governor, policy=PlanTable.from_json(fields), latency_seconds=fields["latency_seconds"])

    def publish(self, table: PlanTable, *, latency_seconds: float, shedding: str) -> None:
        """Replace the table that the next batches are planned with."""
        fields = {**table.to_json(), "latency_seconds": latency_seconds, "shedding": shedding}
        self.log.publish_table(TABLE, fields)

    def published(self, *, shedding: str) -> tuple[PlanTable, float] | None:
        """The table of an earlier run that shed in the same way, and its latency target; None if there is none."""
        fields = self.log.table(TABLE)
        if fields is None or fields["shedding"] != shedding:
            return None
        return PlanTable.from_json(fields), float(fields["latency_seconds"])
