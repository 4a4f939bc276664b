"""Work out the rows of a road map: part by part where nothing is shared, then put together."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations
from typing import Any, Literal

import numpy as np

from penstock.model.errors import InvalidInputError, is_number, require_not_negative, require_positive
from penstock.model.network import Network
from penstock.policy.network.kernel import build_rows
from penstock.policy.network.linear import best_plans
from penstock.policy.network.merge import Part, best_of, by_cost, merged
from penstock.policy.network.place_graph import JOIN, MIX, PLACE, Floats, PlaceGraph, graph_arrays
from penstock.policy.network.static_rule import static_order

Rule = Literal["marginal", "static"]
NO_ORDER = np.empty((0, 3))
NEXT_TO_NOTHING = 1e-6
# All sets of outputs are tried while there are at most so many, else each output alone; nothing of it in a large graph.
MOST_WAYS, LARGE = 64, 200


def check_options(network: Network, *, step: float, drop_seconds: float, rule: str) -> None:
    """Refuse steps that are no steps, or drops that would cost more than they save."""
    require_step(step)
    require_not_negative("drop_seconds", drop_seconds, meaning="the cost of a drop per tuple it sees")
    if rule not in ("marginal", "static"):
        raise InvalidInputError(f"rule must be 'marginal' or 'static', got {rule!r}; 'static' is the paper's")
    if drop_seconds > 0:
        least = least_step(network, drop_seconds)
        if step <= least:
            raise InvalidInputError(
                f"step must exceed drop_seconds over the least load coefficient, {least:g}, got {step!r}; "
                "a smaller drop costs more than it saves"
            )


def require_step(step: float) -> None:
    """Refuse a step that leads nowhere, or beyond the whole."""
    if not is_number(step) or not 0 < step <= 1:
        raise InvalidInputError(f"step must be in (0, 1], got {step!r}; it is how far a share falls from row to row")


def build_plans(graph: PlaceGraph, *, step: float, drop_seconds: float, rule: str) -> Part:
    """Work out the rows of every part, and put them together."""
    parts, costs = [], []
    for nodes in graph.components():
        if rule != "static" and drop_seconds == 0 and _is_linear(graph, nodes):
            parts.append(best_plans(graph, nodes, step=step))
            continue
        arrays: Any = graph_arrays(graph, nodes)
        order = static_order(arrays) if rule == "static" else NO_ORDER
        ways = []
        for leaning in [np.ones(len(nodes)), *(_leanings(graph, nodes) if rule != "static" else ())]:
            build: Any = build_rows
            rows, changes = build(*arrays.values(), leaning, step, drop_seconds, order)
            if len(rows):
                changes[:, 1] = np.array(nodes)[changes[:, 1].astype(np.int64)]
                ways.append(Part.of(rows, changes))
        if ways:
            parts.append(best_of(ways))
            # Within a part the order of the paper's rule stands, also where a ratio falls again.
            costs.append(np.maximum.accumulate(rows[:, 2]))
    return by_cost(parts, costs) if rule == "static" and parts else merged(parts)


def _leanings(graph: PlaceGraph, nodes: list[int]) -> Iterator[Floats]:
    """Other ways to shed a part with joins: some outputs first, as if they were worth next to nothing."""
    names = sorted({graph.outputs[node] for node in nodes if node in graph.outputs})
    if len(names) == 1 or len(graph.kind) > LARGE or not any(graph.kind[node] == JOIN for node in nodes):
        return
    sizes = range(1, len(names)) if 2 ** len(names) <= MOST_WAYS else [1]
    for first in (set(chosen) for size in sizes for chosen in combinations(names, size)):
        yield np.array([NEXT_TO_NOTHING if graph.outputs.get(node) in first else 1.0 for node in nodes])


def _is_linear(graph: PlaceGraph, nodes: list[int]) -> bool:
    """Whether a linear programme does better than steps: unions below splits, no join, some work, a small network."""
    kinds = {graph.kind[node] for node in nodes}
    shared = any(graph.kind[node] == PLACE and graph.parents[node] for node in nodes)
    some_work = any(graph.work[node] > 0 for node in nodes)
    return MIX in kinds and JOIN not in kinds and shared and some_work and len(graph.kind) <= LARGE


def least_step(network: Network, drop_seconds: float) -> float:
    """Smallest drop that pays for itself everywhere: D over the least load coefficient (STEP_SIZE must exceed it)."""
    require_positive("drop_seconds", drop_seconds, meaning="the cost of a drop per tuple it sees")
    coefficients = [found for found in network.coefficients().values() if found > 0]
    return drop_seconds / min(coefficients) if coefficients else 0.0
