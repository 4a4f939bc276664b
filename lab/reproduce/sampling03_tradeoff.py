"""What the policy of [Sampling03] buys: the largest relative error of five queries, as the load grows."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from lab.reproduce.figure import Figure, Series
from penstock.demo.claim import Claim
from penstock.policy.sampling import (
    Diagram,
    Operator,
    Query,
    Source,
    effective_keep,
    least_relative_error,
    place,
)
from penstock.policy.window_size import TimeWindow

SEED = 2004
MISS_PROBABILITY = 0.01
TUPLES_PER_SECOND = 2_000.0
WINDOW = TimeWindow(seconds=60)
PAPER, UNIFORM, UNSHARED = "least error, shared", "uniform at the sources", "per query, nothing shared"

# name: mean, standard deviation, and the operators on its path as (name, seconds per tuple, selectivity). The first is
# shared by all, the second by two and by three. The paper gives no workload; windows here differ in size by 250.
PARSE = ("parse", 1e-4, 1.0)
PURCHASE, ERROR = ("purchases", 2e-4, 0.1), ("errors", 1e-4, 0.02)
QUERIES: dict[str, tuple[float, float, tuple[tuple[str, float, float], ...]]] = {
    "clicks": (1.0, 0.0, (PARSE, ("session", 3e-4, 1.0))),
    "errors": (1.0, 0.0, (PARSE, ERROR, ("classify", 2e-3, 1.0))),
    "revenue": (40.0, 80.0, (PARSE, PURCHASE, ("convert", 1e-3, 1.0))),
    "refunds": (25.0, 30.0, (PARSE, PURCHASE, ("match", 2e-3, 0.04))),
    "delays": (0.8, 2.0, (PARSE, ERROR, ("trace", 4e-3, 0.5))),
}


def tradeoff(*, full: bool, windows: int | None = None) -> Figure:
    """Raise the load from what fits to ten times that, and compare three ways to shed it."""
    windows = windows or (20_000 if full else 2_000)
    factors = np.unique(np.concatenate([np.linspace(1, 2, 6), np.linspace(2, 10, 17)])).tolist()
    shared, apart = shared_diagram(), unshared_diagram()
    curves: dict[str, list[float]] = {PAPER: [], UNIFORM: [], UNSHARED: []}
    for factor in factors:
        capacity = shared.load() / factor
        curves[PAPER].append(least_relative_error(shared, miss_probability=MISS_PROBABILITY, capacity=capacity))
        curves[UNIFORM].append(_worst_error(shared, 1 / factor))
        curves[UNSHARED].append(least_relative_error(apart, miss_probability=MISS_PROBABILITY, capacity=capacity))
    at_3 = factors.index(3.0)
    rates_at_3 = _keeps(shared, curves[PAPER][at_3])
    measured = {PAPER: _measured(rates_at_3, windows), UNIFORM: _measured(dict.fromkeys(QUERIES, 1 / 3), windows)}
    worst_paper, worst_uniform = (max(_quantile(errors).values()) for errors in measured.values())
    beyond = max(float(np.mean(errors > curves[PAPER][at_3])) for errors in measured[PAPER].values())
    placed = place(shared, rates_at_3)
    claims = (
        Claim.equal(
            "load of the placed rates against the capacity, at 3 times the load",
            shared.load(placed) / (shared.load() / 3),
            1.0,
            tolerance=1e-9,
        ),
        Claim.at_most(
            "largest error against uniform sampling at the sources, worst over all loads",
            _worst_ratio(curves[PAPER], curves[UNIFORM]),
            1.0,
        ),
        Claim.at_most(
            "largest error against sampling per query without sharing, worst over all loads",
            _worst_ratio(curves[PAPER], curves[UNSHARED]),
            1.0,
        ),
        Claim.at_most(
            "largest error against uniform sampling, at 3 times the load",
            curves[PAPER][at_3] / curves[UNIFORM][at_3],
            1.0,
        ),
        Claim.at_most(
            f"measured: 99th percentile of the error of the worst query, against uniform, at 3 times the load, "
            f"{windows:,} windows",
            worst_paper / worst_uniform,
            1.0,
        ),
        Claim.at_most(
            "measured: share of answers that are further off than promised, worst query", beyond, MISS_PROBABILITY
        ),
    )
    load = ("load (times the capacity)", "largest relative error of five queries")
    series = [Series(name, tuple(factors), tuple(curve), *load) for name, curve in curves.items()]
    bars = ("query, at 3 times the load", "99th percentile of the measured error")
    for name, errors in measured.items():
        tail = _quantile(errors)
        series.append(Series(name, tuple(tail), tuple(tail.values()), *bars))
    settings = {
        "queries": len(QUERIES),
        "tuples_per_second": TUPLES_PER_SECOND,
        "window_seconds": WINDOW.seconds,
        "tuples_per_window": ", ".join(f"{query.name} {query.window_tuples:,.0f}" for query in shared.queries),
        "miss_probability": MISS_PROBABILITY,
        "keep_at_3": ", ".join(f"{name} {keep:.3f}" for name, keep in rates_at_3.items()),
        "measured_windows": windows,
        "seed": SEED,
    }
    return Figure("sampling/tradeoff", settings, tuple(series), claims)


def shared_diagram() -> Diagram:
    """All queries below one source, each shared operator once."""
    return Diagram((Source(name="stream", tuples_per_second=TUPLES_PER_SECOND, children=_children(())),))


def unshared_diagram() -> Diagram:
    """Every query with operators of its own, from the source on."""
    sources = []
    for name in QUERIES:
        node: Operator | Query = _query(name)
        for step, seconds, selectivity in reversed(QUERIES[name][2]):
            node = Operator(
                name=f"{step} of {name}", seconds_per_tuple=seconds, selectivity=selectivity, children=(node,)
            )
        sources.append(Source(name=f"stream of {name}", tuples_per_second=TUPLES_PER_SECOND, children=(node,)))
    return Diagram(tuple(sources))


def _children(path: tuple[str, ...]) -> tuple[Operator | Query, ...]:
    """Gather what follows this path of operators, queries that go on alike under one node."""
    nodes: dict[str, Operator | Query] = {}
    for name, (_, _, steps) in QUERIES.items():
        names = tuple(step for step, _, _ in steps)
        if names[: len(path)] != path:
            continue
        if len(names) == len(path):
            nodes[name] = _query(name)
            continue
        step, seconds, selectivity = steps[len(path)]
        if step not in nodes:
            nodes[step] = Operator(
                name=_operator_name(step),
                seconds_per_tuple=seconds,
                selectivity=selectivity,
                children=_children((*path, step)),
            )
    return tuple(nodes.values())


def _operator_name(step: str) -> str:
    # A query may be called as the operator above it.
    return f"{step} step"


def _query(name: str) -> Query:
    mean, deviation, steps = QUERIES[name]
    selectivity = float(np.prod([passes for _, _, passes in steps]))
    tuples = WINDOW.tuples(tuples_per_second=TUPLES_PER_SECOND, selectivity=selectivity)
    return Query(name=name, window_tuples=tuples, mean=mean, standard_deviation=deviation)


def _keeps(diagram: Diagram, error: float) -> dict[str, float]:
    return {
        query.name: effective_keep(query, relative_error=error, miss_probability=MISS_PROBABILITY)
        for query in diagram.queries
    }


def _worst_error(diagram: Diagram, keep: float) -> float:
    """Error that Equation 2 promises at this rate, for the query that fares worst."""
    if keep >= 1:
        return 0.0
    # The rate at an error of 1 is the error at a rate of 1, where neither is capped.
    return (
        max(
            effective_keep(query, relative_error=1e9, miss_probability=MISS_PROBABILITY) * 1e9
            for query in diagram.queries
        )
        / keep
    )


def _worst_ratio(ours: list[float], others: list[float]) -> float:
    return max(own / other for own, other in zip(ours, others, strict=True) if other > 0)


def _measured(keeps: Mapping[str, float], windows: int) -> dict[str, np.ndarray]:
    """Sample windows of values at these rates, scale the sums by the inverse, and take their relative errors."""
    errors = {}
    for number, (name, keep) in enumerate(keeps.items()):
        random = np.random.default_rng([SEED, number])
        query = _query(name)
        size = round(query.window_tuples)
        if query.standard_deviation == 0:
            errors[name] = np.abs(random.binomial(size, keep, size=windows) / keep / size - 1)
            continue
        shape = (query.mean / query.standard_deviation) ** 2
        values = random.gamma(shape, query.mean / shape, size=size)
        kept = [(random.random((100, size), dtype=np.float32) < keep) @ values for _ in range(windows // 100)]
        errors[name] = np.abs(np.concatenate(kept) / keep / values.sum() - 1)
    return errors


def _quantile(errors: Mapping[str, np.ndarray]) -> dict[str, float]:
    return {name: float(np.quantile(of_query, 1 - MISS_PROBABILITY)) for name, of_query in errors.items()}
