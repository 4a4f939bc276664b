"""Runs of the simulator for the figures of [Aurora03]: one network, one excess load, every policy."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from lab.sim.network_engine import Outcome, simulate
from lab.sim.workload import rate_for_excess
from penstock.model.network import Network
from penstock.policy.network.admission import InputCostTop, InputCostUniform, InputRandom, InputUniform
from penstock.policy.network.drops import NetworkPolicy, RoadMapPolicy
from penstock.policy.network.place_graph import place_graph

BOUNDARY = 76.0
# The paper averages Input-Random over four runs.
RANDOM_RUNS = 4

POLICIES: dict[str, Callable[[Network, int], NetworkPolicy]] = {
    "Semantic-LS": lambda network, seed: RoadMapPolicy(network, semantic=True),
    "Random-LS": lambda network, seed: RoadMapPolicy(network),
    "Input-Uniform": lambda network, seed: InputUniform(network),
    "Input-Cost-Uniform": lambda network, seed: InputCostUniform(network),
    "Input-Cost-Top": lambda network, seed: InputCostTop(network),
    "Input-Random": InputRandom,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """Losses of one policy in one run, in percent of the whole utility, and how busy the machine was."""

    tuple_loss: float
    value_loss: float
    busy: float


def at_excess(network: Network, *, capacity: float, excess: float) -> Network:
    """The network at rates that exceed the capacity by this part."""
    factor = rate_for_excess(network, capacity=capacity, excess=excess)
    return network.with_statistics(
        tuples_per_second={source.name: source.tuples_per_second * factor for source in network.sources}
    )


def trial(network: Network, policy: str, *, capacity: float, seed: int, periods: int) -> Trial:
    """Run one policy; Input-Random several times, with the mean of the losses."""
    graph = place_graph(network, semantic=False)
    losses = {name: graph.graphs[node] for node, name in graph.outputs.items()}
    worth = {o.name: (o.value.pieces[0][2], o.value.pieces[1][2]) for o in network.outputs if o.value is not None}
    runs = []
    for run in range(RANDOM_RUNS if policy == "Input-Random" else 1):
        outcome = simulate(
            network,
            POLICIES[policy](network, seed + 1000 * run),
            capacity=capacity,
            boundary=BOUNDARY,
            seed=seed,
            periods=periods,
        )
        runs.append(
            (_lost(outcome.tuple_utility(losses)), _lost(outcome.value_utility(worth)), _used(outcome, capacity))
        )
    tuples, values, busy = np.mean(runs, axis=0)
    return Trial(tuple_loss=float(tuples), value_loss=float(values), busy=float(busy))


def _lost(utilities: Mapping[str, float]) -> float:
    return 100 * (1 - float(np.mean(list(utilities.values()))))


def _used(outcome: Outcome, capacity: float) -> float:
    return outcome.busy / capacity
