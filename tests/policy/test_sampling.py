"""Sampling in trees: Example 1 by hand, the promises of the paper on random trees."""

import math
from itertools import count

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from penstock.model.errors import InvalidInputError
from penstock.policy.sampling import (
    Diagram,
    Operator,
    Query,
    Source,
    effective_keep,
    least_relative_error,
    place,
)


def operator(name, *children, seconds=1e-3, selectivity=1.0):
    return Operator(name=name, seconds_per_tuple=seconds, selectivity=selectivity, children=children)


def tally(name, window_tuples=10_000):
    return Query(name=name, window_tuples=window_tuples)


def diagram_of(*children, rate=1000.0):
    return Diagram((Source(name="S", tuples_per_second=rate, children=children),))


def two_queries(*, windows=(10_000, 10_000), rate=1000.0):
    """Example 1: A is shared, B leads to q1 and C to q2."""
    b, c = operator("B", tally("q1", windows[0])), operator("C", tally("q2", windows[1]))
    return diagram_of(operator("A", b, c), rate=rate)


def keeps(diagram, *, relative_error, miss_probability=0.01):
    return {
        query.name: effective_keep(query, relative_error=relative_error, miss_probability=miss_probability)
        for query in diagram.queries
    }


def load_at(diagram, relative_error):
    return diagram.load(place(diagram, keeps(diagram, relative_error=relative_error)))


# --- Trees with any costs, selectivities, shapes and statistics; nothing so small that products vanish. ---

positive = st.floats(1e-3, 1e3)


@st.composite
def diagrams(draw):
    numbers = count()

    def node(depth):
        name = f"n{next(numbers)}"
        if depth == 0 or draw(st.booleans()):
            return Query(
                name=name,
                window_tuples=draw(st.floats(1, 1e8)),
                mean=draw(positive) * draw(st.sampled_from([1, -1])),
                standard_deviation=draw(st.just(0.0) | positive),
            )
        return Operator(
            name=name,
            seconds_per_tuple=draw(st.just(0.0) | st.floats(1e-6, 1)),
            selectivity=draw(st.floats(0.01, 3)),
            children=[node(depth - 1) for _ in range(draw(st.integers(1, 3)))],
        )

    return Diagram(
        [
            Source(
                name=f"s{number}",
                tuples_per_second=draw(positive),
                children=[node(draw(st.integers(0, 3))) for _ in range(draw(st.integers(1, 2)))],
            )
            for number in range(draw(st.integers(1, 2)))
        ]
    )


@st.composite
def diagrams_with_wishes(draw):
    diagram = draw(diagrams())
    return diagram, {query.name: draw(st.floats(0.001, 1)) for query in diagram.queries}


# --- Placement ---


def test_example_1_sheds_before_a_and_b_and_not_before_c():
    placed = place(two_queries(), {"q1": 0.5, "q2": 0.8})

    assert placed == {
        ("S", "A"): 0.8,
        ("A", "B"): 0.625,
        ("B", "q1"): 1.0,
        ("A", "C"): 1.0,
        ("C", "q2"): 1.0,
    }
    # 1 s of work in each operator per second; A passes 0.8, B 0.5 and C 0.8 of it.
    assert two_queries().load(placed) == pytest.approx(0.8 + 0.5 + 0.8)


def test_a_query_that_shares_nothing_sheds_before_its_first_operator():
    chain = diagram_of(operator("A", operator("B", tally("q"))))

    assert place(chain, {"q": 0.3}) == {("S", "A"): 0.3, ("A", "B"): 1.0, ("B", "q"): 1.0}


def test_the_load_counts_selectivity_and_sampling_upstream():
    # 1000/s: A keeps 0.5 of them at 2 ms, passes a fifth on, of which B keeps 0.4 at 10 ms.
    diagram = diagram_of(operator("A", operator("B", tally("q"), seconds=0.01), seconds=0.002, selectivity=0.2))

    assert diagram.load() == pytest.approx(1000 * 0.002 + 200 * 0.01)
    assert diagram.load({("S", "A"): 0.5, ("A", "B"): 0.4}) == pytest.approx(500 * 0.002 + 40 * 0.01)


@given(diagrams_with_wishes())
def test_the_rates_along_each_path_multiply_to_the_wanted_ones(given_):
    diagram, wanted = given_

    passed = diagram.passed(place(diagram, wanted))

    assert {name: passed[name] for name in wanted} == pytest.approx(wanted, rel=1e-12)


@given(diagrams_with_wishes())
def test_every_edge_has_a_rate_above_0_and_at_most_1(given_):
    diagram, wanted = given_

    placed = place(diagram, wanted)

    assert set(placed) == set(diagram.edges)
    assert all(0 < keep <= 1 for keep in placed.values())


@given(diagrams_with_wishes(), st.data())
def test_no_other_placement_with_the_same_effective_rates_takes_less_work(given_, data):
    diagram, wanted = given_
    # Any way to the wanted rates passes at least the largest of them below; draw how much more, top to bottom.
    needed = diagram.largest_below(wanted)
    passed = {source.name: 1.0 for source in diagram.sources}
    other = {}
    for parent, child in diagram.edges:
        extra = 0.0 if child in wanted else data.draw(st.floats(0, 1))
        passed[child] = needed[child] + extra * (passed[parent] - needed[child])
        other[parent, child] = passed[child] / passed[parent]

    assert diagram.load(place(diagram, wanted)) <= diagram.load(other) * (1 + 1e-12)


# --- Rates from the error ---


def test_the_keep_rate_of_a_count_and_of_a_sum_by_hand():
    # COUNT: sqrt(ln(200) / 20,000) = 0.016276; a SUM with a deviation of twice its mean needs sqrt(5) times as much.
    total = Query(name="sum", window_tuples=10_000, mean=-3.0, standard_deviation=6.0)

    assert effective_keep(tally("count"), relative_error=0.1, miss_probability=0.01) == pytest.approx(0.16276, rel=1e-4)
    assert effective_keep(total, relative_error=0.1, miss_probability=0.01) == pytest.approx(0.36395, rel=1e-4)


@pytest.mark.parametrize("relative_error", [0, 1e-9, 0.0162])
def test_an_error_below_what_sampling_can_promise_takes_every_tuple(relative_error):
    assert effective_keep(tally("count"), relative_error=relative_error, miss_probability=0.01) == 1.0


# --- The least error ---


def test_nothing_is_shed_while_the_load_fits():
    fits = two_queries(rate=1000 / 3)

    assert fits.load() == pytest.approx(1.0)
    assert least_relative_error(fits, miss_probability=0.01, capacity=1.0 + 1e-9) == 0.0
    assert set(place(fits, keeps(fits, relative_error=0.0)).values()) == {1.0}


def test_the_least_error_of_one_query_by_hand():
    # Twice the capacity, so half of the tuples: error = 0.016276 / 0.5.
    error = least_relative_error(diagram_of(operator("A", tally("q")), rate=2000), miss_probability=0.01)

    assert error == pytest.approx(0.016276 / 0.5, rel=1e-4)


def test_a_query_that_must_be_exact_leaves_the_shedding_to_the_others():
    # q1 sees 100 tuples a window, q2 a million: the same error takes 100 times the rate at q1.
    rare, plenty = operator("B", tally("q1", 100), seconds=1e-4), operator("C", tally("q2", 1e6))
    diagram = diagram_of(rare, plenty)

    error = least_relative_error(diagram, miss_probability=0.01, capacity=0.5)

    # 0.1 s of work for q1 in full; 0.4 of 1 s are left for q2.
    assert keeps(diagram, relative_error=error) == pytest.approx({"q1": 1.0, "q2": 0.4})


@given(diagrams(), st.floats(1e-4, 0.9999))
def test_at_the_least_error_the_load_equation_is_met(diagram, share):
    assume(diagram.load() > 0)
    capacity = share * diagram.load()

    error = least_relative_error(diagram, miss_probability=0.01, capacity=capacity)

    assert load_at(diagram, error) == pytest.approx(capacity, rel=1e-9)


@given(diagrams(), st.floats(1e-4, 1.5), st.floats(1, 100))
def test_the_least_error_never_falls_as_the_load_grows(diagram, share, growth):
    assume(diagram.load() > 0)
    capacity = diagram.load() / share
    grown = Diagram(
        tuple(
            Source(name=s.name, tuples_per_second=s.tuples_per_second * growth, children=s.children)
            for s in diagram.sources
        )
    )

    before, after = (least_relative_error(d, miss_probability=0.01, capacity=capacity) for d in (diagram, grown))

    assert after >= before * (1 - 1e-12)


@given(diagrams(), st.floats(1, 100))
def test_whatever_fits_is_answered_exactly(diagram, room):
    capacity = max(diagram.load() * room, 1e-9)

    error = least_relative_error(diagram, miss_probability=0.01, capacity=capacity)

    assert error == 0.0
    assert set(keeps(diagram, relative_error=error).values()) == {1.0}


# --- What cannot be worked with ---


@pytest.mark.parametrize("mean", [0, 0.0, math.nan, math.inf, None, "1", True, 1e-320])
def test_a_mean_without_relative_error_is_refused(mean):
    with pytest.raises(InvalidInputError) as refused:
        Query(name="q", window_tuples=10, mean=mean, standard_deviation=1.0)

    assert str(refused.value) == (
        f"mean of query 'q' must be finite and not 0, got {mean!r}; around 0 a sum has no relative error: "
        "sum positive and negative values in queries of their own"
    )


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: tally("q", 0), "window_tuples of query 'q' must be finite and above 0, got 0; it is the tuples"),
        (
            lambda: Query(name="q", window_tuples=1, standard_deviation=math.nan),
            "standard_deviation of query 'q' must be finite and at least 0, got nan; it is the spread",
        ),
        (
            lambda: operator("A", tally("q"), seconds=-1),
            "seconds_per_tuple of operator 'A' must be finite and at least 0, got -1; it is the work",
        ),
        (
            lambda: operator("A", tally("q"), selectivity=math.nan),
            "selectivity of operator 'A' must be finite and at least 0, got nan; it is the tuples put out",
        ),
        (
            lambda: diagram_of(tally("q"), rate=math.inf),
            "tuples_per_second of source 'S' must be finite and at least 0, got inf; it is the arrival rate",
        ),
        (lambda: operator("A"), "children of 'A' must not be empty; no query would use its tuples: end every path"),
        (
            lambda: diagram_of(operator("A", tally("q"), seconds=1e300), rate=1e300),
            "load of the diagram must be finite and at least 0, got inf; it is rates times costs",
        ),
    ],
)
def test_a_part_that_cannot_be_is_refused_by_name(make, message):
    with pytest.raises(InvalidInputError) as refused:
        make()

    assert str(refused.value).startswith(message)


def test_a_node_with_two_parents_is_refused():
    shared = operator("C", tally("q"))

    with pytest.raises(InvalidInputError, match=r"^node 'C' is reached twice; placement is for trees: give every node"):
        diagram_of(operator("A", shared), operator("B", shared))


def test_a_cycle_is_refused():
    knot = operator("A", tally("q"))
    object.__setattr__(knot, "children", (knot,))

    with pytest.raises(InvalidInputError, match=r"^node 'A' is reached twice"):
        diagram_of(knot)


@pytest.mark.parametrize("miss_probability", [0, 1, -0.1, 1.5, math.nan, None])
def test_a_miss_probability_outside_0_and_1_is_refused(miss_probability):
    message = r"^miss_probability must be in \(0, 1\), got .*; it is the chance .*, such as 0\.01$"
    with pytest.raises(InvalidInputError, match=message):
        effective_keep(tally("q"), relative_error=0.1, miss_probability=miss_probability)
    with pytest.raises(InvalidInputError, match=message):
        least_relative_error(two_queries(), miss_probability=miss_probability)


@pytest.mark.parametrize("value", [-0.1, math.nan, math.inf])
def test_errors_and_capacities_that_are_none_are_refused(value):
    with pytest.raises(InvalidInputError, match=r"^relative_error must be finite and at least 0"):
        effective_keep(tally("q"), relative_error=value, miss_probability=0.01)
    with pytest.raises(InvalidInputError, match=r"^capacity must be finite and above 0"):
        least_relative_error(two_queries(), miss_probability=0.01, capacity=value)


@pytest.mark.parametrize("wanted", [{"q1": 0.5}, {"q1": 0.5, "q2": 0.5, "q3": 0.5}])
def test_wishes_that_do_not_match_the_queries_are_refused(wanted):
    with pytest.raises(InvalidInputError, match=r"one rate for each of \['q1', 'q2'\], got .*; give 1\.0 to a query"):
        place(two_queries(), wanted)


@pytest.mark.parametrize("keep", [0, -0.5, 1.1, math.nan, None])
def test_a_wish_outside_0_and_1_is_refused(keep):
    with pytest.raises(InvalidInputError, match=r"^query_keep\['q2'\] must be in \(0, 1\], got .*; it is the share"):
        place(two_queries(), {"q1": 0.5, "q2": keep})
