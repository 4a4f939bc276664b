"""The policies that every other one is measured against."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from penstock.model.errors import require_fraction
from penstock.model.load import Load
from penstock.model.plan import Plan


@dataclass(frozen=True, slots=True, kw_only=True)
class KeepAll:
    """Keep everything, as plain Spark does, and only count.

    >>> from penstock.model.load import Cost
    >>> flood = Load(offered_tuples=1e9, cost=Cost(fixed_seconds=0, kept_seconds=1), available_seconds=1, headroom=0.9)
    >>> KeepAll().decide(flood).keep
    1.0
    """

    ONE_RATE: ClassVar[bool] = True

    def decide(self, load: Load) -> Plan:
        """Keep everything, whatever the load."""
        return Plan.keep_all(f"keep all, as asked; {load.explain()}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Uniform:
    """Keep the fraction of input that fits in capacity, whatever the tuples hold.

    Parameters
    ----------
    keep
        A fixed rate to use under overload; None (the default) keeps just what fits.
    min_keep
        The rate never falls below this, so that some answer is always possible.

    Examples
    --------
    >>> from penstock.model.load import Cost
    >>> load = Load(
    ...     offered_tuples=30_000,
    ...     cost=Cost(fixed_seconds=0.2, kept_seconds=1e-4),
    ...     available_seconds=2.0,
    ...     headroom=0.9,
    ... )
    >>> plan = Uniform().decide(load)
    >>> round(plan.keep, 3), plan.reason
    (0.533, 'load 1.60 > headroom 0.90: 30,000 tuples need 3.20 s of 2.00 s')
    """

    keep: float | None = None
    min_keep: float = 0.01

    ONE_RATE: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.keep is not None:
            require_fraction("keep", self.keep, meaning="the share of tuples that survive under overload")
        require_fraction("min_keep", self.min_keep, meaning="the least share of tuples to keep")

    def decide(self, load: Load) -> Plan:
        """Shed at random what exceeds the headroom."""
        if not load.overloaded:
            return Plan.keep_all(load.explain())
        keep = load.fitting_keep() if self.keep is None else self.keep
        return Plan(keep=max(keep, self.min_keep), reason=load.explain())
