"""What the road map promises, over random networks and against the search through all plans."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lab.sim.brute_force import largest_gap
from penstock.model.errors import InvalidInputError
from penstock.model.network import Network, Operator, Output, Source
from penstock.model.quality import LossTolerance
from penstock.policy.network.build import least_step
from penstock.policy.network.places import candidate_arcs
from penstock.policy.network.roadmap import RoadMap
from tests.policy.networks import full_utility, networks

steps = st.sampled_from([0.05, 0.1, 0.3])
kinds = st.fixed_dictionaries({"semantic": st.booleans(), "step": steps})


def levels_for(network: Network) -> int:
    """Keep rates to try at every place, so many that all plans can be gone through."""
    return {1: 11, 2: 11, 3: 7, 4: 5}.get(len(candidate_arcs(network)), 3)


def chain(loss: LossTolerance | None = None) -> Network:
    return Network(
        (
            Source(name="I", tuples_per_second=10),
            Operator(name="f", kind="filter", inputs=("I",), seconds_per_tuple=1.0, selectivity=0.5),
            Output(name="O", input="f", loss=loss or LossTolerance.of((1, 1))),
        )
    )


def test_savings_increase_also_where_utility_hardly_changes_with_the_load():
    def filtering(name: str, above: str) -> Operator:
        return Operator(name=name, kind="filter", inputs=(above,), seconds_per_tuple=1.0)

    network = Network(
        (
            Source(name="I0", tuples_per_second=1.0),
            Source(name="I1", tuples_per_second=1.0),
            filtering("f0", "I0"),
            filtering("f1", "f0"),
            filtering("f2", "f0"),
            Operator(name="u", kind="union", inputs=("f1", "I1"), seconds_per_tuple=1.0),
            Output(name="O0", input="u", loss=LossTolerance.of((0.0, 0.0), (0.3, 1.2), (1.0, 1.2000000417232513))),
            Output(name="O1", input="f2", loss=LossTolerance.of((0.0, 0.0), (1.0, 0.0))),
        )
    )
    assert np.all(np.diff(RoadMap.build(network, step=0.1).savings) > 0)


@given(network=networks(joins=True), step=steps)
@settings(max_examples=80, deadline=None)
def test_savings_of_successive_rows_increase_and_utility_does_not(network, step):
    road_map = RoadMap.build(network, step=step)
    assert np.all(np.diff(road_map.savings) > 0)
    assert np.all(np.diff(road_map.utility_lost) >= -1e-9)
    assert road_map.savings[-1] == pytest.approx(network.load())


@given(network=networks(joins=True), step=steps, data=st.data())
@settings(max_examples=80, deadline=None)
def test_every_plan_delivers_its_cursors_and_reaches_the_promised_load(network, step, data):
    road_map = RoadMap.build(network, step=step)
    index = data.draw(st.integers(0, len(road_map) - 1))
    row = road_map.row(index)
    keeps = row.plan.arc_keep
    assert network.delivered(keeps) == pytest.approx(dict(row.cursors), abs=1e-9)
    assert network.load(keeps) == pytest.approx(network.load() - row.savings, rel=1e-9, abs=1e-9)
    worth = sum(output.loss.utility(row.cursors[output.name]) for output in network.outputs)
    assert full_utility(network) - worth == pytest.approx(row.utility_lost, abs=1e-9)
    assert set(keeps) <= set(candidate_arcs(network))
    assert all(0 <= keep < 1 for keep in keeps.values())


@given(network=networks(unions=True), step=steps, data=st.data())
@settings(max_examples=40, deadline=None)
def test_the_savings_coefficients_of_a_row_times_the_rates_are_its_savings(network, step, data):
    road_map = RoadMap.build(network, step=step)
    index = data.draw(st.integers(0, len(road_map) - 1))
    coefficients = road_map.coefficients(index)
    saved = sum(coefficients[source.name] * source.tuples_per_second for source in network.sources)
    assert saved == pytest.approx(road_map.savings[index], abs=1e-9)


@given(network=networks(valued=True), step=steps, data=st.data())
@settings(max_examples=60, deadline=None)
def test_semantic_rows_too_save_more_and_more_and_never_lose_more_than_random_ones(network, step, data):
    random, semantic = RoadMap.build(network, step=step), RoadMap.build(network, step=step, semantic=True)
    assert np.all(np.diff(semantic.savings) > 0)
    assert np.all(np.diff(semantic.utility_lost) >= -1e-9)
    index = data.draw(st.integers(0, len(semantic) - 1))
    assert all(0 <= drop.keep <= 1 + 1e-9 for drop in semantic.row(index).plan.drops.values())
    assert all(0 <= share <= 1 + 1e-9 for share in semantic.cursors(index).values())
    # Loads differ where selectivities hang on values, so both are compared at the same part of their own load.
    wanted = 0.5
    by_value = semantic.look_up(wanted * semantic.savings[-1])
    at_random = random.look_up(wanted * random.savings[-1])
    assert semantic.savings[by_value] >= wanted * semantic.savings[-1] * (1 - 1e-9)
    assert random.savings[at_random] >= wanted * random.savings[-1] * (1 - 1e-9)


@given(network=networks(joins=True), step=steps, data=st.data())
@settings(max_examples=40, deadline=None)
def test_a_look_up_from_any_cursor_finds_the_first_row_that_sheds_enough(network, step, data):
    road_map = RoadMap.build(network, step=step)
    load = data.draw(st.floats(0, 1)) * road_map.savings[-1]
    cursor = data.draw(st.integers(0, len(road_map) - 1))
    found = road_map.look_up(load, cursor=cursor)
    assert found == road_map.look_up(load)
    assert road_map.savings[found] >= load * (1 - 1e-9)
    assert found == 0 or road_map.savings[found - 1] < load


@given(network=networks(max_queries=3, max_steps=2, sharing=False))
@settings(max_examples=40, deadline=None)
def test_without_sharing_no_plan_at_all_sheds_as_much_for_less(network):
    road_map = RoadMap.build(network, step=0.1)
    assert largest_gap(network, road_map, levels=levels_for(network)) <= 1e-9


@given(network=networks(max_queries=3, max_steps=2, sharing=False, joins=True))
@settings(max_examples=60, deadline=None)
def test_with_joins_no_plan_at_all_sheds_as_much_for_less_beyond_a_step(network):
    step = 0.02
    one_step = step * max(output.loss.slope_below(0.0) for output in network.outputs)  # concave: steepest at the foot
    assert largest_gap(network, RoadMap.build(network, step=step), levels=levels_for(network)) <= one_step + 1e-9


@given(network=networks(max_queries=3, max_steps=2))
@settings(max_examples=40, deadline=None)
def test_with_sharing_no_plan_at_all_sheds_as_much_for_less(network):
    road_map = RoadMap.build(network, step=0.1)
    assert largest_gap(network, road_map, levels=levels_for(network)) <= 1e-9


def test_best_plans_take_drops_back_and_do_not_hang_on_the_unit_of_work():
    """Two inputs behind a split, one of which also meets a third in a union: steps lose a tenth of all utility."""

    def network(unit: float) -> Network:
        def operator(name: str, kind: str, *inputs: str, seconds: float) -> Operator:
            return Operator(name=name, kind=kind, inputs=inputs, seconds_per_tuple=seconds * unit)

        return Network(
            (
                *(Source(name=name, tuples_per_second=10) for name in ("I0", "I1", "I2")),
                operator("both", "union", "I0", "I1", seconds=2.5),
                operator("left", "filter", "both", seconds=0.1),
                operator("right", "union", "I2", "both", seconds=1.5),
                Output(name="O0", input="left", loss=LossTolerance.of((1, 1), (0.54, 0.57))),
                Output(name="O1", input="right", loss=LossTolerance.of((1, 1), (0.61, 0.8))),
            )
        )

    whole, tiny = RoadMap.build(network(1.0)), RoadMap.build(network(1e-9))
    assert largest_gap(network(1.0), whole, levels=5) <= 1e-9
    assert tiny.savings == pytest.approx(whole.savings * 1e-9)
    assert tiny.utility_lost == pytest.approx(whole.utility_lost, abs=1e-9)


def figure_6() -> Network:
    """Operator 1 feeds two queries; a third one shares nothing."""
    return Network(
        (
            Source(name="I1", tuples_per_second=10),
            Source(name="I2", tuples_per_second=10),
            Operator(name="1", kind="filter", inputs=("I1",), seconds_per_tuple=1.0, selectivity=1.0),
            Operator(name="2", kind="filter", inputs=("1",), seconds_per_tuple=1.0),
            Operator(name="3", kind="filter", inputs=("1",), seconds_per_tuple=1.0),
            Operator(name="4", kind="filter", inputs=("I2",), seconds_per_tuple=1.0),
            Output(name="O1", input="2", loss=LossTolerance.of((1, 1), (0.5, 0.95))),
            Output(name="O2", input="3", loss=LossTolerance.of((1, 1), (0.2, 0.9))),
            Output(name="O3", input="4", loss=LossTolerance.of((1, 1), (0.5, 0.7))),
        )
    )


def test_drops_that_both_branches_want_move_above_the_split_and_decisions_below_are_kept():
    road_map = RoadMap.build(figure_6(), step=0.1)
    seen = [road_map.row(index) for index in range(len(road_map))]
    both = [row for row in seen if row.cursors["O1"] < 1 and row.cursors["O2"] < 1 and row.cursors["O2"] > 0]
    assert both
    for row in both:
        top = max(row.cursors["O1"], row.cursors["O2"])
        assert row.plan.keep(("", "I1")) == pytest.approx(top)
        for arc, output in ((("1", "2"), "O1"), (("1", "3"), "O2")):
            # The rule of the paper, 1 - (1-l)/(1-k), in terms of what survives.
            dropped_above, wanted = 1 - top, 1 - row.cursors[output]
            left = 0.0 if wanted <= dropped_above else 1 - (1 - wanted) / (1 - dropped_above)
            assert 1 - row.plan.keep(arc) == pytest.approx(left)


def test_the_step_moves_the_cursor_of_an_output_by_so_much():
    road_map = RoadMap.build(chain(), step=0.1)
    cursors = [road_map.cursors(index)["O"] for index in range(len(road_map))]
    assert cursors == pytest.approx([1 - n / 10 for n in range(11)])
    # p = 1 - (x - 100 STEP) / x for a cursor at x = 80 %
    assert road_map.row(3).plan.keep(("", "I")) / road_map.row(2).plan.keep(("", "I")) == pytest.approx(0.7 / 0.8)


def test_a_drop_that_costs_more_than_it_saves_is_refused_and_one_that_pays_counts_its_cost():
    assert least_step(chain(), 0.05) == pytest.approx(0.05)
    with pytest.raises(InvalidInputError, match="a smaller drop costs more than it saves"):
        RoadMap.build(chain(), step=0.04, drop_seconds=0.05)
    road_map = RoadMap.build(chain(), step=0.1, drop_seconds=0.05)
    assert road_map.savings[1] == pytest.approx(10 * (0.1 * 1.0 - 0.05))  # G(x) = R (x L - D)


@given(network=networks(unions=True), data=st.data())
@settings(max_examples=40, deadline=None)
def test_with_a_cost_per_drop_rows_still_save_more_and_more_and_what_they_say(network, data):
    step = 0.2
    least = min(found for found in network.coefficients().values() if found > 0)
    drop_seconds = data.draw(st.floats(0.01, 0.9)) * step * least
    road_map = RoadMap.build(network, step=step, drop_seconds=drop_seconds)
    assert np.all(np.diff(road_map.savings) > 0)
    index = data.draw(st.integers(0, len(road_map) - 1))
    row = road_map.row(index)
    assert network.load() - network.load(row.plan.arc_keep, drop_seconds=drop_seconds) == pytest.approx(
        row.savings, rel=1e-6, abs=1e-9
    )


def test_the_papers_rule_loses_more_than_the_marginal_one_where_branches_differ():
    """B is costly and tolerant, so it goes first; what is left to save above the split then has another ratio."""
    network = Network(
        (
            Source(name="I1", tuples_per_second=10),
            Source(name="I2", tuples_per_second=10),
            Operator(name="A", kind="filter", inputs=("I1",), seconds_per_tuple=1.0),
            Operator(name="B", kind="filter", inputs=("A",), seconds_per_tuple=10.0),
            Operator(name="C", kind="filter", inputs=("A",), seconds_per_tuple=1.0),
            Operator(name="F", kind="filter", inputs=("I2",), seconds_per_tuple=1.0),
            Output(name="O1", input="B", loss=LossTolerance.of((1, 0.01))),
            Output(name="O2", input="C"),
            Output(name="O3", input="F", loss=LossTolerance.of((1, 0.3))),
        )
    )
    static, marginal = RoadMap.build(network, step=0.1, rule="static"), RoadMap.build(network, step=0.1)
    assert largest_gap(network, marginal, levels=7) <= 1e-9
    assert largest_gap(network, static, levels=7) > 0.1


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"step": 0.0}, r"step must be in \(0, 1\]"),
        ({"rule": "best"}, "'static' is the paper's"),
        ({"drop_seconds": -1.0}, "drop_seconds must be finite and at least 0"),
    ],
)
def test_options_out_of_range_are_refused(options, said):
    with pytest.raises(InvalidInputError, match=said):
        RoadMap.build(chain(), **options)


def test_a_road_map_shows_some_of_its_rows_in_a_notebook():
    shown = RoadMap.build(figure_6(), step=0.1)._repr_html_()
    assert shown.startswith("<table>")
    assert shown.count("<tr>") == 13
    assert "1 -&gt; 3: keep" in shown
