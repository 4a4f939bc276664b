"""Turn counts on the arcs of a running network into its statistics: rates, selectivities, costs, spread of values."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from penstock.control.guidance import fade
from penstock.control.operator_cost import Belief, OperatorCosts
from penstock.estimate.needed import needed_share, tolerance
from penstock.model.network import OUTSIDE, Arc, Network, Operator, Output, Source
from penstock.model.quality import Histogram

# Work per tuple of one kind against another, while nothing is known. A join stores every tuple; windows store sums, and
# most tuples are summed up before they get there.
KIND_WEIGHTS = {"filter": 1.0, "map": 1.0, "union": 0.5, "aggregate": 3.0, "join": 20.0}


@dataclass(frozen=True, slots=True, kw_only=True)
class PaneCounts:
    """What the windows of an output took in during a batch: tuples (weighted), keys, sum and sum of squares."""

    tuples: float
    keys: float
    total: float
    squares: float

    @property
    def evenness(self) -> float:
        """Mean of the squares over the square of the mean."""
        return self.squares * self.tuples / self.total**2 if self.total else math.inf


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkCounts:
    """What one batch counted.

    Attributes
    ----------
    present
        Tuples that each source and operator put out.
    kept, shed
        Tuples that survived the drop of each arc that has one, and those it took out.
    lanes
        Tuples by value range before some drops.
    panes
        What the windows of each output with a target for its error took in.
    """

    present: Mapping[str, int]
    kept: Mapping[Arc, int]
    shed: Mapping[Arc, int] = field(default_factory=dict)
    lanes: Mapping[Arc, Mapping[tuple[float, float], int]] = field(default_factory=dict)
    panes: Mapping[str, PaneCounts] = field(default_factory=dict)

    def on(self, arc: Arc) -> int:
        """Tuples that reached the lower end of an arc."""
        return self.kept[arc] if arc in self.kept else self.offered(arc)

    def offered(self, arc: Arc) -> int:
        """Tuples that reached the drop of an arc."""
        if arc[0] == OUTSIDE:
            return self.present.get(arc[1], 0)
        # What a source puts out is counted in front of the drop on its input.
        return self.kept.get((OUTSIDE, arc[0]), self.present.get(arc[0], 0))


class NetworkLearning:
    """Keep the statistics of a network up to date, batch by batch.

    Parameters
    ----------
    network
        The network with the costs that the user gave, where they did; costs of 0 are guessed by kind and then learned.
    window_seconds
        Length of the windows of each aggregate.
    """

    def __init__(self, network: Network, *, window_seconds: Mapping[str, float] | None = None) -> None:
        self._network = network
        self._window_seconds = window_seconds or {}
        self._given = {op.name for op in network.operators if op.seconds_per_tuple > 0}
        # Given costs are absolute, guessed ones are not: with both, guesses are put on the scale of those given.
        given = [op.seconds_per_tuple / KIND_WEIGHTS[op.kind] for op in network.operators if op.name in self._given]
        unit = sum(given) / len(given) if given else 1e-6
        self._beliefs = {
            op.name: Belief(
                weight=(op.seconds_per_tuple or unit * KIND_WEIGHTS[op.kind]) / unit, given=op.name in self._given
            )
            for op in network.operators
        }
        self._unit = unit
        self._costs = OperatorCosts(self._beliefs)
        self._selectivity: dict[str, float] = {}
        self._rates: dict[str, float] = {}
        self._spreads: dict[Arc, Histogram] = {}
        self._needed: dict[str, float] = {}

    def learn(self, counts: NetworkCounts, *, seconds: float | None, collected_seconds: float | None) -> None:
        """Take in a batch: its counts, how long it took, and in how many seconds its tuples arrived."""
        taken = self.taken(counts)
        if seconds:
            self._costs.learn(taken, seconds=seconds)
        for operator in self._network.operators:
            if operator.kind == "aggregate" or not taken[operator.name]:
                continue
            if operator.kind == "join":
                put_out = self._whole_pairs(operator, counts)
                whole = self._whole_taken(operator, counts)
                if put_out is None or not whole:
                    continue
                passed = put_out / whole
            else:
                passed = counts.present.get(operator.name, 0) / taken[operator.name]
            self._selectivity[operator.name] = fade(self._selectivity.get(operator.name), passed)
        for source in self._network.sources:
            if collected_seconds and counts.present.get(source.name):
                rate = counts.present[source.name] / collected_seconds
                self._rates[source.name] = fade(self._rates.get(source.name), rate, weight=0.7)
        for arc, lanes in counts.lanes.items():
            if sum(lanes.values()) >= 100:
                self._spreads[arc] = Histogram.of(*((low, high, count + 1e-9) for (low, high), count in lanes.items()))

        if collected_seconds:
            for output in self._network.outputs:
                self._learn_needed(output, counts.panes.get(output.name), collected_seconds)

    def _learn_needed(self, output: Output, pane: PaneCounts | None, collected_seconds: float) -> None:
        """Learn what share of its rows an output needs to meet its target, for an answer of the mean size."""
        if output.error is None or pane is None or not pane.keys:
            return
        per_answer = pane.tuples / pane.keys * self._window_seconds[output.input] / collected_seconds
        share = needed_share(output.error, tuples=per_answer, evenness=pane.evenness)
        self._needed[output.name] = fade(self._needed.get(output.name), share)

    def taken(self, counts: NetworkCounts) -> dict[str, float]:
        """Tuples that each operator took in."""
        return {
            operator.name: float(sum(counts.on((name, operator.name)) for name in operator.inputs))
            for operator in self._network.operators
        }

    def network(self) -> Network:
        """The network with what was learned so far."""
        costs = self._costs.costs() or {name: belief.weight * self._unit for name, belief in self._beliefs.items()}
        # Before anything is measured every source is as fast as the next.
        return self._network.with_statistics(
            tuples_per_second={source.name: self._rates.get(source.name, 1.0) for source in self._network.sources},
            seconds_per_tuple=costs,
            selectivity=self._selectivity,
            loss={name: tolerance(share) for name, share in self._needed.items()},
        )

    @property
    def ready(self) -> bool:
        """Whether enough batches were seen to know costs."""
        return self._costs.costs() is not None

    @property
    def spreads(self) -> dict[Arc, Histogram]:
        """How values are spread before some drops, where that was counted."""
        return dict(self._spreads)

    def work_share(self, counts: NetworkCounts, network: Network) -> float:
        """Work that a batch took against the work without drops, by the costs and selectivities learned."""
        costs = {operator.name: operator.seconds_per_tuple for operator in network.operators}
        done = sum(costs[name] * tuples for name, tuples in self.taken(counts).items())
        coefficients = network.coefficients()
        whole = sum(coefficients[(OUTSIDE, s.name)] * counts.present.get(s.name, 0) for s in network.sources)
        return min(1.0, done / whole) if whole > 0 else 1.0

    def _whole_taken(self, operator: Operator, counts: NetworkCounts) -> float:
        """Tuples that a join would take in without drops."""
        base = self.network().base_flows()
        now = sum(self._rates.values()) or float(len(self._network.sources))
        offered = sum(counts.present.get(source.name, 0) for source in self._network.sources)
        return sum(base[(name, operator.name)] for name in operator.inputs) * offered / now

    def _whole_pairs(self, operator: Operator, counts: NetworkCounts) -> float | None:
        """Pairs that a join would put out without drops, from those it did and the share of each side that it saw."""
        base = self.network().base_flows()
        now = sum(self._rates.values()) or float(len(self._network.sources))
        offered = sum(counts.present.get(source.name, 0) for source in self._network.sources)
        share = 1.0
        for name in operator.inputs:
            whole = base[(name, operator.name)] * offered / now
            share *= min(1.0, counts.on((name, operator.name)) / whole) if whole else 0.0
        return counts.present.get(operator.name, 0) / share if share > 0.01 else None


def with_values(network: Network, edges: tuple[float, float]) -> Network:
    """Give every source an even spread, for value graphs to start from until values are counted."""
    nodes: list[Source | Operator | Output] = []
    for node in network.nodes:
        if isinstance(node, Source) and node.values is None:
            nodes.append(replace(node, values=Histogram.uniform(*edges)))
        else:
            nodes.append(node)
    return Network(tuple(nodes))
