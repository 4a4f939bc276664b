"""What a handle learns of a network: its statistics, the road map that is kept up to date, what each output gets."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from penstock.control.guidance import Guidance, TableInForce
from penstock.control.network_learning import NetworkLearning, with_values
from penstock.model.batch import Batch
from penstock.model.load import Cost
from penstock.model.network import Network as NetworkModel
from penstock.model.network import arc_name
from penstock.model.network_plan import NetworkPlan
from penstock.policy.network.latency_target import best_target
from penstock.policy.network.plan_table import PlanTable, input_uniform_table, keep_all_table, road_map_table
from penstock.policy.network.roadmap import RoadMap
from penstock.spark.compile.layout import Layout, layout_of, planner_of
from penstock.spark.compile.steps import AggregateStep
from penstock.spark.plan.network_planner import NetworkPlanner
from penstock.spark.run.handle import REMEMBERED_BATCHES, Run, start_run
from penstock.spark.run.learner import CostLearner, Counts, Learner
from penstock.spark.run.ledger import ArcEntry, ArcLedger
from penstock.spark.run.network_counts import NetworkBatch, OutputStatus, Reporter
from penstock.spark.run.recount import NetworkRecount
from penstock.spark.spill.reader import prune_spill

if TYPE_CHECKING:
    from penstock.spark.network import Network

REBUILD_EVERY_BATCHES = 3
ALLOW_MULTIPLE = "spark.sql.streaming.statefulOperator.allowMultiple"


def start_network(network: Network, writer: DataStreamWriter) -> Run:
    """Start the query and its control."""
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

    def compose(costs: CostLearner) -> Mapping[str, Learner]:
        return {"network": NetworkLearner(network, layout=layout, planner=planner, costs=costs), "costs": costs}

    first = next(iter(network.steps.sources.values())).frame
    return start_run(
        spark=first.sparkSession,
        writer=writer,
        planner=planner,
        recount=NetworkRecount(network=network, layout=layout, planner=planner),
        compose=compose,
        tidy=partial(prune_spill, network.spill, planner.checkpoint) if network.spill is not None else None,
        start=partial(_start_with_one_watermark, first.sparkSession),
    )


def _start_with_one_watermark(spark: SparkSession, writer: DataStreamWriter) -> StreamingQuery:
    """Start a query with one watermark for all of its operators.

    By default Spark works out a watermark for each stateful operator from the plan below it. That walk ends at an
    exchange that is reused, as ours is by all branches but one: state behind it would never be given up.
    """
    conf = spark.conf
    before = conf.get(ALLOW_MULTIPLE, "true")
    conf.set(ALLOW_MULTIPLE, "false")
    try:
        return writer.start()
    finally:
        conf.set(ALLOW_MULTIPLE, str(before))


class NetworkLearner:
    """Learns what the operators of a network cost and let through; ``run.network`` gives it to users."""

    learns = "the statistics of the network"

    def __init__(self, network: Network, *, layout: Layout, planner: NetworkPlanner, costs: CostLearner) -> None:
        self._network, self._planner, self._costs = network, planner, costs
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
        self._lock = threading.Lock()
        self._batches: deque[NetworkBatch] = deque(maxlen=REMEMBERED_BATCHES)
        self._since_rebuild = 0
        self._arc_ledger = ArcLedger(planner.log.path / "arcs")
        self._spark = next(iter(network.steps.sources.values())).frame.sparkSession
        # What an earlier run has learned stands until this one knows better.
        earlier = planner.published(shedding=network.shedding)
        self._resumed = earlier is not None
        self._table = earlier[0] if earlier else self._make_table()
        if earlier and network.latency_chosen:
            self._latency_seconds = earlier[1].latency_seconds
        self._in_force = self._put_table()

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
        return self._costs.known.cost

    @property
    def batches(self) -> list[NetworkBatch]:
        """Batches that this run has finished, with their plans, arcs and outputs, oldest first."""
        with self._lock:
            return list(self._batches)

    @property
    def outputs(self) -> dict[str, OutputStatus]:
        """What each output got in the last batch."""
        last = self._last
        return {output.name: output for output in last.outputs} if last else {}

    def arc_ledger(self, *, last: int | None = None) -> DataFrame:
        """The counts on every arc in every batch, as a DataFrame, like :meth:`Run.ledger`."""
        return self._arc_ledger.frame(self._spark, last=last)

    def html(self) -> str:
        """Draw the network with the plan in force and the graphs of its outputs."""
        from penstock.model.drawing import status_html

        last = self._last
        return status_html(self._statistics, last.plan if last else None, last.outputs if last else ())

    def learn(self, batch: Batch, counts: Counts) -> Batch:
        """Learn the statistics; costs are then learned from the work that was done, not from rows that survived."""
        found = self._reporter.counts(counts.metrics)
        plan, last = self._plan(batch), self._last
        previous = last.batch.started_at if last else None
        collected = batch.started_at - previous if previous is not None and batch.started_at is not None else None
        self._learning.learn(found, seconds=batch.duration_seconds, collected_seconds=collected)
        self._statistics = self._learning.network()
        done = NetworkBatch(
            batch=batch,
            plan=plan,
            arcs=self._reporter.arcs(found),
            outputs=self._reporter.outputs(batch, plan, counts.metrics, statistics=self._statistics),
            operator_tuples={name: int(tuples) for name, tuples in self._learning.taken(found).items()},
        )
        with self._lock:
            self._batches.append(done)
        self._since_rebuild += 1
        worked = round(batch.offered * self._learning.work_share(found, self._statistics))
        return replace(batch, kept=worked, shed=batch.offered - worked)

    def enter(self, batch: Batch, counts: Counts) -> None:
        """Enter the counts of a batch on its arcs; nothing was learned from one that was counted again."""
        with self._lock:
            done = next((each for each in reversed(self._batches) if each.batch.batch_id == batch.batch_id), None)
        arcs = done.arcs if done is not None else self._reporter.arcs_in(counts.metrics)
        outputs = done.outputs if done is not None else ()
        self._arc_ledger.append(
            ArcEntry(
                batch_id=batch.batch_id,
                arcs={arc_name(c.arc): {"offered": c.offered, "kept": c.kept, "shed": c.shed} for c in arcs},
                outputs={o.name: {"delivered": o.delivered, "utility": o.utility} for o in outputs},
            )
        )

    def guidance(self, known: Guidance) -> Guidance:
        """Name the road map in force: a new one, once there is something new to make it from."""
        # The table of an earlier run is better than one from costs that are guessed.
        if self._since_rebuild >= REBUILD_EVERY_BATCHES and (self._learning.ready or not self._resumed):
            self._table = self._make_table()
            self._latency_seconds = self._choose_latency(known)
            self._in_force = self._put_table()
            self._since_rebuild = 0
        return replace(known, table=self._in_force)

    @property
    def _last(self) -> NetworkBatch | None:
        with self._lock:
            return self._batches[-1] if self._batches else None

    def _plan(self, batch: Batch) -> NetworkPlan:
        decision = self._planner.log.decision(batch.batch_id)
        return decision.plan.network if decision and decision.plan.network else NetworkPlan(reason=batch.reason)

    def _put_table(self) -> TableInForce:
        return self._planner.put(self._table, latency_seconds=self._latency_seconds, shedding=self._network.shedding)

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

    def _choose_latency(self, known: Guidance) -> float:
        """Let the latency graphs choose, where the user did not and enough is known."""
        graphs = {o.name: o.latency for o in self._network.model.outputs if o.latency is not None}
        if not (self._network.latency_chosen and graphs and known.forecast and known.tuples_per_second):
            return self._latency_seconds
        chosen = best_target(
            self._table,
            graphs,
            forecast=known.forecast,
            tuples_per_second=known.tuples_per_second,
        )
        return chosen.latency_seconds
