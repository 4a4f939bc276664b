"""Where drops may go ([Aurora03] 4.3.1): network inputs, and arcs that leave a split; with values, lanes of them."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.model.network import OUTSIDE, Arc, Network, Operator, Output, Source
from penstock.policy.network.semantic import Range


@dataclass(frozen=True, slots=True)
class Place:
    """An arc that may get a drop; of a semantic drop, one lane of it."""

    arc: Arc
    lane: Range | None = None


def candidate_arcs(network: Network) -> tuple[Arc, ...]:
    """Arcs where a drop can be best: network inputs, and the arcs out of splits.

    Figure 6 of the paper: operator 1 feeds two queries, a third one shares nothing.

    >>> from penstock.model.network import Operator, Output, Source
    >>> def step(name, *inputs):
    ...     return Operator(name=name, kind="filter", inputs=inputs, seconds_per_tuple=1.0)
    >>> nodes = (Source(name="I1", tuples_per_second=1), Source(name="I2", tuples_per_second=1), step("1", "I1"))
    >>> nodes += (step("2", "1"), step("3", "1"), step("4", "I2"))
    >>> nodes += (Output(name="O1", input="2"), Output(name="O2", input="3"), Output(name="O3", input="4"))
    >>> candidate_arcs(Network(nodes))
    (('', 'I1'), ('', 'I2'), ('1', '2'), ('1', '3'))
    """
    found: list[Arc] = [(OUTSIDE, source.name) for source in network.sources]
    for node in network.order:
        taking = network.consumers[node.name]
        if len(taking) > 1:
            found += [(node.name, name) for name in taking]
    return tuple(found)


def semantic_arcs(network: Network) -> frozenset[Arc]:
    """Arcs all of whose tuples end in outputs with value graphs, there with the value they have here.

    Tuples of a join have the value of its first input.
    """
    by_name = {node.name: node for node in network.nodes}
    worth: dict[str, bool] = {}
    found: set[Arc] = set()
    for node in reversed(network.order):
        if isinstance(node, Output):
            worth[node.name] = node.value is not None
            continue
        arcs = []
        for name in network.consumers[node.name]:
            taking = by_name[name]
            carried = not (isinstance(taking, Operator) and taking.kind == "join" and taking.inputs[1] == node.name)
            arcs.append(worth[name] and carried)
            if arcs[-1]:
                found.add((node.name, name))
        # An aggregate's answers are no longer the tuples that the value belongs to.
        same = not isinstance(node, Operator) or node.kind != "aggregate"
        worth[node.name] = all(arcs) and same
        if isinstance(node, Source) and worth[node.name]:
            found.add((OUTSIDE, node.name))
    return frozenset(found)
