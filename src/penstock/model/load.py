"""How much work waits, and how much time there is for it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from penstock.model.branches import Branches
from penstock.model.errors import InvalidInputError, is_number, require_fraction, require_not_negative, require_positive


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """What a batch costs: so much for starting it, so much per kept and per dropped row.

    ``foreign_seconds`` is what a row of another source takes, one that does not feed the shedder.

    >>> Cost(fixed_seconds=0.2, kept_seconds=1e-4, shed_seconds=1e-6).of(kept=10_000, shed=20_000)
    1.22
    """

    fixed_seconds: float
    kept_seconds: float
    shed_seconds: float = 0.0
    foreign_seconds: float = 0.0

    def __post_init__(self) -> None:
        require_not_negative("fixed_seconds", self.fixed_seconds, meaning="the cost of a batch without tuples")
        require_not_negative("kept_seconds", self.kept_seconds, meaning="the cost of a tuple that survives")
        require_not_negative("shed_seconds", self.shed_seconds, meaning="the cost of reading a tuple and dropping it")
        require_not_negative("foreign_seconds", self.foreign_seconds, meaning="the cost of a row of another source")

    def beside(self, foreign: float) -> Cost:
        """Cost of a batch that also holds so many rows of other sources: for our rows, those are a fixed cost."""
        return replace(self, fixed_seconds=self.fixed_seconds + self.foreign_seconds * foreign, foreign_seconds=0.0)

    def of(self, *, kept: float, shed: float) -> float:
        """Seconds that a batch of this many kept and shed tuples takes."""
        return self.fixed_seconds + self.kept_seconds * kept + self.shed_seconds * shed


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """The work that the next batch offers, against the time it may take.

    Attributes
    ----------
    offered_tuples
        Tuples that the next batch is expected to hold.
    cost
        What they cost, as learned so far.
    available_seconds
        Time the batch may take without breaking the latency target.
    headroom
        Share of that time a policy may plan to use (H in [Aurora03]).
    listed_share, listed_keep
        Share of the offered tuples whose key has a rate of its own, and the share of those that survived; None until
        a plan with such keys was measured.
    key_tuples
        Tuples of the next batch by key, for the keys that earlier batches made known; None where nobody counts them.
    branches
        The query's outputs, where it has several with drops of their own; None until they were measured.

    Examples
    --------
    >>> load = Load(
    ...     offered_tuples=40_000,
    ...     cost=Cost(fixed_seconds=0.0, kept_seconds=1e-4),
    ...     available_seconds=2.0,
    ...     headroom=0.9,
    ... )
    >>> load.utilization, load.overloaded, load.fitting_keep()
    (2.0, True, 0.45)
    """

    offered_tuples: float
    cost: Cost
    available_seconds: float
    headroom: float
    listed_share: float | None = None
    listed_keep: float | None = None
    key_tuples: Mapping[str, float] | None = None
    branches: Branches | None = None

    def __post_init__(self) -> None:
        require_not_negative("offered_tuples", self.offered_tuples, meaning="the size of the next batch")
        require_positive("available_seconds", self.available_seconds, meaning="the time the batch may take")
        require_headroom(self.headroom)
        for name in ("listed_share", "listed_keep"):
            if (share := getattr(self, name)) is not None:
                require_fraction(name, share, meaning="measured on keys with a rate of their own")

    @property
    def work_seconds(self) -> float:
        """Time the batch takes when nothing is shed."""
        return self.cost.of(kept=self.offered_tuples, shed=0)

    @property
    def utilization(self) -> float:
        """Work against the time there is for it; above 1 the target breaks."""
        return self.work_seconds / self.available_seconds

    @property
    def overloaded(self) -> bool:
        """Whether the work exceeds the headroom ([Aurora03] sections 3 and 4.1)."""
        return self.utilization > self.headroom

    def fitting_keep(self) -> float:
        """Share of the offered tuples that fits in the headroom; 0 when not even the dropping does.

        From ``fixed + kept * k * n + shed * (1 - k) * n = headroom * available``, solved for k.
        """
        if not self.overloaded:
            return 1.0
        saved_per_drop_seconds = self.cost.kept_seconds - self.cost.shed_seconds
        if saved_per_drop_seconds <= 0 or self.offered_tuples == 0:
            # Dropping saves nothing here: the batch costs the same whatever is kept.
            return 1.0
        spare_seconds = (
            self.headroom * self.available_seconds
            - self.cost.fixed_seconds
            - self.cost.shed_seconds * self.offered_tuples
        )
        return min(1.0, max(0.0, spare_seconds / (saved_per_drop_seconds * self.offered_tuples)))

    def explain(self) -> str:
        """Say in words how the load compares with the headroom."""
        sign = ">" if self.overloaded else "<="
        return (
            f"load {self.utilization:.2f} {sign} headroom {self.headroom:.2f}: {self.offered_tuples:,.0f} tuples need "
            f"{self.work_seconds:.2f} s of {self.available_seconds:.2f} s"
        )


def require_headroom(headroom: float) -> None:
    """Refuse a headroom outside (0, 1]."""
    if not is_number(headroom) or not 0 < headroom <= 1:
        raise InvalidInputError(
            f"headroom must be in (0, 1], got {headroom!r}; it is the share of the available time a policy may use"
        )
