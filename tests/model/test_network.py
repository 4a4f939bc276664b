"""Networks: what may be built, and how loads add up."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.model.errors import InvalidInputError
from penstock.model.network import OUTSIDE, Network, Operator, Output, Source
from penstock.model.network_plan import Drop, NetworkPlan
from penstock.policy.network.places import candidate_arcs
from tests.policy.networks import networks


def step(name: str, *inputs: str, kind="filter", seconds=1.0, passes=1.0) -> Operator:
    return Operator(name=name, kind=kind, inputs=inputs, seconds_per_tuple=seconds, selectivity=passes)


def source(name: str, rate: float = 10.0) -> Source:
    return Source(name=name, tuples_per_second=rate)


def test_the_load_coefficient_of_a_chain_is_the_sum_of_costs_each_times_what_passed_before():
    network = Network(
        (
            source("I"),
            step("1", "I", seconds=10, passes=0.5),
            step("2", "1", seconds=20, passes=0.8),
            step("3", "2", seconds=5),
            Output(name="O", input="3"),
        )
    )
    assert network.coefficients()[("", "I")] == pytest.approx(10 + 0.5 * 20 + 0.5 * 0.8 * 5)


def test_branches_of_a_fan_out_add_and_a_binary_operator_takes_the_rates_of_both_inputs():
    network = Network(
        (
            source("I1", 10),
            source("I2", 20),
            step("1", "I1", seconds=10, passes=0.5),
            step("2", "1", seconds=10, passes=0.8),
            step("3", "1", "I2", kind="union", seconds=5),
            step("4", "3", seconds=10, passes=0.1),
            Output(name="O1", input="2"),
            Output(name="O2", input="4"),
        )
    )
    found = network.coefficients()
    assert found[("", "I1")] == pytest.approx(10 + 0.5 * (10 + 5 + 10))
    assert found[("", "I2")] == pytest.approx(5 + 10)
    assert network.load() == pytest.approx(found[("", "I1")] * 10 + found[("", "I2")] * 20)
    assert network.flows({})[("3", "4")] == pytest.approx(0.5 * 10 + 20)


def test_a_join_delivers_the_product_of_what_its_sides_keep():
    network = Network(
        (source("I1"), source("I2"), step("j", "I1", "I2", kind="join", passes=2.0), Output(name="O", input="j"))
    )
    keep = {("", "I1"): 0.5, ("", "I2"): 0.25}
    assert network.delivered(keep) == {"O": pytest.approx(0.125)}
    assert network.load(keep) == pytest.approx(10 * 0.5 + 10 * 0.25)


@given(network=networks(joins=True), data=st.data())
@settings(max_examples=60, deadline=None)
def test_coefficients_times_rates_are_the_load_under_any_drops(network, data):
    keep = {arc: data.draw(st.floats(0, 1)) for arc in candidate_arcs(network)}
    found = network.coefficients(keep)
    load = sum(found[(OUTSIDE, s.name)] * s.tuples_per_second for s in network.sources)
    assert load == pytest.approx(network.load(keep), rel=1e-9, abs=1e-9)


@pytest.mark.parametrize(
    ("nodes", "said"),
    [
        ((source("a"), source("a"), Output(name="o", input="a")), "given twice"),
        ((source("a"), Output(name="o", input="b")), "no source or operator of the network"),
        ((source("a"), source("b"), Output(name="o", input="a")), "nothing takes what 'b' puts out"),
        ((step("x", "y"), step("y", "x"), Output(name="o", input="y")), "circle among"),
    ],
)
def test_what_is_no_network_is_refused_with_the_reason(nodes, said):
    with pytest.raises(InvalidInputError, match=said):
        Network(nodes)


@pytest.mark.parametrize(
    ("kind", "inputs", "said"),
    [
        ("filter", ("a", "b"), "must be one, as it is a filter"),
        ("join", ("a",), "must be two, as it is a join"),
        ("union", ("a",), "must be two or more"),
        ("join", ("a", "a"), "name one node twice"),
        ("sort", ("a",), "kind of operator 'x' must be one of"),
    ],
)
def test_an_operator_takes_as_many_inputs_as_its_kind_says(kind, inputs, said):
    with pytest.raises(InvalidInputError, match=said):
        Operator(name="x", kind=kind, inputs=inputs, seconds_per_tuple=1.0)


def test_statistics_can_be_replaced_by_name():
    network = Network((source("I"), step("f", "I"), Output(name="O", input="f")))
    changed = network.with_statistics(tuples_per_second={"I": 5}, seconds_per_tuple={"f": 2}, selectivity={"f": 0.5})
    assert (changed.load(), changed.base_flows()[("f", "O")]) == (10, 2.5)


def test_networks_plans_and_graphs_draw_themselves():
    network = Network((source("I"), step("<f>", "I"), Output(name="O", input="<f>")))
    drawn = network._repr_svg_()
    assert drawn.startswith("<svg")
    assert "&lt;f&gt;" in drawn
    assert "<f>" not in drawn
    from penstock.model.drawing import network_svg

    plan = NetworkPlan(drops={("", "I"): Drop(0.5), ("<f>", "O"): Drop(0.2, ((0, 10),))}, reason="r")
    with_drops = network_svg(network, plan, {"O": 0.1})
    assert "50%" in with_drops
    assert "20% by value" in with_drops
    assert "drop values in [0, 10)" in with_drops
    assert "delivered 10%" in with_drops
