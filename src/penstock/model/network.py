"""A network of queries: sources, operators that share work, and outputs with what their answers are worth.

| here | in [Aurora03] |
|---|---|
| `seconds_per_tuple`, `selectivity` of an operator | c, s |
| `tuples_per_second` of a source | r |
| load coefficient: seconds of work per tuple on an arc | L |
| arc `("", source)` | a network input |
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from penstock.model.error_target import MaxError
from penstock.model.errors import InvalidInputError, require_not_negative, require_positive
from penstock.model.quality import LINEAR, Histogram, LatencyGraph, LossTolerance, ValueGraph

Arc = tuple[str, str]
Kind = Literal["filter", "map", "union", "join", "aggregate"]
KINDS: tuple[Kind, ...] = ("filter", "map", "union", "join", "aggregate")
OUTSIDE = ""
NO_KEEPS: Mapping[Arc, float] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A stream from outside; ``values`` tells how the value is spread that value graphs go by."""

    name: str
    tuples_per_second: float
    values: Histogram | None = None

    def __post_init__(self) -> None:
        require_not_negative(
            f"tuples_per_second of source {self.name!r}", self.tuples_per_second, meaning="the arrival rate"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Operator:
    """A step of one or more queries.

    Attributes
    ----------
    inputs
        Names of the sources and operators whose tuples it takes: two for a join, two or more for a union, else one.
    seconds_per_tuple
        Work per tuple taken in.
    selectivity
        Tuples put out per tuple taken in; of a join, per tuple from either side.
    passes
        Selectivity by value, ``(low, high, selectivity)``; other values do not pass. Empty where it does not hang on
        the value.
    """

    name: str
    kind: Kind
    inputs: tuple[str, ...]
    seconds_per_tuple: float
    selectivity: float = 1.0
    passes: tuple[tuple[float, float, float], ...] = ()

    def __post_init__(self) -> None:
        of = f"of operator {self.name!r}"
        if self.kind not in KINDS:
            raise InvalidInputError(f"kind {of} must be one of {', '.join(KINDS)}, got {self.kind!r}")
        object.__setattr__(self, "inputs", tuple(self.inputs))
        wanted = {"join": "two", "union": "two or more"}.get(self.kind, "one")
        count = len(self.inputs)
        if {"two": count != 2, "two or more": count < 2, "one": count != 1}[wanted]:
            raise InvalidInputError(f"inputs {of} must be {wanted}, as it is a {self.kind}; got {self.inputs!r}")
        if len(set(self.inputs)) < count:
            raise InvalidInputError(f"inputs {of} name one node twice; put a map between, so that each arc has a name")
        require_not_negative(f"seconds_per_tuple {of}", self.seconds_per_tuple, meaning="the work that a tuple takes")
        require_not_negative(f"selectivity {of}", self.selectivity, meaning="the tuples put out per tuple taken in")


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """Where a query ends, and what its answer is worth.

    Attributes
    ----------
    loss
        Utility by delivered share. Where ``value`` is given it is derived from that instead.
    value
        Utility by the value of a tuple, for semantic drops.
    latency
        Utility by lateness; it chooses the latency target.
    importance
        Factor on the utility of the loss-tolerance and value graphs.
    error
        How wrong an answer of windows may be; loss tolerance is then learned from it.
    """

    name: str
    input: str
    loss: LossTolerance = LINEAR
    value: ValueGraph | None = None
    latency: LatencyGraph | None = None
    importance: float = 1.0
    error: MaxError | None = None

    def __post_init__(self) -> None:
        require_positive(f"importance of output {self.name!r}", self.importance, meaning="a factor on its utility")


@dataclass(frozen=True, slots=True)
class Network:
    """All queries on one machine: a graph without cycles from the sources to the outputs.

    Figure 3 of the paper, a chain, with 10 tuples a second:

    >>> chain = Network(
    ...     (
    ...         Source(name="I", tuples_per_second=10),
    ...         Operator(name="f", kind="filter", inputs=("I",), seconds_per_tuple=0.01, selectivity=0.5),
    ...         Operator(name="m", kind="map", inputs=("f",), seconds_per_tuple=0.02),
    ...         Output(name="O", input="m"),
    ...     )
    ... )
    >>> chain.coefficients()[("", "I")], chain.load()
    (0.02, 0.2)
    """

    nodes: tuple[Source | Operator | Output, ...]
    # Every node after those it takes from, and the arcs out of each.
    order: tuple[Source | Operator | Output, ...] = field(init=False, repr=False, compare=False)
    consumers: Mapping[str, tuple[str, ...]] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "nodes", tuple(self.nodes))
        by_name: dict[str, Source | Operator | Output] = {}
        for node in self.nodes:
            if not node.name or node.name in by_name:
                raise InvalidInputError(f"node name {node.name!r} is empty or given twice; each node needs its own")
            by_name[node.name] = node
        consumers: dict[str, list[str]] = {node.name: [] for node in self.nodes}
        for node in self.nodes:
            for name in inputs_of(node):
                if name not in by_name or isinstance(by_name[name], Output):
                    raise InvalidInputError(
                        f"{node.name!r} takes from {name!r}, which is no source or operator of the network"
                    )
                consumers[name].append(node.name)
        for name, taking in consumers.items():
            if not taking and not isinstance(by_name[name], Output):
                raise InvalidInputError(f"nothing takes what {name!r} puts out; end every path in an output")
        object.__setattr__(self, "consumers", {name: tuple(taking) for name, taking in consumers.items()})
        object.__setattr__(self, "order", _in_order(by_name, consumers))

    @property
    def sources(self) -> tuple[Source, ...]:
        """All sources."""
        return tuple(node for node in self.nodes if isinstance(node, Source))

    @property
    def operators(self) -> tuple[Operator, ...]:
        """All operators."""
        return tuple(node for node in self.nodes if isinstance(node, Operator))

    @property
    def outputs(self) -> tuple[Output, ...]:
        """All outputs."""
        return tuple(node for node in self.nodes if isinstance(node, Output))

    @property
    def arcs(self) -> tuple[Arc, ...]:
        """Every arc after the ones above it, network inputs included."""
        return tuple((name, node.name) for node in self.order for name in inputs_of(node) or (OUTSIDE,))

    def base_flows(self) -> dict[Arc, float]:
        """Tuples per second along each arc while nothing is shed."""
        return self.flows(NO_KEEPS)

    def flows(self, arc_keep: Mapping[Arc, float]) -> dict[Arc, float]:
        """Tuples per second that enter each arc, before its own drop, under these keep rates.

        A join puts out a pair for two tuples: where one side keeps half and the other a third, a sixth of the pairs is
        left. (For windows long enough that values spread evenly, as in section 4.3.5 of the paper.)
        """
        entering: dict[Arc, float] = {}
        passing: dict[str, tuple[float, float]] = {}  # of each node: tuples put out, and without any drops
        for node in self.order:
            if isinstance(node, Source):
                arc = (OUTSIDE, node.name)
                entering[arc] = node.tuples_per_second
                passing[node.name] = (node.tuples_per_second * arc_keep.get(arc, 1.0), node.tuples_per_second)
                continue
            kept = []
            for name in inputs_of(node):
                flow, base = passing[name]
                entering[(name, node.name)] = flow
                kept.append((flow * arc_keep.get((name, node.name), 1.0), base))
            if isinstance(node, Operator):
                base = math.fsum(b for _, b in kept) * node.selectivity
                if node.kind == "join":
                    share = math.prod(f / b if b else 0.0 for f, b in kept)
                    passing[node.name] = (base * share, base)
                else:
                    passing[node.name] = (math.fsum(f for f, _ in kept) * node.selectivity, base)
        return entering

    def delivered(self, arc_keep: Mapping[Arc, float]) -> dict[str, float]:
        """Share of each output's tuples that arrives under these keep rates."""
        flows, base = self.flows(arc_keep), self.base_flows()
        shares = {}
        for output in self.outputs:
            arc = (output.input, output.name)
            shares[output.name] = flows[arc] * arc_keep.get(arc, 1.0) / base[arc] if base[arc] else 1.0
        return shares

    def load(self, arc_keep: Mapping[Arc, float] = NO_KEEPS, *, drop_seconds: float = 0.0) -> float:
        """Seconds of work per second under these keep rates; each drop costs ``drop_seconds`` per tuple it sees."""
        flows = self.flows(arc_keep)
        work = [
            flows[(name, node.name)] * arc_keep.get((name, node.name), 1.0) * node.seconds_per_tuple
            for node in self.operators
            for name in node.inputs
        ]
        drops = [flow * drop_seconds for arc, flow in flows.items() if arc_keep.get(arc, 1.0) < 1]
        return math.fsum(work) + math.fsum(drops)

    def coefficients(self, arc_keep: Mapping[Arc, float] = NO_KEEPS) -> dict[Arc, float]:
        """Load coefficient of each arc: seconds of work that a tuple entering it takes on all its way.

        Of a fan-out the branches add. A tuple that enters a join counts for the pairs of its side: with drops on the
        other side, for fewer of them.
        """
        flows, base = self.flows(arc_keep), self.base_flows()

        def share(arc: Arc) -> float:
            return flows[arc] * arc_keep.get(arc, 1.0) / base[arc] if base[arc] else 0.0

        below: dict[str, float] = {}  # seconds per tuple put out
        found: dict[Arc, float] = {}
        for node in reversed(self.order):
            below[node.name] = math.fsum(found[(node.name, taking)] for taking in self.consumers[node.name])
            if isinstance(node, Source):
                arc = (OUTSIDE, node.name)
                found[arc] = arc_keep.get(arc, 1.0) * below[node.name]
                continue
            for name in inputs_of(node):
                arc = (name, node.name)
                after = 0.0
                if isinstance(node, Operator):
                    others = math.prod(share((o, node.name)) for o in node.inputs if o != name)
                    mate = others if node.kind == "join" else 1.0
                    after = node.seconds_per_tuple + node.selectivity * mate * below[node.name]
                found[arc] = arc_keep.get(arc, 1.0) * after
        return {arc: found[arc] for arc in self.arcs}

    def with_statistics(
        self,
        *,
        tuples_per_second: Mapping[str, float] | None = None,
        seconds_per_tuple: Mapping[str, float] | None = None,
        selectivity: Mapping[str, float] | None = None,
        loss: Mapping[str, LossTolerance] | None = None,
    ) -> Network:
        """The same network with other rates, costs, selectivities or loss tolerances, by name."""
        rates, costs, passed = tuples_per_second or {}, seconds_per_tuple or {}, selectivity or {}
        nodes: list[Source | Operator | Output] = []
        for node in self.nodes:
            if isinstance(node, Source):
                nodes.append(replace(node, tuples_per_second=rates.get(node.name, node.tuples_per_second)))
            elif isinstance(node, Operator):
                nodes.append(
                    replace(
                        node,
                        seconds_per_tuple=costs.get(node.name, node.seconds_per_tuple),
                        selectivity=passed.get(node.name, node.selectivity),
                    )
                )
            else:
                nodes.append(replace(node, loss=(loss or {}).get(node.name, node.loss)))
        return Network(tuple(nodes))

    def _repr_svg_(self) -> str:
        from penstock.model.drawing import network_svg

        return network_svg(self)


def inputs_of(node: Source | Operator | Output) -> tuple[str, ...]:
    """Names of the nodes that a node takes from."""
    if isinstance(node, Source):
        return ()
    return (node.input,) if isinstance(node, Output) else node.inputs


def arc_name(arc: Arc) -> str:
    """Name an arc for people.

    >>> arc_name(("", "events")), arc_name(("events", "submits"))
    ('-> events', 'events -> submits')
    """
    return f"{arc[0]} -> {arc[1]}".strip()


def _in_order(
    by_name: Mapping[str, Source | Operator | Output], consumers: Mapping[str, list[str]]
) -> tuple[Source | Operator | Output, ...]:
    missing = {name: len(inputs_of(node)) for name, node in by_name.items()}
    ready = [name for name, count in missing.items() if not count]
    order = []
    for name in ready:  # grows while it is walked
        order.append(by_name[name])
        for taking in consumers[name]:
            missing[taking] -= 1
            if not missing[taking]:
                ready.append(taking)
    if len(order) < len(by_name):
        circle = sorted(set(by_name) - {node.name for node in order})
        raise InvalidInputError(f"the network has a circle among {', '.join(circle)}; tuples must reach an end")
    return tuple(order)
