"""Which part of a network runs where in the compiled query, and what cannot be compiled."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from penstock.model.errors import InvalidInputError, NotSupportedError
from penstock.model.network import Arc, Operator, Output, Source, inputs_of
from penstock.policy.network.places import candidate_arcs, semantic_arcs
from penstock.policy.network.semantic import value_edges
from penstock.spark.compile.steps import AggregateStep, JoinStep, OutputStep
from penstock.spark.plan.network_planner import NetworkPlanner

if TYPE_CHECKING:
    from penstock.spark.network import Network

LEFT, RIGHT = ":left", ":right"


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """Which node belongs where: levels of unions, what lies below joins, and the numbers of ports and arcs."""

    levels: dict[str, int]
    below_join: dict[str, str]
    ports: dict[str, int]
    arcs: tuple[Arc, ...]
    lanes: dict[Arc, tuple[tuple[float, float], ...]]


def planner_of(network: Network) -> NetworkPlanner:
    """The planner that the compiled query and its controller share."""
    return NetworkPlanner(
        checkpoint=network.checkpoint, governor=network.governor, name=network.name, value=network.steps.value_column
    )


def layout_of(network: Network) -> Layout:
    """Check that the network can be compiled, and number its parts."""
    model = network.model
    levels: dict[str, int] = {}
    below_join: dict[str, str] = {}
    ports: dict[str, int] = {}
    for node in model.order:
        name = node.name
        above = inputs_of(node)
        joins = {below_join[a] for a in above if a in below_join}
        levels[name] = max((levels[a] for a in above), default=0)
        if joins:
            if isinstance(node, Operator) and node.kind not in ("filter", "map"):
                raise NotSupportedError(
                    f"{node.kind} {name!r} takes from the join {joins.pop()!r}; below a join only filters, maps and "
                    "outputs are supported: put it in front of the join"
                )
            below_join[name] = joins.pop()
            if isinstance(node, Output):
                ports[name] = len(ports)
        elif isinstance(node, Operator) and node.kind == "join":
            ports[name + LEFT], ports[name + RIGHT] = len(ports), len(ports) + 1
            ports[name] = len(ports)
            below_join[name] = name
        elif isinstance(node, Operator) and node.kind == "union":
            levels[name] += 1
            ports[name] = len(ports)
        elif isinstance(node, (Source, Output)) or node.kind == "aggregate":
            ports[name] = len(ports)
    _check(network)
    semantic = semantic_arcs(model)
    graphs = [output.value for output in model.outputs if output.value is not None]
    edges = value_edges(graphs, [])
    lanes = tuple(pairwise(edges))
    # The first semantic drop on a path: below it the values are no longer spread as they came.
    tops = [arc for arc in candidate_arcs(model) if arc in semantic and not _semantic_above(arc, network, semantic)]
    return Layout(
        levels=levels,
        below_join=below_join,
        ports=ports,
        arcs=candidate_arcs(model),
        lanes=dict.fromkeys(tops, lanes),
    )


def _check(network: Network) -> None:
    steps = network.steps
    timed = [name for name, step in steps.steps.items() if isinstance(step, (AggregateStep, JoinStep))]
    for source in steps.sources.values():
        if timed and source.event_time is None:
            raise InvalidInputError(
                f"{timed[0]!r} goes by event time, and source {source.name!r} names none; give event_time=..."
            )
    for output in network.model.outputs:
        above = steps.steps.get(output.input)
        if isinstance(above, AggregateStep) and output.value is not None:
            raise NotSupportedError(
                f"output {output.name!r} gives windows, whose answers have no value of their own; give it loss=..."
            )
    for name, step in steps.steps.items():
        if isinstance(step, AggregateStep):
            for taking in network.model.consumers[name]:
                if not isinstance(steps.steps[taking], OutputStep):
                    raise NotSupportedError(f"{taking!r} takes from the aggregate {name!r}; only outputs may")


def _semantic_above(arc: Arc, network: Network, semantic: frozenset[Arc]) -> bool:
    above = [(name, arc[0]) for node in network.model.nodes if node.name == arc[0] for name in inputs_of(node) or ("",)]
    return any(a in semantic or _semantic_above(a, network, semantic) for a in above if a[1])
