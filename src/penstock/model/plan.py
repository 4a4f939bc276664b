"""What to drop, and why."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Literal

from penstock.model.errors import InvalidInputError, require_fraction
from penstock.model.network_plan import NetworkPlan
from penstock.model.work_plan import WorkPlan

NO_KEYS: Mapping[str, float] = MappingProxyType({})

Rule = Literal["equal", "proportional", "neyman"]
Wins = Literal["budget", "coverage"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ByGroup:
    """How the groups that a batch itself holds share what its plan keeps; they are counted when it is judged.

    Attributes
    ----------
    rule, wins
        See :class:`penstock.policy.strata.concept.ConceptDriven`.
    value
        Numeric column whose spread the rule goes by; None where it needs none.
    """

    rule: Rule = "equal"
    wins: Wins = "budget"
    value: str | None = None

    def to_json(self) -> dict[str, Any]:
        """Convert to what JSON can hold."""
        return {"rule": self.rule, "wins": self.wins, "value": self.value}


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The share of tuples that survives one batch, and the reason in words.

    Attributes
    ----------
    keep
        Share of tuples that survive, for every key without a rate of its own.
    key_keep
        Share of tuples that survive, by key. Keys are text, as Spark casts them.
    reason
        Why this plan and no other; shown to people unchanged.
    network
        Drops on the arcs of a network of queries. ``keep`` is then the share of the work that survives.
    work
        Budgets of an operator's partitions, which decide row by row. ``keep`` is then what is expected to survive.
    by_group
        Where the batch's own groups share what is kept: how they do.
    windows
        Where windows are shed: the settings of the policy that does.

    Examples
    --------
    >>> plan = Plan(keep=0.25, key_keep={"vip": 1.0}, reason="load 3.60 > headroom 0.90")
    >>> plan.sheds, plan.keep_of("vip"), plan.keep_of("anyone")
    (True, 1.0, 0.25)
    """

    keep: float
    reason: str
    # A plain dict by default: a MappingProxyType does not pickle.
    key_keep: Mapping[str, float] = field(default_factory=dict)
    network: NetworkPlan | None = None
    work: WorkPlan | None = None
    by_group: ByGroup | None = None
    windows: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        require_fraction("keep", self.keep, meaning="the share of tuples that survive")
        for key, keep in self.key_keep.items():
            if not isinstance(key, str):
                raise InvalidInputError(
                    f"key_keep has the key {key!r} of type {type(key).__name__}; keys are compared as text, "
                    f"so give str({key!r})"
                )
            require_fraction(f"key_keep[{key!r}]", keep, meaning="the share of that key's tuples that survive")
        if not self.reason:
            raise InvalidInputError("reason must not be empty; every decision says why it was made")

    @property
    def sheds(self) -> bool:
        """Whether any tuple may be dropped."""
        return self.keep < 1 or any(keep < 1 for keep in self.key_keep.values())

    def keep_of(self, key: str | None) -> float:
        """Look up the keep rate of a key; a missing (null) key gets the common rate."""
        return self.keep if key is None else self.key_keep.get(key, self.keep)

    @staticmethod
    def keep_all(reason: str) -> Plan:
        """Keep every tuple."""
        return Plan(keep=1.0, reason=reason)
