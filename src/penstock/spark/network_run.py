"""The handle on a running network: learn its statistics, keep its road map up to date, say what each output gets."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from penstock.control.network_learning import NetworkCounts, NetworkLearning, with_values
from penstock.model.batch import Batch
from penstock.model.network import OUTSIDE, Arc, arc_name
from penstock.model.network import Network as NetworkModel
from penstock.model.network_plan import NetworkPlan
from penstock.policy.latency_target import best_target
from penstock.policy.plan_table import PlanTable, TableRow, input_uniform_table, keep_all_table, road_map_table
from penstock.policy.roadmap import RoadMap
from penstock.spark.ledger import Ledger
from penstock.spark.measure import Progress
from penstock.spark.network_layout import Layout, layout_of, planner_of
from penstock.spark.network_planner import NetworkPlanner
from penstock.spark.runtime import Run
from penstock.spark.storage import Folder

if TYPE_CHECKING:
    from penstock.spark.network import Network

LOGGER = logging.getLogger(__name__)
REBUILD_EVERY_BATCHES = 3
ALLOW_MULTIPLE = "spark.sql.streaming.statefulOperator.allowMultiple"


@dataclass(frozen=True, slots=True, kw_only=True)
class ArcCount:
    """Rows at the drop of one arc in one batch; ``offered = kept + shed``."""

    arc: Arc
    offered: int
    kept: int
    shed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputStatus:
    """What one output got in one batch.

    Attributes
    ----------
    delivered
        Share of its rows that arrived, as measured by their weights; of drops by value, by what was counted at them.
    utility
        What that is worth by its loss-tolerance or value graph, times what the latency leaves of it.
    latency_seconds
        Arrival to commit of the oldest row; None where it is not known.
    row, reason
        The row of the road map in force, and why.
    """

    name: str
    delivered: float
    utility: float
    latency_seconds: float | None
    row: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkBatch:
    """One finished batch of a network."""

    batch: Batch
    plan: NetworkPlan
    arcs: tuple[ArcCount, ...]
    outputs: tuple[OutputStatus, ...]
    operator_tuples: Mapping[str, int]

    @property
    def utility(self) -> float:
        """Utility of all outputs together."""
        return sum(output.utility for output in self.outputs)


def start_network(network: Network, writer: DataStreamWriter) -> NetworkRun:
    """Start the query and its controller."""
    planner = planner_of(network)
    layout = layout_of(network)
    planner.log.verify()
    planner.log.pin_sampling(
        {
            "row_id": [list(source.row_id) for source in network.steps.sources.values()],
            "key": [],
            "seed": network.seed,
            "arcs": [arc_name(arc) for arc in layout.arcs],
        }
    )
    return NetworkRun(network=network, layout=layout, planner=planner, writer=writer)


def _start(spark: SparkSession, writer: DataStreamWriter, planner: NetworkPlanner) -> StreamingQuery:
    """Start the query with one watermark for all of its operators.

    By default Spark works out a watermark for each stateful operator from the plan below it. That walk ends at an
    exchange that is reused, as ours is by all branches but one: state behind it would never be given up.
    """
    before = spark.conf.get(ALLOW_MULTIPLE, "true")
    spark.conf.set(ALLOW_MULTIPLE, "false")
    try:
        return writer.option("checkpointLocation", planner.checkpoint.as_uri()).start()
    finally:
        spark.conf.set(ALLOW_MULTIPLE, str(before))


class NetworkRun(Run):
    """A started network under control; made by :meth:`Network.start <penstock.spark.network.Network.start>`.

    Beside what :class:`~penstock.spark.runtime.Run` has: :attr:`outputs`, :attr:`network_batches`, :attr:`statistics`,
    :attr:`table` and :meth:`arc_ledger_path`.
    """

    def __init__(self, *, network: Network, layout: Layout, planner: NetworkPlanner, writer: DataStreamWriter) -> None:
        self._network, self._layout, self._network_planner = network, layout, planner
        model = network.model
        edges = [edge for output in model.outputs if output.value for edge in output.value.edges]
        self._learning = NetworkLearning(with_values(model, (min(edges), max(edges))) if edges else model)
        self._statistics = self._learning.network()
        self._latency_seconds = network.governor.latency_seconds
        self._network_batches: list[NetworkBatch] = []
        self._since_rebuild = 0
        self._arc_ledger = planner.log.path / "arcs"
        self._table = self._make_table()
        planner.publish(self._table, latency_seconds=self._latency_seconds)
        first = next(iter(network.steps.sources.values())).frame
        super().__init__(
            spark=first.sparkSession,
            start=lambda: _start(first.sparkSession, writer, planner),
            planner=planner,
            close_gaps=self._say_gaps,
        )

    @property
    def table(self) -> PlanTable:
        """The plans in force, most of the work first."""
        return self._table

    @property
    def statistics(self) -> NetworkModel:
        """The network with the rates, costs and selectivities learned so far."""
        return self._statistics

    @property
    def latency_seconds(self) -> float:
        """The latency target in force."""
        return self._latency_seconds

    @property
    def network_batches(self) -> list[NetworkBatch]:
        """Batches that this run has finished, oldest first."""
        with self._changed:
            return list(self._network_batches)

    @property
    def outputs(self) -> dict[str, OutputStatus]:
        """What each output got in the last batch."""
        with self._changed:
            last = self._network_batches[-1:]
        return {output.name: output for batch in last for output in batch.outputs}

    @property
    def arc_ledger_path(self) -> Path:
        """Folder of JSON lines with the counts on every arc, one line per batch."""
        return self._arc_ledger

    def _repr_html_(self) -> str:
        from penstock.model.drawing import status_html

        with self._changed:
            last = self._network_batches[-1] if self._network_batches else None
        return status_html(self._statistics, last.plan if last else None, self.outputs.values())

    def _counts(self, progress: Progress) -> Any:
        return progress.observed.get(self._network_planner.name)

    def _handle(self, progress: Progress) -> None:
        self._progress = progress
        super()._handle(progress)

    def _learn(self, batch: Batch, progress: Progress) -> None:
        """Learn costs from the work that was done, not from the rows that survived somewhere."""
        if self._failure is not None:
            return
        metrics = {name: value for found in progress.observed.values() for name, value in found.items()}
        counts = self._network_counts(metrics)
        decision = self._log.decision(batch.batch_id)
        plan = decision.plan.network if decision and decision.plan.network else NetworkPlan(reason=batch.reason)
        previous = self._network_batches[-1].batch.started_at if self._network_batches else None
        collected = batch.started_at - previous if previous is not None and batch.started_at is not None else None
        try:
            self._learning.learn(counts, seconds=batch.duration_seconds, collected_seconds=collected)
            self._statistics = self._learning.network()
            share = self._learning.work_share(counts, self._statistics)
            worked = round(batch.offered * share)
        except Exception as failure:
            self._failure = failure
            LOGGER.error("%s", self.status.note, exc_info=failure)
            return
        super()._learn(replace(batch, kept=worked, shed=batch.offered - worked), progress)
        done = NetworkBatch(
            batch=batch,
            plan=plan,
            arcs=self._arc_counts(counts),
            outputs=self._output_statuses(batch, plan, metrics, counts),
            operator_tuples={name: int(tuples) for name, tuples in self._learning.taken(counts).items()},
        )
        self._write_arcs(done)
        with self._changed:
            self._network_batches.append(done)
        self._since_rebuild += 1

    def _publish(self) -> None:
        super()._publish()
        if self._since_rebuild >= REBUILD_EVERY_BATCHES and self._failure is None:
            self._since_rebuild = 0
            self._table = self._make_table()
            self._latency_seconds = self._choose_latency()
            self._network_planner.publish(self._table, latency_seconds=self._latency_seconds)

    def _make_table(self) -> PlanTable:
        shedding, statistics = self._network.shedding, self._statistics
        if shedding == "none":
            return keep_all_table(statistics)
        if shedding == "uniform":
            return input_uniform_table(statistics)
        road_map = RoadMap.build(
            statistics, semantic=shedding == "semantic", step=self._network.step, spreads=self._learning.spreads
        )
        return road_map_table(road_map)

    def _choose_latency(self) -> float:
        """Let the latency graphs choose, where the user did not and enough is known."""
        graphs = {o.name: o.latency for o in self._network.model.outputs if o.latency is not None}
        guidance = self._controller.guidance(now=0.0)
        if not (self._network.latency_chosen and graphs and guidance.cost and guidance.tuples_per_second):
            return self._latency_seconds
        chosen = best_target(
            self._table,
            graphs,
            cost=guidance.cost,
            tuples_per_second=guidance.tuples_per_second,
            headroom=self._network.governor.headroom,
        )
        return chosen.latency_seconds

    def _network_counts(self, metrics: Mapping[str, Any]) -> NetworkCounts:
        layout = self._layout
        present = {
            name.removeprefix("present:"): int(v or 0) for name, v in metrics.items() if name.startswith("present:")
        }
        kept = {arc: int(metrics.get(f"kept:{n}") or 0) for n, arc in enumerate(layout.arcs)}
        lanes = {
            arc: {lane: int(metrics.get(f"lane:{layout.arcs.index(arc)}:{n}") or 0) for n, lane in enumerate(ranges)}
            for arc, ranges in layout.lanes.items()
        }
        return NetworkCounts(present=present, kept=kept, lanes=lanes)

    def _arc_counts(self, counts: NetworkCounts) -> tuple[ArcCount, ...]:
        found = []
        for arc in self._layout.arcs:
            kept = counts.kept[arc]
            # An arc out of a source begins behind the drop in front of it.
            source = arc[0] in self._network.steps.sources
            offered = counts.kept[(OUTSIDE, arc[0])] if source else counts.offered(arc)
            found.append(ArcCount(arc=arc, offered=offered, kept=kept, shed=offered - kept))
        return tuple(found)

    def _output_statuses(
        self, batch: Batch, plan: NetworkPlan, metrics: Mapping[str, Any], counts: NetworkCounts
    ) -> tuple[OutputStatus, ...]:
        row = self._row_in_force(plan)
        found = []
        for output in self._network.model.outputs:
            end = output.name
            if self._network.steps.steps.get(output.input).__class__.__name__ == "AggregateStep":
                end = output.input
            reached = sum(
                int(v or 0) for name, v in metrics.items() if name.startswith("reached:") and name.endswith(f">{end}")
            )
            weight = sum(
                float(v or 0) for name, v in metrics.items() if name.startswith("weight:") and name.endswith(f">{end}")
            )
            delivered = min(1.0, reached / weight) if weight else self._expected(output.name, row)
            delivered *= self._kept_by_value(output.name, plan, counts)
            if output.value is not None and row is not None:
                worth = row.utilities.get(output.name, 0.0)
            else:
                worth = output.importance * output.loss.utility(delivered)
            if output.latency is not None and batch.latency_seconds is not None:
                worth *= output.latency.utility(batch.latency_seconds)
            found.append(
                OutputStatus(
                    name=output.name,
                    delivered=delivered,
                    utility=worth,
                    latency_seconds=batch.latency_seconds,
                    row=row.index if row else 0,
                    reason=plan.reason,
                )
            )
        return tuple(found)

    def _expected(self, name: str, row: TableRow | None) -> float:
        return row.cursors.get(name, 1.0) if row else 1.0

    def _row_in_force(self, plan: NetworkPlan) -> TableRow | None:
        """The row that a plan is of; of a table that was replaced since, the row with the same drops or none."""
        return next((row for row in self._table.rows if row.plan.drops == plan.drops), None)

    def _kept_by_value(self, output: str, plan: NetworkPlan, counts: NetworkCounts) -> float:
        """Share that drops by value above an output have left: survivors of those have no larger weight."""
        share = 1.0
        for arc in plan.drops:
            if plan.drops[arc].ranges and output in self._below(arc[1]):
                offered = next(count for count in self._arc_counts(counts) if count.arc == arc)
                share *= offered.kept / offered.offered if offered.offered else 1.0
        return share

    def _below(self, name: str) -> set[str]:
        found = {name}
        for node in self._network.model.order:
            inputs = () if node.name == name else getattr(node, "inputs", None) or (getattr(node, "input", None),)
            if found & set(inputs):
                found.add(node.name)
        return found

    def _write_arcs(self, done: NetworkBatch) -> None:
        """Append the counts of a batch, flushed to disk."""
        line = json.dumps(
            {
                "batch_id": done.batch.batch_id,
                "arcs": [[arc_name(c.arc), c.offered, c.kept, c.shed] for c in done.arcs],
                "outputs": {o.name: [o.delivered, o.utility] for o in done.outputs},
            }
        )
        Folder(self._arc_ledger).path.mkdir(parents=True, exist_ok=True)
        with (self._arc_ledger / f"{done.batch.batch_id // 10_000:08d}.jsonl").open("a", encoding="utf-8") as file:
            file.write(line + "\n")
            file.flush()
            os.fsync(file.fileno())

    def _say_gaps(self, ledger: Ledger) -> list[Batch]:
        """Batches that were committed and not counted stay without an entry: their rows are not read again."""
        planner = self._network_planner
        committed = set(Folder(planner.checkpoint / "commits").ids())
        for batch_id in sorted(committed & set(planner.log.batch_ids()) - ledger.batch_ids):
            LOGGER.warning("batch %d of a network was committed, but its counts were lost: it has no entry", batch_id)
        return []
