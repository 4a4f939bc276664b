"""Keys that matter more, or less, than the rest."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from penstock.model.errors import InvalidInputError, require_fraction, require_kind
from penstock.model.load import Load
from penstock.model.plan import NO_KEYS, Plan


@dataclass(frozen=True, slots=True, kw_only=True)
class Priority:
    """Under overload, give the listed keys the keep rates they were promised; the others share what is left.

    Parameters
    ----------
    keep
        Keep rate by key, in force while the load does not fit.
    listed_share
        Share of the stream that the listed keys make up, until the running query has measured it.
    min_keep
        The common rate never falls below this.

    Examples
    --------
    >>> from penstock.model.load import Cost
    >>> load = Load(
    ...     offered_tuples=40_000,
    ...     cost=Cost(fixed_seconds=0, kept_seconds=1e-4),
    ...     available_seconds=2.0,
    ...     headroom=0.9,
    ...     listed_share=0.2,
    ...     listed_keep=1.0,
    ... )
    >>> plan = Priority(keep={"vip": 1.0}).decide(load)
    >>> plan.key_keep["vip"], round(plan.keep, 4)
    (1.0, 0.3125)
    """

    keep: Mapping[str, float] = field(default_factory=lambda: NO_KEYS)
    listed_share: float = 0.0
    min_keep: float = 0.01

    def __post_init__(self) -> None:
        require_kind("keep", self.keep, Mapping, called="a mapping of keys to rates", example="{'vip': 1.0}")
        if not self.keep:
            raise InvalidInputError("keep must list at least one key and its rate; without any, use Uniform()")
        Plan(keep=1.0, key_keep=self.keep, reason="validation")
        require_fraction("listed_share", self.listed_share, meaning="the share of the stream in the listed keys")
        require_fraction("min_keep", self.min_keep, meaning="the least share of tuples to keep")

    def decide(self, load: Load) -> Plan:
        """Fit the common rate around what the listed keys take.

        Overall ``listed_share * listed_keep + (1 - listed_share) * rest`` must equal the share that fits. Until
        they were measured, the listed keys count as equally frequent.
        """
        if not load.overloaded:
            return Plan.keep_all(load.explain())
        listed_share = self.listed_share if load.listed_share is None else load.listed_share
        listed_keep = sum(self.keep.values()) / len(self.keep) if load.listed_keep is None else load.listed_keep
        rest_share = 1 - listed_share
        rest = 1.0 if rest_share == 0 else (load.fitting_keep() - listed_share * listed_keep) / rest_share
        return Plan(
            keep=min(1.0, max(rest, self.min_keep)),
            key_keep=dict(self.keep),
            reason=f"{load.explain()}; {len(self.keep):,} listed keys first",
        )
