"""Admission control, which the road map is measured against: drops at the network inputs only ([Aurora03] 5.3)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from penstock.model.network import OUTSIDE, Network
from penstock.model.network_plan import Drop, NetworkPlan
from penstock.policy.network.drops import NetworkLoad, explain, source_loads


@dataclass(frozen=True, slots=True)
class InputRandom:
    """Shed the excess on one source drawn at random; if that is not enough, draw another."""

    network: Network
    seed: int = 0

    def decide(self, load: NetworkLoad) -> NetworkPlan:
        """Draw sources until the excess is gone."""
        loads = source_loads(self.network, load)
        order = np.random.default_rng(self.seed).permutation(len(loads))
        names = list(loads)
        return _shed(loads, load, _one_by_one([names[n] for n in order], loads, load))


@dataclass(frozen=True, slots=True)
class InputCostTop:
    """Shed the excess on the source with the largest load, then on the next."""

    network: Network

    def decide(self, load: NetworkLoad) -> NetworkPlan:
        """Take sources by their load until the excess is gone."""
        loads = source_loads(self.network, load)
        return _shed(loads, load, _one_by_one(sorted(loads, key=lambda name: -loads[name]), loads, load))


@dataclass(frozen=True, slots=True)
class InputUniform:
    """Shed the same amount of load on every source; what one cannot give, the others share.

    >>> from penstock.model.network import Operator, Output, Source
    >>> nodes = []
    >>> for name, cost in (("cheap", 0.01), ("dear", 0.09)):
    ...     nodes.append(Source(name=name, tuples_per_second=10))
    ...     nodes.append(Operator(name=f"f-{name}", kind="filter", inputs=(name,), seconds_per_tuple=cost))
    ...     nodes.append(Output(name=f"o-{name}", input=f"f-{name}"))
    >>> network = Network(tuple(nodes))
    >>> load = NetworkLoad(tuples_per_second={"cheap": 10, "dear": 10}, capacity=0.9)
    >>> InputUniform(network).decide(load).describe()
    '-> cheap: keep 50.0%; -> dear: keep 94.4%'
    >>> InputCostUniform(network).decide(load).describe()
    '-> cheap: keep 90.0%; -> dear: keep 90.0%'
    """

    network: Network

    def decide(self, load: NetworkLoad) -> NetworkPlan:
        """Split the excess evenly."""
        loads = source_loads(self.network, load)
        left = sum(loads.values()) - load.allowed
        shed: dict[str, float] = {}
        # The smallest first: a source that cannot give its part gives all, and the rest is split anew.
        names = sorted((name for name in loads if loads[name] > 0), key=lambda name: loads[name])
        for position, name in enumerate(names):
            shed[name] = max(0.0, min(loads[name], left / (len(names) - position)))
            left -= shed[name]
        return _shed(loads, load, shed)


@dataclass(frozen=True, slots=True)
class InputCostUniform:
    """Shed on every source in proportion to its load: the same keep rate for all."""

    network: Network

    def decide(self, load: NetworkLoad) -> NetworkPlan:
        """Split the excess by load."""
        loads = source_loads(self.network, load)
        needed = sum(loads.values())
        part = max(0.0, 1 - load.allowed / needed) if needed else 0.0
        return _shed(loads, load, {name: part * own for name, own in loads.items()})


def _one_by_one(names: list[str], loads: Mapping[str, float], load: NetworkLoad) -> dict[str, float]:
    left = sum(loads.values()) - load.allowed
    shed = {}
    for name in names:
        shed[name] = max(0.0, min(loads[name], left))
        left -= shed[name]
    return shed


def _shed(loads: Mapping[str, float], load: NetworkLoad, shed: Mapping[str, float]) -> NetworkPlan:
    drops = {
        (OUTSIDE, name): Drop(max(0.0, 1 - shed[name] / own))
        for name, own in loads.items()
        if own > 0 and shed.get(name, 0.0) > 1e-12 * own
    }
    return NetworkPlan(drops=drops, reason=explain(sum(loads.values()), load))
