"""Random query networks like those of the experiments in [Aurora03] (section 5.2)."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from penstock.model.errors import InvalidInputError, require_not_negative, require_positive
from penstock.model.network import Kind, Network, Operator, Output, Source
from penstock.model.quality import Histogram, ValueGraph

# Integers of [0, 100]; a range ends before its upper edge.
LOWEST, HIGHEST = 0.0, 101.0
VALUES = Histogram.uniform(LOWEST, HIGHEST)
UTILITIES = tuple(n / 10 for n in range(1, 11))


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """What kind of network to draw; the defaults are the main network of the paper.

    Attributes
    ----------
    queries, filters, unions
        How many of each. A binary union adds an input, so there are ``queries + unions`` of those, less the splits.
    splits
        Inputs that are taken from an operator of another query in place of a source.
    filter_seconds, union_seconds
        Work per tuple; the paper fixes one for each type and does not say which.
    tightest
        Every filter takes its bound from up to this part of the values that reach it.
    boundary
        First value of the interval that is worth 1; values below it are worth what is drawn for the output.
    skew
        θ of the Zipf distribution that utilities are drawn from; the larger, the more low ones.
    """

    queries: int = 5
    filters: int = 34
    unions: int = 13
    splits: int = 0
    filter_seconds: float = 1.0
    union_seconds: float = 1.0
    tightest: float = 0.3
    boundary: float = 76.0
    skew: float = 0.0

    def __post_init__(self) -> None:
        if self.queries < 1:
            raise InvalidInputError(f"queries must be at least 1, got {self.queries!r}; a network needs an output")
        for name in ("filters", "unions", "splits", "skew"):
            require_not_negative(name, getattr(self, name), meaning="part of the workload")
        require_positive("filter_seconds", self.filter_seconds, meaning="the work of a filter per tuple")
        require_positive("union_seconds", self.union_seconds, meaning="the work of a union per tuple")
        if self.filters < self.queries:
            raise InvalidInputError(f"filters must be at least the {self.queries} queries, got {self.filters!r}")


def random_network(workload: Workload, *, seed: int, tuples_per_second: float = 0.1) -> Network:
    """Draw a network; the same seed gives the same one.

    >>> network = random_network(Workload(), seed=1)
    >>> len(network.outputs), len(network.operators), len(network.sources)
    (5, 47, 18)
    >>> sum(operator.kind == "union" for operator in network.operators)
    13
    """
    rng = np.random.default_rng(seed)
    filters: list[Kind] = ["filter"] * (workload.filters - workload.queries)
    unions: list[Kind] = ["union"] * workload.unions
    kinds = filters + unions
    # Queries of the same size, give or take one operator of each kind.
    owners = [n % workload.queries for n in range(len(kinds))]
    shuffled = rng.permutation(len(kinds))
    inputs: dict[str, list[str]] = {}
    chosen: dict[str, Kind] = {}
    query_of: dict[str, int] = {}
    open_ends: list[tuple[str, int]] = []
    outputs = []
    for query in range(workload.queries):
        # Every query ends in a filter; above it operators grow at open inputs, like the branches of a tree.
        own: list[Kind] = ["filter", *(kinds[n] for n in shuffled if owners[n] == query)]
        ends: list[str] = []
        for number, kind in enumerate(own):
            name = f"q{query}{kind[0]}{number}"
            chosen[name], inputs[name], query_of[name] = kind, [], query
            if number:
                inputs[ends.pop(int(rng.integers(len(ends))))].append(name)
            ends += [name] * (2 if kind == "union" else 1)
        outputs.append(Output(name=f"out{query}", input=f"q{query}f0", value=_value_graph(workload, rng)))
        open_ends += [(name, query) for name in ends]
    sources = _close(open_ends, inputs, query_of, splits=workload.splits, tuples_per_second=tuples_per_second, rng=rng)
    operators = [
        Operator(
            name=name,
            kind=kind,
            inputs=tuple(inputs[name]),
            seconds_per_tuple=workload.filter_seconds if kind == "filter" else workload.union_seconds,
        )
        for name, kind in chosen.items()
    ]
    return with_filters(Network((*sources, *operators, *outputs)), tightest=workload.tightest, rng=rng)


def shared_network(
    *, queries: int = 20, skew: float = 0.0, seed: int, tuples_per_second: float = 1.0, filters_per_query: int = 2
) -> Network:
    """Draw the network of section 6.4: identical queries behind one common operator."""
    rng = np.random.default_rng(seed)
    workload = Workload(skew=skew)
    nodes: list[Source | Operator | Output] = [
        Source(name="in", tuples_per_second=tuples_per_second, values=VALUES),
        Operator(name="common", kind="filter", inputs=("in",), seconds_per_tuple=workload.filter_seconds),
    ]
    for query in range(queries):
        above = "common"
        for number in range(filters_per_query):
            name = f"q{query}f{number}"
            nodes.append(Operator(name=name, kind="filter", inputs=(above,), seconds_per_tuple=workload.filter_seconds))
            above = name
        nodes.append(Output(name=f"out{query}", input=above, value=_value_graph(workload, rng)))
    return Network(tuple(nodes))


def _value_graph(workload: Workload, rng: np.random.Generator) -> ValueGraph:
    chances = 1 / np.arange(1, len(UTILITIES) + 1) ** workload.skew
    utility = float(rng.choice(UTILITIES, p=chances / chances.sum()))
    return ValueGraph.of((LOWEST, workload.boundary, utility), (workload.boundary, HIGHEST, 1.0))


def _close(
    open_ends: list[tuple[str, int]],
    inputs: dict[str, list[str]],
    query_of: dict[str, int],
    *,
    splits: int,
    tuples_per_second: float,
    rng: np.random.Generator,
) -> list[Source]:
    """Feed every open input: some from an operator of an earlier query, the others from sources of their own."""
    later = [number for number, (_, query) in enumerate(open_ends) if query > 0]
    shared = set(rng.permutation(later)[:splits].tolist()) if splits else set()
    sources = []
    for number, (name, query) in enumerate(open_ends):
        # Taken from an earlier query only, so that there is no circle; and not twice by the same operator.
        free = [other for other, owner in query_of.items() if owner < query and other not in inputs[name]]
        if number in shared and free:
            inputs[name].append(free[int(rng.integers(len(free)))])
            continue
        source = Source(name=f"in{number}", tuples_per_second=tuples_per_second, values=VALUES)
        sources.append(source)
        inputs[name].append(source.name)
    return sources


def with_filters(network: Network, *, tightest: float, rng: np.random.Generator) -> Network:
    """Give every filter a predicate ``value > constant`` and the selectivity that follows from the ones above it."""
    # Tuples by whole value on each node, to know what a filter sees.
    count = int(HIGHEST - LOWEST)
    flows: dict[str, np.ndarray] = {}
    nodes: list[Source | Operator | Output] = []
    for node in network.order:
        if isinstance(node, Source):
            flows[node.name] = np.full(count, node.tuples_per_second / count)
        if isinstance(node, Operator):
            taken = np.sum([flows[name] for name in node.inputs], axis=0)
            if node.kind != "filter":
                flows[node.name] = taken
            else:
                cut = int(np.searchsorted(np.cumsum(taken) / taken.sum(), rng.uniform(0, tightest)))
                flows[node.name] = np.where(np.arange(count) >= cut, taken, 0.0)
                passed = float(flows[node.name].sum() / taken.sum())
                node = replace(node, selectivity=passed, passes=((LOWEST + cut, HIGHEST, 1.0),))  # noqa: PLW2901
        nodes.append(node)
    return Network(tuple(nodes))


def rate_for_excess(network: Network, *, capacity: float, excess: float) -> float:
    """Factor on all rates at which the load exceeds the capacity by this part (0.22 for 22 %)."""
    load = network.load()
    if load <= 0 or not math.isfinite(load):
        raise InvalidInputError(f"the load of the network must be above 0, got {load!r}; give its operators costs")
    return (1 + excess) * capacity / load
