"""A network of queries on a simulated machine, with a policy that watches its rates ([Aurora03] 5.1)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from lab.sim.network_kernel import run_until, seed_kernel
from lab.sim.workload import HIGHEST
from penstock.model.errors import NotSupportedError, require_positive
from penstock.model.network import OUTSIDE, Arc, Network, Operator, Output, Source
from penstock.model.network_plan import NetworkPlan
from penstock.model.quality import LossTolerance
from penstock.policy.network.drops import NetworkLoad, NetworkPolicy

QUEUE_TUPLES = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class Epoch:
    """What one period between two looks of the monitor offered and delivered, by output and value interval."""

    plan: NetworkPlan
    offered: np.ndarray
    delivered: np.ndarray


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a run delivered.

    Attributes
    ----------
    epochs
        One for each period of the monitor, warm-up left out.
    busy
        Seconds of work per second.
    mean_latency
        Arrival to delivery, over all delivered tuples.
    overflowed
        Tuples that found a queue full.
    """

    epochs: tuple[Epoch, ...]
    busy: float
    mean_latency: float
    overflowed: int

    def tuple_utility(self, losses: Mapping[str, LossTolerance]) -> dict[str, float]:
        """Utility by loss-tolerance graph, mean over the epochs weighted by their tuples (section 5.4)."""
        found = {}
        for number, (name, loss) in enumerate(losses.items()):
            weighted, total = 0.0, 0.0
            for epoch in self.epochs:
                offered = float(epoch.offered[number].sum())
                if offered:
                    # What was queued in the epoch before may arrive in this one.
                    share = min(1.0, float(epoch.delivered[number].sum()) / offered)
                    weighted += loss.utility(share) * offered
                    total += offered
            found[name] = weighted / total if total else 1.0
        return found

    def value_utility(self, utilities: Mapping[str, tuple[float, float]]) -> dict[str, float]:
        """Utility of the values delivered against that of all values (section 5.4)."""
        found = {}
        offered = np.sum([epoch.offered for epoch in self.epochs], axis=0)
        delivered = np.sum([epoch.delivered for epoch in self.epochs], axis=0)
        for number, (name, worth) in enumerate(utilities.items()):
            whole = float(offered[number] @ np.array(worth))
            found[name] = min(1.0, float(delivered[number] @ np.array(worth)) / whole) if whole else 1.0
        return found


def simulate(
    network: Network,
    policy: NetworkPolicy,
    *,
    capacity: float,
    boundary: float,
    seed: int,
    periods: int = 20,
    period_seconds: float = 500.0,
    warm_up_periods: int = 2,
    poisson: bool = False,
) -> Outcome:
    """Run a network of filters, maps and unions; the policy decides anew in every period, from the rates before it.

    Parameters
    ----------
    capacity
        Seconds of work that the machine does in a second.
    boundary
        Value at which the second interval of the value graphs begins.
    poisson
        Draw inter-arrival times from the exponential distribution; else they are constant, as in the paper.
    """
    require_positive("capacity", capacity, meaning="the seconds of work that the machine does in a second")
    layout = _Layout(network, capacity)
    rng = np.random.default_rng(seed)
    seed_kernel(seed)
    times, sources, values = _arrivals(network, rng, periods * period_seconds, poisson=poisson)
    state = np.zeros(3)
    count = layout.count
    queue, since = np.zeros((count, QUEUE_TUPLES)), np.zeros((count, QUEUE_TUPLES))
    head, size = np.zeros(count, dtype=np.int64), np.zeros(count, dtype=np.int64)
    busy, lateness = np.zeros(1), np.zeros(3)
    rates = {source.name: source.tuples_per_second for source in network.sources}
    epochs = []
    for period in range(periods):
        start, end = period * period_seconds, (period + 1) * period_seconds
        plan = policy.decide(NetworkLoad(tuples_per_second=rates, capacity=capacity))
        delivered = np.zeros((len(network.outputs), 2))
        run: Any = run_until
        run(
            end, state, times, sources, values, *layout.arrays, *layout.drops(plan), queue, since, head, size, boundary,
            delivered, busy, lateness,
        )  # fmt: skip
        now = (times >= start) & (times < end)
        counted = np.bincount(sources[now], minlength=len(network.sources))
        rates = {s.name: float(counted[n]) / period_seconds for n, s in enumerate(network.sources)}
        if period == warm_up_periods:
            busy_before, late_before = busy[0], lateness.copy()
        if period >= warm_up_periods:
            offered = layout.offered(sources[now], values[now], boundary)
            epochs.append(Epoch(plan=plan, offered=offered, delivered=delivered))
    late = lateness - late_before
    return Outcome(
        epochs=tuple(epochs),
        busy=float(busy[0] - busy_before) * capacity / (period_seconds * max(1, periods - warm_up_periods - 1)),
        mean_latency=float(late[0] / late[1]) if late[1] else 0.0,
        overflowed=int(late[2]),
    )


def _arrivals(
    network: Network, rng: np.random.Generator, seconds: float, *, poisson: bool
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Times, sources and values of all tuples, in order; sources start at random moments of their first interval."""
    times: list[np.ndarray] = []
    sources: list[np.ndarray] = []
    for number, source in enumerate(network.sources):
        expected = seconds * source.tuples_per_second
        own: np.ndarray
        if poisson:
            own = np.sort(rng.uniform(0, seconds, rng.poisson(expected)))
        else:
            own = (np.arange(int(expected)) + rng.uniform()) / source.tuples_per_second
        times.append(own)
        sources.append(np.full(len(own), number))
    together = np.concatenate(times)
    order = np.argsort(together, kind="stable")
    values = rng.integers(0, int(HIGHEST), size=len(together)).astype(np.float64)
    return together[order], np.concatenate(sources)[order], values


class _Layout:
    """A network as arrays: sources first, then operators, then outputs."""

    def __init__(self, network: Network, capacity: float) -> None:
        for operator in network.operators:
            if operator.kind not in ("filter", "map", "union"):
                raise NotSupportedError(
                    f"the simulator knows filters, maps and unions, and {operator.name!r} is a {operator.kind}; "
                    "leave it out, as the paper's experiments do"
                )
        self._network = network
        nodes: list[Source | Operator | Output] = [*network.sources, *network.operators, *network.outputs]
        self.count = len(nodes)
        number = {node.name: n for n, node in enumerate(nodes)}
        arcs: dict[Arc, int] = {arc: n for n, arc in enumerate(network.arcs)}
        out_from, out_arc, out_to = [0], [], []
        for node in nodes:
            for name in network.consumers[node.name]:
                out_arc.append(arcs[(node.name, name)])
                out_to.append(number[name])
            out_from.append(len(out_to))
        self._arcs = arcs
        output_of = np.full(self.count, -1, dtype=np.int64)
        for n, output in enumerate(network.outputs):
            output_of[number[output.name]] = n
        seconds = [node.seconds_per_tuple / capacity if isinstance(node, Operator) else 0.0 for node in nodes]
        self._low = np.array([_bound(node) for node in nodes])
        self.arrays: tuple[Any, ...] = (
            np.array(seconds), self._low, np.array(out_from), np.array(out_arc), np.array(out_to), output_of,
        )  # fmt: skip
        self._reach = self._reached(number)

    def drops(self, plan: NetworkPlan) -> tuple[np.ndarray, ...]:
        """Lay a plan out: keep rate and dropped ranges of every arc. A drop on an input counts on its arcs below."""
        keep = np.ones(len(self._arcs))
        ranges: list[list[tuple[float, float]]] = [[] for _ in self._arcs]
        for arc, drop in plan.drops.items():
            for placed in self._below(arc):
                if drop.ranges:
                    ranges[self._arcs[placed]] += drop.ranges
                else:
                    keep[self._arcs[placed]] *= drop.keep
        flat = np.array([r for listed in ranges for r in listed], dtype=np.float64).reshape(-1, 2)
        ends = np.cumsum([0, *(len(listed) for listed in ranges)])
        return keep, ends, flat[:, 0].copy(), flat[:, 1].copy()

    def _below(self, arc: Arc) -> list[Arc]:
        if arc[0] != OUTSIDE:
            return [arc]
        taking = self._network.consumers[arc[1]]
        if len(taking) > 1:
            raise NotSupportedError(f"source {arc[1]!r} feeds several operators; put one operator between them here")
        return [(arc[1], taking[0])]

    def offered(self, sources: np.ndarray, values: np.ndarray, boundary: float) -> np.ndarray:
        """Tuples that would reach each output without drops, by value interval."""
        found = np.zeros((len(self._network.outputs), 2))
        upper = values >= boundary
        for (source, output), bounds in self._reach.items():
            own = sources == source
            for bound in bounds:
                reached = own & (values >= bound)
                found[output] += (np.count_nonzero(reached & ~upper), np.count_nonzero(reached & upper))
        return found

    def _reached(self, number: Mapping[str, int]) -> dict[tuple[int, int], list[float]]:
        """For each source and output, the bound of every path between them: the tightest filter on it."""
        network = self._network
        bounds: dict[str, dict[int, list[float]]] = {}
        for node in network.order:
            if isinstance(node, Source):
                bounds[node.name] = {number[node.name]: [-np.inf]}
                continue
            merged: dict[int, list[float]] = {}
            own = self._low[number[node.name]]
            for name in (node.input,) if isinstance(node, Output) else node.inputs:
                for source, found in bounds[name].items():
                    merged.setdefault(source, []).extend(max(bound, own) for bound in found)
            bounds[node.name] = merged
        return {
            (source, n): found
            for n, output in enumerate(network.outputs)
            for source, found in bounds[output.name].items()
        }


def _bound(node: Source | Operator | Output) -> float:
    if not isinstance(node, Operator) or node.kind != "filter":
        return -np.inf
    if node.passes:
        return node.passes[0][0]
    if node.selectivity == 1:
        return -np.inf
    raise NotSupportedError(
        f"the simulator filters by value, and {node.name!r} does not say which values pass; give Operator(passes=...)"
    )
