"""Random networks for property tests, and the search through all plans of small ones."""

from __future__ import annotations

import itertools

from hypothesis import strategies as st

from penstock.model.network import Network, Operator, Output, Source
from penstock.model.quality import Histogram, LossTolerance, ValueGraph

costs = st.floats(0.1, 10.0)
passing = st.floats(0.1, 1.0)


@st.composite
def graphs(draw) -> LossTolerance:
    """Concave graphs with one to three pieces."""
    cuts = sorted(draw(st.lists(st.integers(1, 9), max_size=2, unique=True)))
    shares = [0.0, *(cut / 10 for cut in cuts), 1.0]
    slopes = sorted(draw(st.lists(st.floats(0.0, 5.0), min_size=len(shares) - 1, max_size=len(shares) - 1)))[::-1]
    corners, utility = [(0.0, 0.0)], 0.0
    for (low, high), slope in zip(itertools.pairwise(shares), slopes, strict=True):
        utility += slope * (high - low)
        corners.append((high, utility))
    return LossTolerance(tuple(corners))


@st.composite
def networks(
    draw, *, max_queries=3, max_steps=3, sharing=True, unions=True, joins=False, valued=False, later_splits=True
) -> Network:
    """Queries over a few sources, each a chain that may start at another query's operator and take in a union."""
    nodes: list[Source | Operator | Output] = []
    spread = Histogram.uniform(0, 100) if valued else None

    def source() -> str:
        name = f"I{len(nodes)}"
        nodes.append(Source(name=name, tuples_per_second=draw(st.floats(1.0, 10.0)), values=spread))
        return name

    def operator(kind: str, *inputs: str) -> str:
        name = f"{kind}{len(nodes)}"
        passes: tuple[tuple[float, float, float], ...] = ()
        selectivity = draw(passing)
        if valued and kind == "filter":
            passes = ((draw(st.sampled_from([0.0, 10.0, 20.0, 50.0])), 100.0, 1.0),)
        if kind == "join":
            selectivity = draw(st.floats(0.1, 3.0))
        cost = draw(costs)
        nodes.append(
            Operator(
                name=name, kind=kind, inputs=inputs, seconds_per_tuple=cost, selectivity=selectivity, passes=passes
            )
        )
        return name

    shared: list[str] = []
    for query in range(draw(st.integers(1, max_queries))):
        at = draw(st.sampled_from(shared)) if sharing and shared and draw(st.booleans()) else source()
        for _ in range(draw(st.integers(1, max_steps))):
            kind = draw(st.sampled_from(["filter", "filter", *(["union"] * unions), *(["join"] * joins)]))
            at = operator(kind, at, source()) if kind in ("union", "join") else operator(kind, at)
            if later_splits or not any(isinstance(n, Operator) and n.kind in ("union", "join") for n in nodes):
                shared.append(at)
        value = None
        if valued:
            value = ValueGraph.of((0, 40, draw(st.floats(0, 1))), (40, 100, 1.0))
        nodes.append(Output(name=f"O{query}", input=at, loss=draw(graphs()), value=value))
    return Network(tuple(nodes))


def full_utility(network: Network) -> float:
    return sum(output.importance * output.loss.full for output in network.outputs)
