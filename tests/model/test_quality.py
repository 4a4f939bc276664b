"""QoS graphs: shapes, values, and what is refused."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.model.errors import InvalidInputError
from penstock.model.quality import Histogram, LatencyGraph, LossTolerance, ValueGraph, concave_hull
from penstock.policy.network.semantic import derived_loss_tolerance, dropped_ranges, intervals, predicate
from tests.policy.networks import graphs


def test_a_graph_that_is_not_concave_is_refused_and_its_hull_is_an_explicit_choice():
    points = ((1.0, 1.0), (0.5, 0.1))
    with pytest.raises(InvalidInputError, match=r"must be concave.*take the concave hull"):
        LossTolerance.of(*points)
    hull = LossTolerance.of(*points, hull=True)
    assert hull.points == ((0.0, 0.0), (1.0, 1.0))


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(0, 20)), min_size=2, max_size=12, unique_by=lambda p: p[0]))
def test_the_hull_lies_nowhere_below_the_points_and_is_concave(points):
    hull = concave_hull(points)
    slopes = [(v - u) / (y - x) for (x, u), (y, v) in pairwise(hull)]
    assert all(after <= before + 1e-9 for before, after in pairwise(slopes))
    assert set(hull) <= set(points)
    for x, y in points:
        for (x1, y1), (x2, y2) in pairwise(hull):
            if x1 <= x <= x2:
                assert y <= y1 + (y2 - y1) * (x - x1) / (x2 - x1) + 1e-9


@given(graph=graphs(), share=st.floats(0.001, 1))
def test_the_slope_below_a_share_is_what_a_little_less_loses(graph, share):
    little = 1e-7
    lost = graph.utility(share) - graph.utility(share - little)
    assert lost == pytest.approx(graph.slope_below(share) * little, abs=little * 1e-3) or any(
        abs(x - share) < 1e-6 for x, _ in graph.points
    )


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: LossTolerance.of((0.5, 1.0)), "must reach from share 0 to share 1"),
        (lambda: LossTolerance.of((1.0, 0.5), (0.5, 0.7)), "must not fall"),
        (lambda: LossTolerance.of((1.2, 1.0)), r"must be in \[0, 1\]"),
        (lambda: LatencyGraph.of((1, 0.5), (2, 1.0)), "must not rise"),
        (lambda: LatencyGraph.of((0, 1.0), (1, 0.5), (9, 0.4)), "must be concave"),
        (LatencyGraph.of, "needs corners"),
        (lambda: ValueGraph.of((0, 50, 0.2), (40, 60, 1.0)), "overlap at 40"),
        (lambda: ValueGraph.of((5, 5, 0.2)), "low < high"),
        (lambda: ValueGraph.of((5, 6)), r"\(low, high, utility\)"),
        (lambda: Histogram.of((0, 1, 0)), "a share above 0"),
        (lambda: Histogram.of((0, 2, 1), (1, 3, 1)), "overlap at 1"),
    ],
)
def test_graphs_out_of_shape_are_refused_with_the_reason(make, said):
    with pytest.raises(InvalidInputError, match=said):
        make()


TABLE = intervals(ValueGraph.of((0, 50, 0.2), (51, 100, 1.0)), Histogram.of((0, 50, 0.4), (51, 100, 0.6)))


def test_the_papers_table_figure_and_predicates():
    assert TABLE[0].normalized == pytest.approx(0.1176, abs=5e-5)
    (_, _), (share, utility), (_, _) = derived_loss_tolerance(TABLE).points
    assert (share, round(utility, 2)) == (pytest.approx(0.6), 0.88)
    assert predicate(dropped_ranges(TABLE, 0.2), lowest=0, whole=True) == "value >= 25"
    assert predicate(dropped_ranges(TABLE, 0.7), lowest=0, whole=True) == "value > 75"


def test_a_sloped_piece_is_cut_into_chunks_with_the_mean_utility():
    table = intervals(ValueGraph.of((0, 100, 1.0, 0.0)), Histogram.uniform(0, 100), chunk_size=25)
    assert [(row.low, row.high) for row in table] == [(75, 100), (50, 75), (25, 50), (0, 25)]
    assert [row.utility for row in table] == pytest.approx([0.125, 0.375, 0.625, 0.875])
    # The least useful lie on top here, so that is where the drop begins; half a chunk is its lower half.
    assert dropped_ranges(table, 0.25) == ((75.0, 100.0),)
    assert dropped_ranges(table, 0.375) == ((50.0, 62.5), (75.0, 100.0))
    assert predicate(dropped_ranges(table, 0.375)) == "(value < 50 or value >= 62.5) and (value < 75 or value >= 100)"


@given(dropped=st.floats(0, 1), low=st.floats(0, 1), high=st.floats(0, 1))
def test_the_ranges_to_drop_hold_just_the_share_that_is_to_go(dropped, low, high):
    spread = Histogram.of((0, 30, 2), (30, 100, 5))
    table = intervals(ValueGraph.of((0, 60, low + 0.01), (60, 100, high)), spread)
    ranges = dropped_ranges(table, dropped)
    assert sum(spread.share(a, b) for a, b in ranges) == pytest.approx(dropped, abs=1e-6)


def test_values_worth_nothing_leave_nothing_to_derive():
    with pytest.raises(InvalidInputError, match="no value that occurs is worth anything"):
        intervals(ValueGraph.of((200, 300, 1.0)), Histogram.uniform(0, 100))


def test_graphs_draw_themselves():
    for graph in (LossTolerance.of((1, 1)), LatencyGraph.of((1, 1.0), (2, 0.0)), ValueGraph.of((0, 1, 0.5))):
        assert graph._repr_svg_().startswith("<svg")
