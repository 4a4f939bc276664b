"""What to drop on which arcs of a network, and why."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from penstock.model.errors import InvalidInputError, require_fraction
from penstock.model.network import Arc, arc_name

Range = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Drop:
    """A drop on an arc: at random, or of the tuples whose value lies in one of the ranges.

    Attributes
    ----------
    keep
        Share of the arc's tuples that survive; of a semantic drop, the share that is expected to.
    ranges
        Values ``(low, high)`` that are dropped, high excluded. Empty for a random drop.
    """

    keep: float
    ranges: tuple[Range, ...] = ()

    def __post_init__(self) -> None:
        require_fraction("keep", self.keep, meaning="the share of an arc's tuples that survive")
        object.__setattr__(self, "ranges", tuple((float(low), float(high)) for low, high in self.ranges))

    def __str__(self) -> str:
        if not self.ranges:
            return f"keep {self.keep:.1%}"
        return "drop values in " + ", ".join(f"[{low:g}, {high:g})" for low, high in self.ranges)


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkPlan:
    """The drops of a whole network, and the reason in words; arcs that are not listed pass everything.

    ``row`` is the row of the road map that the plan is from, 0 where nothing is dropped. ``value`` is the column that
    drops by value go by, None where it was not said.

    >>> plan = NetworkPlan(drops={("", "events"): Drop(0.5)}, reason="load 1.80 > headroom 0.90")
    >>> plan.sheds, plan.keep(("", "events")), plan.keep(("events", "submits"))
    (True, 0.5, 1.0)
    >>> NetworkPlan.from_json(plan.to_json()) == plan
    True
    """

    drops: Mapping[Arc, Drop] = field(default_factory=dict)
    reason: str
    row: int = 0
    value: str | None = None

    def __post_init__(self) -> None:
        if not self.reason:
            raise InvalidInputError("reason must not be empty; every decision says why it was made")

    @property
    def sheds(self) -> bool:
        """Whether any tuple may be dropped."""
        return any(drop.keep < 1 or drop.ranges for drop in self.drops.values())

    def keep(self, arc: Arc) -> float:
        """Share of an arc's tuples that survive its own drop."""
        drop = self.drops.get(arc)
        return 1.0 if drop is None else drop.keep

    @property
    def arc_keep(self) -> dict[Arc, float]:
        """Keep rates of the arcs with drops."""
        return {arc: drop.keep for arc, drop in self.drops.items()}

    def describe(self) -> str:
        """List the drops, for people."""
        return "; ".join(f"{arc_name(arc)}: {drop}" for arc, drop in self.drops.items()) or "no drops"

    def to_json(self) -> dict[str, Any]:
        """Convert to what JSON can hold."""
        listed = [[*arc, drop.keep, [list(range_) for range_ in drop.ranges]] for arc, drop in self.drops.items()]
        return {"drops": listed, "reason": self.reason, "row": self.row, "value": self.value}

    @staticmethod
    def from_json(fields: Mapping[str, Any]) -> NetworkPlan:
        """Restore what :meth:`to_json` gave."""
        drops = {
            (above, below): Drop(keep, tuple((low, high) for low, high in ranges))
            for above, below, keep, ranges in fields["drops"]
        }
        return NetworkPlan(drops=drops, reason=fields["reason"], row=fields["row"], value=fields["value"])
