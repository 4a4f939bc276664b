"""How the load and the utility of a network hang on its drops ([Aurora03] 4.3.1).

Only two kinds of arcs need to be looked at: network inputs, and arcs that leave a split. Between them lie stretches of
operators without a choice. So a network comes down to a small graph over *shares*, the part of the tuples that would
flow without drops and still flows with them:

- a place passes ``min(target, share above)``: what was dropped above need not be dropped again;
- a union passes the mean of the shares it takes in, weighted by the tuples behind them;
- a join passes the product;
- an output has the utility of its share.

Each of these has the work of the stretch behind it, and the load is the sum of work times share. Where all outputs
below a place have value graphs, the place falls into lanes, one for each range of values, with a target of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from penstock.model.errors import InvalidInputError
from penstock.model.network import OUTSIDE, Arc, Network, Operator, Output, Source
from penstock.model.quality import Histogram, LossTolerance, ValueGraph
from penstock.policy.network.places import Place, candidate_arcs, semantic_arcs
from penstock.policy.network.semantic import Range, derived_loss_tolerance, intervals, mean_utility, value_edges

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

PLACE, MIX, JOIN, OUTPUT = 0, 1, 2, 3


@dataclass(slots=True)
class _Carrier:
    """What flows out of a node: tuples per second by lane, and the graph nodes whose share they have."""

    flow: Floats
    ids: list[int]  # one for all lanes together, or one for each
    laned: bool


@dataclass(slots=True)
class PlaceGraph:
    """The graph over shares, every node after its parents."""

    kind: list[int] = field(default_factory=list)
    parents: list[tuple[tuple[int, float], ...]] = field(default_factory=list)
    work: list[float] = field(default_factory=list)
    flow: list[float] = field(default_factory=list)
    graphs: dict[int, LossTolerance] = field(default_factory=dict)
    places: dict[int, Place] = field(default_factory=dict)
    outputs: dict[int, str] = field(default_factory=dict)
    lane_shares: dict[int, float] = field(default_factory=dict)

    def add(self, kind: int, parents: tuple[tuple[int, float], ...], flow: float) -> int:
        """Add a node and return its number."""
        self.kind.append(kind)
        self.parents.append(parents)
        self.work.append(0.0)
        self.flow.append(flow)
        return len(self.kind) - 1

    def components(self) -> list[list[int]]:
        """Split into parts that share nothing, each in order."""
        head = list(range(len(self.kind)))

        def find(node: int) -> int:
            while head[node] != node:
                head[node] = head[head[node]]
                node = head[node]
            return node

        for node, parents in enumerate(self.parents):
            for parent, _ in parents:
                head[find(node)] = find(parent)
        together: dict[int, list[int]] = {}
        for node in range(len(head)):
            together.setdefault(find(node), []).append(node)
        return list(together.values())


def place_graph(
    network: Network,
    *,
    semantic: bool,
    chunk_size: float | None = None,
    spreads: Mapping[Arc, Histogram] | None = None,
) -> PlaceGraph:
    """Reduce a network to the graph over shares of its places, unions, joins and outputs.

    Parameters
    ----------
    spreads
        How values are spread at some places, where that was measured; else it follows from the sources.
    """
    return _Builder(network, semantic=semantic, chunk_size=chunk_size, spreads=spreads or {}).build()


class _Builder:
    def __init__(
        self, network: Network, *, semantic: bool, chunk_size: float | None, spreads: Mapping[Arc, Histogram]
    ) -> None:
        self._network = network
        self._spreads = spreads
        self._chunk_size = chunk_size
        valued = [output.value for output in network.outputs if output.value is not None]
        for source in network.sources:
            if valued and source.values is None:
                raise InvalidInputError(
                    f"an output has a value graph, and source {source.name!r} does not say how values are spread; "
                    "give Source(values=Histogram...)"
                )
        self._semantic = semantic_arcs(network) if semantic else frozenset()
        known = [source.values for source in network.sources if source.values is not None] if valued else []
        edges = set(value_edges(valued, known, chunk_size=chunk_size))
        edges.update(edge for spread in spreads.values() for edge in spread.edges)
        if valued:
            edges.update(edge for op in network.operators for low, high, _ in op.passes for edge in (low, high))
        self._lanes: list[Range] = list(pairwise(sorted(edges))) or [(0.0, 0.0)]
        self._candidates = set(candidate_arcs(network))
        self._graph = PlaceGraph()
        self._carriers: dict[Arc, _Carrier] = {}

    def build(self) -> PlaceGraph:
        for node in self._network.order:
            if isinstance(node, Output):
                self._end(node)
                continue
            carrier = self._source(node) if isinstance(node, Source) else self._operator(node)
            for name in self._network.consumers[node.name]:
                arc = (node.name, name)
                self._carriers[arc] = self._place(arc, carrier) if arc in self._candidates else carrier
        return self._graph

    def _source(self, source: Source) -> _Carrier:
        rate = source.tuples_per_second
        if len(self._lanes) == 1:
            flow = np.array([rate])
        else:
            assert source.values is not None  # noqa: S101 - the constructor made sure of it
            flow = rate * np.array([source.values.share(low, high) for low, high in self._lanes])
        return self._place((OUTSIDE, source.name), _Carrier(flow, [], laned=False))

    def _place(self, arc: Arc, carrier: _Carrier) -> _Carrier:
        graph = self._graph
        laned = arc in self._semantic
        total = float(carrier.flow.sum())
        if arc in self._spreads and len(self._lanes) > 1 and not carrier.laned:
            shares = np.array([self._spreads[arc].share(low, high) for low, high in self._lanes])
            carrier = _Carrier(total * shares, carrier.ids, laned=False)
        if not laned:
            parents = tuple((parent, 1.0) for parent in carrier.ids)
            graph.places[node := graph.add(PLACE, parents, total)] = Place(arc)
            return _Carrier(carrier.flow, [node], laned=False)
        ids = []
        for lane, flow in enumerate(carrier.flow.tolist()):
            above = carrier.ids[lane if carrier.laned else 0] if carrier.ids else None
            node = graph.add(PLACE, () if above is None else ((above, 1.0),), flow)
            graph.places[node] = Place(arc, self._lanes[lane])
            graph.lane_shares[node] = flow / total if total else 0.0
            ids.append(node)
        return _Carrier(carrier.flow, ids, laned=True)

    def _operator(self, node: Operator) -> _Carrier:
        graph = self._graph
        taken = [self._carriers[(name, node.name)] for name in node.inputs]
        for carrier in taken:
            self._add_work(carrier, node.seconds_per_tuple)
        if len(taken) == 1:
            return _Carrier(taken[0].flow * self._selectivity(node), taken[0].ids, taken[0].laned)
        if node.kind == "join":
            left, right = taken
            both = float(left.flow.sum() + right.flow.sum()) * node.selectivity
            spread = left.flow / left.flow.sum() if left.flow.sum() else left.flow
            flow = both * spread
            (other,) = right.ids
            ids = [
                graph.add(JOIN, ((one, 1.0), (other, 1.0)), float(flow[lane]) if left.laned else both)
                for lane, one in enumerate(left.ids)
            ]
            return _Carrier(flow, ids, left.laned)
        flow = np.sum([carrier.flow for carrier in taken], axis=0)
        laned = any(carrier.laned for carrier in taken)
        ids = []
        for lane in range(len(flow) if laned else 1):
            parts = [(c.ids[lane if c.laned else 0], float(c.flow[lane] if laned else c.flow.sum())) for c in taken]
            total = sum(part for _, part in parts)
            weights = tuple((parent, part / total if total else 1 / len(parts)) for parent, part in parts)
            ids.append(graph.add(MIX, weights, total))
        return _Carrier(flow * self._selectivity(node), ids, laned)

    def _end(self, output: Output) -> None:
        graph, carrier = self._graph, self._carriers[(output.input, output.name)]
        if not carrier.laned:
            node = graph.add(OUTPUT, ((carrier.ids[0], 1.0),), float(carrier.flow.sum()))
            graph.outputs[node] = output.name
            graph.graphs[node] = self._loss(output, carrier.flow).scaled(output.importance)
            return
        assert output.value is not None  # noqa: S101 - lanes lead to outputs with value graphs only
        worth = carrier.flow * [mean_utility(output.value, low, high) for low, high in self._lanes]
        total = float(worth.sum())
        for lane, parent in enumerate(carrier.ids):
            node = graph.add(OUTPUT, ((parent, 1.0),), float(carrier.flow[lane]))
            graph.outputs[node] = output.name
            lost = float(worth[lane]) / total * output.importance if total else 0.0
            graph.graphs[node] = LossTolerance(((0.0, 0.0), (1.0, lost)))

    def _loss(self, output: Output, flow: Floats) -> LossTolerance:
        """The loss-tolerance graph, derived from the value graph where there is one."""
        total = float(flow.sum())
        if output.value is None or total <= 0:
            return output.loss
        bins = [(low, high, float(f)) for (low, high), f in zip(self._lanes, flow, strict=True) if f > 0]
        return derived_loss(output.value, Histogram.of(*bins), self._chunk_size) or output.loss

    def _add_work(self, carrier: _Carrier, seconds_per_tuple: float) -> None:
        for lane, node in enumerate(carrier.ids):
            flow = carrier.flow[lane] if carrier.laned else carrier.flow.sum()
            self._graph.work[node] += float(flow) * seconds_per_tuple

    def _selectivity(self, node: Operator) -> float | Floats:
        if not node.passes or len(self._lanes) == 1:
            return node.selectivity
        return np.array([lane_selectivity(node, lane) for lane in self._lanes])


def lane_selectivity(node: Operator, lane: Range) -> float:
    """Selectivity for values of a lane that no range of the operator begins or ends in."""
    middle = (lane[0] + lane[1]) / 2
    return next((passed for low, high, passed in node.passes if low <= middle < high), 0.0)


def derived_loss(graph: ValueGraph, spread: Histogram, chunk_size: float | None = None) -> LossTolerance | None:
    """Loss tolerance by a value graph; None where no value that occurs is worth anything."""
    try:
        return derived_loss_tolerance(intervals(graph, spread, chunk_size=chunk_size))
    except InvalidInputError:
        return None


def graph_arrays(graph: PlaceGraph, nodes: list[int]) -> Mapping[str, Floats | Ints]:
    """Lay out one component for the kernel, its nodes renumbered."""
    local = {node: number for number, node in enumerate(nodes)}
    parent_from, parent_of, weight = [0], [], []
    piece_from, piece_low, piece_slope = [0], [], []
    for node in nodes:
        for parent, share in graph.parents[node]:
            parent_of.append(local[parent])
            weight.append(share)
        parent_from.append(len(parent_of))
        loss = graph.graphs.get(node)
        if loss is not None:
            # From the top piece down, as the cursor moves.
            for (low, u), (high, v) in reversed(list(pairwise(loss.points))):
                piece_low.append(low)
                piece_slope.append((v - u) / (high - low))
        piece_from.append(len(piece_low))
    return {
        "kind": np.array([graph.kind[node] for node in nodes], dtype=np.int64),
        "parent_from": np.array(parent_from, dtype=np.int64),
        "parent_of": np.array(parent_of, dtype=np.int64),
        "weight": np.array(weight, dtype=np.float64),
        "work": np.array([graph.work[node] for node in nodes], dtype=np.float64),
        "flow": np.array([graph.flow[node] for node in nodes], dtype=np.float64),
        "piece_from": np.array(piece_from, dtype=np.int64),
        "piece_low": np.array(piece_low, dtype=np.float64),
        "piece_slope": np.array(piece_slope, dtype=np.float64),
    }
