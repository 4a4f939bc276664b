"""What every policy for a network of queries promises, and the road map as one of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Protocol, runtime_checkable

from penstock.model.errors import require_not_negative, require_positive
from penstock.model.load import require_headroom
from penstock.model.network import OUTSIDE, Network
from penstock.model.network_plan import NetworkPlan
from penstock.policy.network.roadmap import RoadMap


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkLoad:
    """The rates that a network meets, against the work that the machine can do.

    Attributes
    ----------
    tuples_per_second
        Of each source.
    capacity
        Seconds of work that the machine does in a second (C in [Aurora03]).
    headroom
        Share of the capacity that a plan may use (H).
    """

    tuples_per_second: Mapping[str, float]
    capacity: float = 1.0
    headroom: float = 1.0

    def __post_init__(self) -> None:
        require_positive("capacity", self.capacity, meaning="the seconds of work that the machine does in a second")
        require_headroom(self.headroom)
        for name, rate in self.tuples_per_second.items():
            require_not_negative(f"tuples_per_second[{name!r}]", rate, meaning="the arrival rate")

    @property
    def allowed(self) -> float:
        """Seconds of work per second that a plan may use."""
        return self.capacity * self.headroom


@runtime_checkable
class NetworkPolicy(Protocol):
    """Decide what to drop on the arcs of a network.

    A policy is a frozen value, gives the same plan for the same load, and sheds nothing while the load fits.
    """

    def decide(self, load: NetworkLoad) -> NetworkPlan:
        """Answer a load with a plan and its reason."""
        ...


def source_loads(network: Network, load: NetworkLoad) -> dict[str, float]:
    """Seconds of work per second that each source causes at these rates."""
    coefficients = network.coefficients()
    return {
        source.name: coefficients[(OUTSIDE, source.name)] * load.tuples_per_second[source.name]
        for source in network.sources
    }


def explain(needed: float, load: NetworkLoad) -> str:
    """Say in words how the load compares with the headroom."""
    sign = ">" if needed > load.allowed else "<="
    return f"load {needed / load.capacity:.2f} {sign} headroom {load.headroom:.2f}"


@dataclass(frozen=True)
class RoadMapPolicy:
    """Shed by the road map: the first row that saves the excess ([Aurora03], Random-LS and Semantic-LS).

    Rates count in proportion to those the road map was built with: at twice the rates a row saves twice as much.
    """

    network: Network
    semantic: bool = False
    step: float = 0.01
    options: Mapping[str, float] = field(default_factory=dict)

    @cached_property
    def road_map(self) -> RoadMap:
        """The plans, built when they are first asked for."""
        return RoadMap.build(self.network, semantic=self.semantic, step=self.step, **self.options)  # type: ignore[arg-type]

    def decide(self, load: NetworkLoad) -> NetworkPlan:
        """Look the excess up."""
        needed = sum(source_loads(self.network, load).values())
        if needed <= load.allowed:
            return NetworkPlan(reason=explain(needed, load))
        # By part of the load: with values the rows know better than the coefficients what passes.
        road_map = self.road_map
        index = road_map.look_up((1 - load.allowed / needed) * float(road_map.savings[-1]))
        return road_map.row(index, reason=explain(needed, load)).plan
