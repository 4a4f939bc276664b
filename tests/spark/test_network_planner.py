"""Plans of a network: made from the newest table, logged once, laid out by arc."""

import time
from dataclasses import replace

import pytest

from penstock.control.governor import Governor
from penstock.control.guidance import Guidance
from penstock.model.errors import PlanLogError
from penstock.model.forecast import Forecast
from penstock.model.load import Cost
from penstock.model.network import Network, Operator, Output, Source
from penstock.model.network_plan import Drop, NetworkPlan
from penstock.policy.network.plan_table import PlanTable, TableRow, road_map_table
from penstock.policy.network.roadmap import RoadMap
from penstock.spark.judge.sampling import WHOLE
from penstock.spark.plan.network_column import drops_row
from penstock.spark.plan.network_planner import NetworkPlanner

ARCS = (("", "I"), ("f", "O"), ("f", "P"))


def network() -> Network:
    return Network(
        (
            Source(name="I", tuples_per_second=1),
            Operator(name="f", kind="filter", inputs=("I",), seconds_per_tuple=1.0),
            Operator(name="m", kind="map", inputs=("f",), seconds_per_tuple=1.0),
            Output(name="O", input="m"),
            Output(name="P", input="f"),
        )
    )


def planner(folder, *, tuples: int = 10_000) -> NetworkPlanner:
    """A planner that knows its costs, 1 ms a tuple, and sees a batch of so many."""
    made = NetworkPlanner(checkpoint=folder, governor=Governor(latency_seconds=4.0), name="network", value="score")
    made.log.publish(
        Guidance(
            published_at=time.time(),
            forecast=Forecast(cost=Cost(fixed_seconds=0.0, kept_seconds=1e-3), noise=0.1, late_factor=1.25),
            tuples_per_unit=(1.0,),
        )
    )
    (folder / "offsets").mkdir(parents=True, exist_ok=True)
    (folder / "offsets" / "0").write_text(f'v1\n{{"batchTimestampMs":0}}\n{{"tuples":{tuples}}}\n')
    return made


def publish(made: NetworkPlanner, table: PlanTable, *, latency_seconds: float, shedding: str) -> None:
    """Put a table in force, as the driver does: stored first, then published with what else it has learned."""
    in_force = made.put(table, latency_seconds=latency_seconds, shedding=shedding)
    made.log.publish(replace(made.guidance(), table=in_force))


def test_a_batch_is_planned_from_the_table_and_never_replanned(tmp_path):
    made = planner(tmp_path)
    table = road_map_table(RoadMap.build(network()))
    publish(made, table, latency_seconds=4.0, shedding="random")
    decision = made.decide(0)
    assert decision.plan.sheds
    assert decision.plan.keep <= 0.2  # two of ten seconds fit
    assert decision.plan.network is not None
    assert decision.plan.network.sheds
    publish(made, PlanTable(rows=table.rows[:1]), latency_seconds=400.0, shedding="none")
    assert made.decide(0) == decision
    assert planner(tmp_path).decide(0) == decision


def test_the_latency_target_of_the_table_is_in_force(tmp_path):
    made = planner(tmp_path)
    publish(made, road_map_table(RoadMap.build(network())), latency_seconds=40.0, shedding="random")
    assert made.governing(made.guidance()).latency_seconds == 40.0
    assert not made.decide(0).plan.sheds


def test_without_a_table_everything_is_kept(tmp_path):
    decision = planner(tmp_path).decide(0)
    assert decision.plan.keep == 1.0
    assert decision.plan.network is None


def test_an_earlier_table_is_taken_up_only_if_it_sheds_in_the_same_way(tmp_path):
    made = planner(tmp_path)
    table = road_map_table(RoadMap.build(network()))
    publish(made, table, latency_seconds=7.0, shedding="random")
    earlier = made.published(shedding="random")
    assert earlier is not None
    assert (earlier[0], earlier[1].latency_seconds) == (table, 7.0)
    assert made.published(shedding="uniform") is None


def test_drops_are_laid_out_by_arc_random_ones_as_thresholds_and_semantic_ones_as_ranges(tmp_path):
    made = planner(tmp_path)
    drops = {("", "I"): Drop(0.5), ("f", "P"): Drop(0.3, ((0.0, 10.0), (20.0, 30.0)))}
    row = TableRow(index=0, work_share=1.0, plan=NetworkPlan(reason="none"))
    shed = TableRow(index=1, work_share=0.0, plan=NetworkPlan(drops=drops, reason="some"))
    publish(made, PlanTable(rows=(row, shed)), latency_seconds=4.0, shedding="semantic")
    laid_out = drops_row(made.decide(0), ARCS, value="score")
    assert laid_out == {
        "thresholds": [WHOLE // 2, WHOLE, WHOLE],
        "ranges": [[], [], [{"low": 0.0, "high": 10.0}, {"low": 20.0, "high": 30.0}]],
    }


def test_drops_by_value_are_refused_where_the_network_goes_by_another_column(tmp_path):
    made = planner(tmp_path)
    rows = [TableRow(index=0, work_share=1.0, plan=NetworkPlan(reason="none"))]
    drops = {("f", "P"): Drop(0.3, ((0.0, 10.0),))}
    rows.append(TableRow(index=1, work_share=0.0, plan=NetworkPlan(drops=drops, reason="some")))
    publish(made, PlanTable(rows=tuple(rows)), latency_seconds=4.0, shedding="semantic")
    assert made.decide(0).plan.network.value == "score"
    with pytest.raises(PlanLogError, match=r"batch 0 .* by the value of 'score', .* go by 'age'; go back"):
        drops_row(made.decide(0), ARCS, value="age")
