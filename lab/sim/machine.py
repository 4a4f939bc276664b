"""What the simulated machine truly does with a batch: the part that nobody decides."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from penstock.model.errors import InvalidInputError, require_fraction, require_not_negative
from penstock.model.load import Cost
from penstock.model.plan import NO_KEYS, Plan


@dataclass(frozen=True, slots=True, kw_only=True)
class Survivors:
    """How many tuples of a batch survived, in all and among the keys that the plan lists."""

    kept: int
    listed_offered: int
    listed_kept: int


class Machine:
    """Take the time that batches take, and toss the coin for each tuple.

    Parameters
    ----------
    cost
        What a batch truly costs; or costs by the second from which they hold, as in ``{0: cheap, 30: dear}``.
    noise
        Standard deviation of the logarithm of a batch's duration; 0.2 is about 20 %. The mean stays the true cost.
    slowdown
        How many times as long everything takes, by the second in which a batch starts: Java that still compiles, a
        neighbour that takes a core.
    stall_share, stall_seconds
        Share of batches that are held up, and the least and the most that takes, whatever the batch holds.
    start_up_seconds
        What the first batch of a run takes on top: compiling code, opening state.
    overhead_share
        Part of the fixed cost that the engine reports as time beside the batch's own job; None: it reports none.
    key_share
        Share of the stream by key; the rest has keys that no policy lists.
    seed
        Of the noise and of the coin.

    Examples
    --------
    >>> machine = Machine({0: Cost(fixed_seconds=0.5, kept_seconds=1e-4), 30: Cost(fixed_seconds=1, kept_seconds=2e-4)})
    >>> machine.next_batch(at=29.9).of(kept=10_000, shed=0), machine.next_batch(at=30).of(kept=10_000, shed=0)
    (1.5, 3.0)
    >>> machine.survivors(Plan(keep=0.5, reason="burst"), offered=10_000).kept
    5062
    """

    def __init__(
        self,
        cost: Cost | Mapping[float, Cost],
        *,
        noise: float = 0.0,
        slowdown: Callable[[float], float] = lambda _: 1.0,
        stall_share: float = 0.0,
        stall_seconds: tuple[float, float] = (1.0, 3.0),
        start_up_seconds: float = 0.0,
        overhead_share: float | None = None,
        key_share: Mapping[str, float] = NO_KEYS,
        seed: int = 0,
    ) -> None:
        require_not_negative("noise", noise, meaning="the spread of durations; 0.2 is about 20 %")
        require_fraction("stall_share", stall_share, meaning="the share of batches that are held up")
        require_not_negative("start_up_seconds", start_up_seconds, meaning="the extra time of a run's first batch")
        for key, share in key_share.items():
            require_fraction(f"key_share[{key!r}]", share, meaning="the share of the stream with that key")
        if (listed_share := sum(key_share.values())) > 1:
            raise InvalidInputError(
                f"key_share must sum to at most 1, got {listed_share!r}; they are parts of one stream"
            )
        self._costs = {0.0: cost} if isinstance(cost, Cost) else dict(cost)
        if 0 not in self._costs:
            raise InvalidInputError(f"cost must have an entry for second 0, got {cost!r}; time starts there")
        self._noise = noise
        self._slowdown = slowdown
        self._stall_share, self._stall_seconds = stall_share, stall_seconds
        self._start_up_seconds = start_up_seconds
        self._overhead_share = overhead_share
        self._key_share = dict(key_share)
        self._random = np.random.default_rng(seed)

    def next_batch(self, *, at: float, first_of_run: bool = False) -> Cost:
        """Draw what a batch that starts then truly costs, speed, luck and stalls included."""
        cost = self._costs[max(since for since in self._costs if since <= at)]
        # exp(normal(-s²/2, s)) has the mean 1.
        luck = float(np.exp(self._random.normal(-(self._noise**2) / 2, self._noise))) if self._noise else 1.0
        factor = self._slowdown(at) * luck
        held_up = 0.0
        if self._stall_share and self._random.random() < self._stall_share:
            held_up = float(self._random.uniform(*self._stall_seconds))
        return Cost(
            fixed_seconds=cost.fixed_seconds * factor + held_up + (self._start_up_seconds if first_of_run else 0.0),
            kept_seconds=cost.kept_seconds * factor,
            shed_seconds=cost.shed_seconds * factor,
        )

    def overhead_seconds(self, cost: Cost) -> float | None:
        """What the engine reports of a batch as time beside its own job."""
        return None if self._overhead_share is None else self._overhead_share * cost.fixed_seconds

    def survivors(self, plan: Plan, *, offered: int) -> Survivors:
        """Toss the coin of the plan for every tuple."""
        keys = [*self._key_share, None]
        shares = [*self._key_share.values(), max(0.0, 1 - sum(self._key_share.values()))]
        counts = self._random.multinomial(offered, shares)
        kept = [int(self._random.binomial(count, plan.keep_of(key))) for key, count in zip(keys, counts, strict=True)]
        listed = [position for position, key in enumerate(keys) if key in plan.key_keep]
        return Survivors(
            kept=sum(kept),
            listed_offered=sum(int(counts[position]) for position in listed),
            listed_kept=sum(kept[position] for position in listed),
        )
