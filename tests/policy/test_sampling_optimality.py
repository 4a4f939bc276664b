"""Theorem 1 and the least error of [Sampling03], held against SciPy's optimisers on random trees."""

import math

import numpy as np
import pytest
from scipy.optimize import brentq, linprog, minimize

from penstock.policy.sampling import (
    Diagram,
    Operator,
    Query,
    Source,
    effective_keep,
    least_relative_error,
    place,
)

MISS = 0.01
TREES = 60


def random_diagram(random):
    """A tree below one or two sources, with costs over three powers of ten and windows over five."""
    names = iter(range(10_000))

    def node(depth):
        if depth == 0 or (depth < 3 and random.random() < 0.3):
            return Query(
                name=f"q{next(names)}",
                window_tuples=10 ** random.uniform(1, 6),
                mean=random.uniform(0.5, 10),
                standard_deviation=random.choice([0.0, random.uniform(0, 50)]),
            )
        return Operator(
            name=f"o{next(names)}",
            seconds_per_tuple=10 ** random.uniform(-5, -2),
            selectivity=random.uniform(0.05, 1.5),
            children=tuple(node(depth - 1) for _ in range(random.integers(1, 4))),
        )

    return Diagram(
        tuple(
            Source(
                name=f"s{number}",
                tuples_per_second=10 ** random.uniform(1, 4),
                children=tuple(node(3) for _ in range(random.integers(1, 3))),
            )
            for number in range(random.integers(1, 3))
        )
    )


def least_load(diagram, wanted):
    """Let SciPy find the cheapest placement that passes the wanted shares: a linear programme in the passed shares."""
    nodes = [child for _, child in diagram.edges]
    index = {name: number for number, name in enumerate(nodes)}
    work = diagram.operator_loads()
    costs = np.array([work.get(name, 0.0) for name in nodes])
    unit = costs.max()
    # No share grows on its way down an edge, and the queries get what they want.
    falls = [(index[parent], index[child]) for parent, child in diagram.edges if parent in index]
    rows = np.zeros((len(falls), len(nodes)))
    for number, (parent, child) in enumerate(falls):
        rows[number, parent], rows[number, child] = -1, 1
    bounds = [(wanted[name], wanted[name]) if name in wanted else (0, 1) for name in nodes]
    found = linprog(
        costs / unit, A_ub=rows if falls else None, b_ub=np.zeros(len(falls)) if falls else None, bounds=bounds
    )
    assert found.success
    return found.fun * unit


def wants(diagram, error):
    return {q.name: effective_keep(q, relative_error=error, miss_probability=MISS) for q in diagram.queries}


@pytest.mark.parametrize("seed", range(TREES))
def test_no_optimiser_finds_a_cheaper_placement_with_the_same_effective_rates(seed):
    random = np.random.default_rng([1, seed])
    diagram = random_diagram(random)
    wanted = {query.name: random.uniform(0.01, 1) for query in diagram.queries}

    assert diagram.load(place(diagram, wanted)) <= least_load(diagram, wanted) * (1 + 1e-6)


@pytest.mark.parametrize("seed", range(TREES))
def test_no_optimiser_finds_a_feasible_error_below_the_least(seed):
    random = np.random.default_rng([2, seed])
    diagram = random_diagram(random)
    capacity = diagram.load() * random.uniform(0.02, 0.98)
    error = least_relative_error(diagram, miss_probability=MISS, capacity=capacity)

    def excess(candidate):
        return least_load(diagram, wants(diagram, candidate)) / capacity - 1

    assert excess(error) <= 1e-6
    # Load falls as the error grows, so the least feasible error is where SciPy finds the excess to vanish.
    below, above = error * (1 - 1e-3), error * (1 + 1e-3)
    assert excess(below) > 0
    assert brentq(excess, below, above, xtol=error * 1e-9, rtol=1e-12) >= error * (1 - 1e-6)


@pytest.mark.parametrize("seed", range(8))
def test_a_search_over_rates_and_error_at_once_finds_no_smaller_error(seed):
    # Without the paper's split in two steps: SLSQP over every edge's rate (as a logarithm) and the error together.
    random = np.random.default_rng([3, seed])
    diagram = random_diagram(random)
    capacity = diagram.load() * 0.4
    least = least_relative_error(diagram, miss_probability=MISS, capacity=capacity)
    edges = list(diagram.edges)

    def rates(x):
        return dict(zip(edges, np.exp(np.minimum(x[:-1], 0)), strict=True))

    def slack(x):
        passed, error = diagram.passed(rates(x)), least * math.exp(x[-1])
        asked = wants(diagram, error)
        short = [math.log(passed[name] / asked[name]) for name in asked]
        return np.array([1 - diagram.load(rates(x)) / capacity, *short])

    placed = place(diagram, wants(diagram, least))
    starts = [np.append([math.log(placed[edge]) for edge in edges], 0.0)]
    starts += [np.append(random.uniform(-1, 0, size=len(edges)), 1.0) for _ in range(2)]
    reached = []
    for start in starts:
        found = minimize(
            lambda x: x[-1],
            start,
            method="SLSQP",
            bounds=[(-12, 0)] * len(edges) + [(-3, 5)],
            constraints={"type": "ineq", "fun": slack},
            options={"maxiter": 60},
        )
        if slack(found.x).min() > -1e-7:
            reached.append(math.exp(found.x[-1]))
    assert reached
    assert min(reached) >= 1 - 1e-6
