"""The handle on a running network: learn its statistics, keep its road map up to date, say what each output gets."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from penstock.control.guidance import Guidance, TableInForce
from penstock.control.network_learning import NetworkLearning, with_values
from penstock.model.batch import Batch
from penstock.model.load import Cost
from penstock.model.network import Network as NetworkModel
from penstock.model.network import arc_name
from penstock.model.network_plan import NetworkPlan
from penstock.policy.latency_target import best_target
from penstock.policy.plan_table import PlanTable, input_uniform_table, keep_all_table, road_map_table
from penstock.policy.roadmap import RoadMap
from penstock.spark.compile.layout import Layout, layout_of, planner_of
from penstock.spark.compile.steps import AggregateStep
from penstock.spark.plan.network_planner import NetworkPlanner
from penstock.spark.run.handle import REMEMBERED_BATCHES, Run
from penstock.spark.run.ledger import ArcEntry, ArcLedger, Ledger
from penstock.spark.run.network_counts import NetworkBatch, OutputStatus, Reporter
from penstock.spark.run.progress import Progress
from penstock.spark.spill.reader import prune_spill
from penstock.spark.store.folder import folder_at

if TYPE_CHECKING:
    from penstock.spark.network import Network

LOGGER = logging.getLogger(__name__)
REBUILD_EVERY_BATCHES = 3
ALLOW_MULTIPLE = "spark.sql.streaming.statefulOperator.allowMultiple"


def start_network(network: Network, writer: DataStreamWriter) -> NetworkRun:
    """Start the query and its controller."""
    planner = planner_of(network)
    layout = layout_of(network)
    planner.log.verify()
    if network.spill is not None:
        network.spill.require_writable()
    planner.log.pin_sampling(
        {
            "row_id": [list(source.row_id) for source in network.steps.sources.values()],
            "key": [],
            "seed": network.seed,
            "salt": planner.log.salt(),
            "arcs": [arc_name(arc) for arc in layout.arcs],
        }
    )
    return NetworkRun(network=network, layout=layout, planner=planner, writer=writer)


class NetworkRun(Run):
    """A started network under control; made by :meth:`Network.start <penstock.spark.network.Network.start>`.

    Beside what :class:`~penstock.spark.run.handle.Run` has: :attr:`outputs`, :attr:`network_batches`,
    :attr:`statistics`, :attr:`table` and :meth:`arc_ledger`.
    """

    def __init__(self, *, network: Network, layout: Layout, planner: NetworkPlanner, writer: DataStreamWriter) -> None:
        self._network, self._network_planner = network, planner
        model = network.model
        self._reporter = Reporter(network=model, steps=network.steps, layout=layout)
        edges = [edge for output in model.outputs if output.value for edge in output.value.edges]
        self._learning = NetworkLearning(
            with_values(model, (min(edges), max(edges))) if edges else model,
            window_seconds={
                name: step.window_seconds
                for name, step in network.steps.steps.items()
                if isinstance(step, AggregateStep)
            },
        )
        self._statistics = self._learning.network()
        self._latency_seconds = network.governor.latency_seconds
        self._network_batches: deque[NetworkBatch] = deque(maxlen=REMEMBERED_BATCHES)
        self._since_rebuild = 0
        self._arc_ledger = ArcLedger(planner.log.path / "arcs")
        # What an earlier run has learned stands until this one knows better.
        earlier = planner.published(shedding=network.shedding)
        self._resumed = earlier is not None
        self._table = earlier[0] if earlier else self._make_table()
        if earlier and network.latency_chosen:
            self._latency_seconds = earlier[1].latency_seconds
        self._in_force = self._put_table()
        first = next(iter(network.steps.sources.values())).frame
        super().__init__(
            spark=first.sparkSession,
            writer=writer,
            planner=planner,
            close_gaps=self._say_gaps,
            tidy=partial(prune_spill, network.spill, planner.checkpoint) if network.spill is not None else None,
        )

    def _start_query(self, writer: DataStreamWriter) -> StreamingQuery:
        """Start the query with one watermark for all of its operators.

        By default Spark works out a watermark for each stateful operator from the plan below it. That walk ends at an
        exchange that is reused, as ours is by all branches but one: state behind it would never be given up.
        """
        conf = self._spark.conf
        before = conf.get(ALLOW_MULTIPLE, "true")
        conf.set(ALLOW_MULTIPLE, "false")
        try:
            return super()._start_query(writer)
        finally:
            conf.set(ALLOW_MULTIPLE, str(before))

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
    def learned_cost(self) -> Cost | None:
        """What a batch costs: to start, and per row of the sources that is processed whole or dropped at once."""
        return self._controller.guidance(now=0.0).cost

    @property
    def network_batches(self) -> list[NetworkBatch]:
        """Batches that this run has finished, oldest first."""
        with self._changed:
            return list(self._network_batches)

    @property
    def outputs(self) -> dict[str, OutputStatus]:
        """What each output got in the last batch."""
        with self._changed:
            last = self._network_batches[-1] if self._network_batches else None
        return {output.name: output for output in last.outputs} if last else {}

    def arc_ledger(self, *, last: int | None = None) -> DataFrame:
        """The counts on every arc in every batch, as a DataFrame, like :meth:`ledger`."""
        return self._arc_ledger.frame(self._spark, last=last)

    def _repr_html_(self) -> str:
        from penstock.model.drawing import status_html

        with self._changed:
            last = self._network_batches[-1] if self._network_batches else None
        return status_html(self._statistics, last.plan if last else None, self.outputs.values())

    def _counts(self, progress: Progress) -> Any:
        return progress.observed.get(self._network_planner.name)

    def _learn(self, batch: Batch, progress: Progress) -> None:
        """Learn costs from the work that was done, not from the rows that survived somewhere."""
        if self._failure is not None:
            return
        metrics = {name: value for found in progress.observed.values() for name, value in found.items()}
        try:
            worked = self._take_counts(batch, metrics)
        except Exception as failure:
            self._failure = failure
            LOGGER.error("%s", self.status.note, exc_info=failure)
            return
        super()._learn(replace(batch, kept=worked, shed=batch.offered - worked), progress)
        self._since_rebuild += 1

    def _take_counts(self, batch: Batch, metrics: Mapping[str, Any]) -> int:
        """Learn the statistics of the network and report; return how many rows, processed whole, cost as much."""
        counts = self._reporter.counts(metrics)
        decision = self._log.decision(batch.batch_id)
        plan = decision.plan.network if decision and decision.plan.network else NetworkPlan(reason=batch.reason)
        previous = self._network_batches[-1].batch.started_at if self._network_batches else None
        collected = batch.started_at - previous if previous is not None and batch.started_at is not None else None
        self._learning.learn(counts, seconds=batch.duration_seconds, collected_seconds=collected)
        self._statistics = self._learning.network()
        done = NetworkBatch(
            batch=batch,
            plan=plan,
            arcs=self._reporter.arcs(counts),
            outputs=self._reporter.outputs(batch, plan, metrics, statistics=self._statistics),
            operator_tuples={name: int(tuples) for name, tuples in self._learning.taken(counts).items()},
        )
        self._write_arcs(done)
        with self._changed:
            self._network_batches.append(done)
        return round(batch.offered * self._learning.work_share(counts, self._statistics))

    def _publish(self) -> None:
        super()._publish()
        # The table of an earlier run is better than one from costs that are guessed.
        due = self._since_rebuild >= REBUILD_EVERY_BATCHES and (self._learning.ready or not self._resumed)
        if due and self._failure is None:
            self._since_rebuild = 0
            self._table = self._make_table()
            self._latency_seconds = self._choose_latency()
            self._in_force = self._put_table()
            super()._publish()

    def _guidance(self) -> Guidance:
        return replace(super()._guidance(), table=self._in_force)

    def _put_table(self) -> TableInForce:
        return self._network_planner.put(
            self._table, latency_seconds=self._latency_seconds, shedding=self._network.shedding
        )

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
        if not (self._network.latency_chosen and graphs and guidance.forecast and guidance.tuples_per_second):
            return self._latency_seconds
        chosen = best_target(
            self._table,
            graphs,
            forecast=guidance.forecast,
            tuples_per_second=guidance.tuples_per_second,
        )
        return chosen.latency_seconds

    def _write_arcs(self, done: NetworkBatch) -> None:
        """Enter the counts of a batch on its arcs."""
        self._arc_ledger.append(
            ArcEntry(
                batch_id=done.batch.batch_id,
                arcs={arc_name(c.arc): {"offered": c.offered, "kept": c.kept, "shed": c.shed} for c in done.arcs},
                outputs={o.name: {"delivered": o.delivered, "utility": o.utility} for o in done.outputs},
            )
        )

    def _say_gaps(self, ledger: Ledger) -> list[Batch]:
        """Batches that were committed and not counted stay without an entry: their rows are not read again."""
        planner = self._network_planner
        committed = set(folder_at(planner.checkpoint / "commits").ids())
        for batch_id in ledger.missing(committed & set(planner.log.batch_ids())):
            LOGGER.warning("batch %d of a network was committed, but its counts were lost: it has no entry", batch_id)
        return []
