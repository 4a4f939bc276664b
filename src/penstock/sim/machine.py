"""What the simulated machine truly does with a batch: the part that nobody decides."""

from __future__ import annotations

from collections.abc import Mapping
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
    start_up_seconds
        What the first batch of a run takes on top: compiling code, opening state.
    key_share
        Share of the stream by key; the rest has keys that no policy lists.
    seed
        Of the noise and of the coin.

    Examples
    --------
    >>> machine = Machine({0: Cost(fixed_seconds=0.5, kept_seconds=1e-4), 30: Cost(fixed_seconds=1, kept_seconds=2e-4)})
    >>> machine.seconds(at=29.9, kept=10_000, shed=0), machine.seconds(at=30, kept=10_000, shed=0)
    (1.5, 3.0)
    >>> machine.survivors(Plan(keep=0.5, reason="burst"), offered=10_000).kept
    5062
    """

    def __init__(
        self,
        cost: Cost | Mapping[float, Cost],
        *,
        noise: float = 0.0,
        start_up_seconds: float = 0.0,
        key_share: Mapping[str, float] = NO_KEYS,
        seed: int = 0,
    ) -> None:
        require_not_negative("noise", noise, meaning="the spread of durations; 0.2 is about 20 %")
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
        self._start_up_seconds = start_up_seconds
        self._key_share = dict(key_share)
        self._random = np.random.default_rng(seed)

    def seconds(self, *, at: float, kept: int, shed: int, first_of_run: bool = False) -> float:
        """Time that a batch takes which starts then."""
        cost = self._costs[max(since for since in self._costs if since <= at)]
        # exp(normal(-s²/2, s)) has the mean 1.
        factor = float(np.exp(self._random.normal(-(self._noise**2) / 2, self._noise))) if self._noise else 1.0
        return cost.of(kept=kept, shed=shed) * factor + (self._start_up_seconds if first_of_run else 0.0)

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
