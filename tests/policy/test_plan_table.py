"""Tables of plans, and the latency target that latency graphs choose."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.model.forecast import Forecast
from penstock.model.load import Cost, Load
from penstock.model.quality import LatencyGraph
from penstock.policy.network.latency_target import best_target
from penstock.policy.network.plan_table import PlanTable, input_uniform_table, keep_all_table, road_map_table
from penstock.policy.network.roadmap import RoadMap
from tests.policy.networks import full_utility, networks


def load_of(times: float) -> Load:
    cost = Cost(fixed_seconds=0.0, kept_seconds=times * 1e-4)
    return Load(offered_tuples=10_000, cost=cost, available_seconds=1.0, headroom=1.0)


@given(network=networks(joins=True), times=st.floats(0.1, 20))
@settings(max_examples=40, deadline=None)
def test_a_table_sheds_nothing_while_it_fits_and_else_leaves_no_more_work_than_fits(network, times):
    table = road_map_table(RoadMap.build(network, step=0.1))
    plan = table.decide(load_of(times))
    assert plan.network is not None
    if times <= 1:
        assert (plan.keep, dict(plan.network.drops)) == (1.0, {})
    else:
        left = network.load(plan.network.arc_keep) / network.load()
        assert left == pytest.approx(plan.keep, abs=1e-9)
        assert plan.keep <= 1 / times + 1e-9
        assert "row" in plan.reason
        assert plan.network.reason == plan.reason


@given(network=networks(joins=True), step=st.sampled_from([0.01, 0.1]))
@settings(max_examples=20, deadline=None)
def test_a_table_is_short_ordered_and_survives_json(network, step):
    table = road_map_table(RoadMap.build(network, step=step), most_rows=50)
    assert len(table.rows) <= 51
    shares = [row.work_share for row in table.rows]
    assert shares == sorted(shares, reverse=True)
    assert (shares[0], table.rows[0].utility) == (1.0, pytest.approx(full_utility(network)))
    assert shares[-1] == pytest.approx(0, abs=1e-9)
    assert PlanTable.from_json(json.loads(json.dumps(table.to_json()))) == table


@given(network=networks())
@settings(max_examples=20, deadline=None)
def test_the_road_map_is_worth_no_less_than_uniform_drops_at_the_inputs(network):
    road_map, uniform = road_map_table(RoadMap.build(network, step=0.01)), input_uniform_table(network)
    for times in (1.5, 3.0, 8.0):
        # A row further: the table holds steps of the road map.
        best = road_map.row_for(1 / times + 0.02)
        assert best.utility >= uniform.row_for(1 / times).utility - 1e-9


@given(network=networks())
@settings(max_examples=10, deadline=None)
def test_no_shedding_is_a_table_too(network):
    plan = keep_all_table(network).decide(load_of(50))
    assert plan.keep == 1.0
    assert "nothing may be shed, as asked" in plan.reason


def target(graphs, *, fixed_seconds, tuples_per_second, network):
    table = road_map_table(RoadMap.build(network, step=0.05))
    forecast = Forecast(cost=Cost(fixed_seconds=fixed_seconds, kept_seconds=1e-3))
    return best_target(table, graphs, forecast=forecast, tuples_per_second=tuples_per_second)


@given(network=networks(max_queries=1))
@settings(max_examples=10, deadline=None)
def test_the_target_is_the_shortest_that_loses_nothing_where_the_load_fits(network):
    graph = {"O0": LatencyGraph.of((2, 1.0), (10, 0.0))}
    chosen = target(graph, fixed_seconds=0.1, tuples_per_second=100, network=network)
    assert chosen.latency_seconds == pytest.approx(2)
    assert chosen.utility == pytest.approx(full_utility(network))


def test_waiting_pays_when_starting_a_batch_is_dear_and_answers_lose_little_by_it():
    from tests.policy.test_roadmap import chain

    slow = {"O": LatencyGraph.of((2, 1.0), (20, 0.9), (21, 0.0))}
    fast = {"O": LatencyGraph.of((2, 1.0), (3, 0.0))}
    options = {"fixed_seconds": 0.8, "tuples_per_second": 2_000, "network": chain()}
    assert target(slow, **options).latency_seconds > 8
    assert target(fast, **options).latency_seconds < 3
