"""How long a batch will take: what is expected, and what all but a few batches stay below."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from penstock.model.errors import require_not_negative
from penstock.model.load import Cost

# Standard deviations of a normal distribution that 19 of 20 draws stay below.
NINETEEN_OF_TWENTY = 1.645
# Less than a machine can tell from nothing.
NOTHING_SECONDS = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """What is known about the duration of the next batch, in the form that travels to where plans are made.

    Attributes
    ----------
    cost
        What a batch is expected to cost.
    noise
        Relative spread of the durations of equal batches.
    late_factor, late_seconds
        All but the agreed share of batches end within ``late_factor`` times what was expected and ``late_seconds``:
        the first from batches that were a little off, the second from stalls, which do not grow with a batch.
    fixed_variance, kept_variance, covariance
        How far the fixed cost and the cost of a kept row may be off, in seconds squared.
    off
        Logarithm of how many times longer the last batch took than was expected of it, where that was beyond noise.
    dither
        Share by which every other plan is cut, where all batches are of one size and tell nothing apart.

    Examples
    --------
    >>> forecast = Forecast(cost=Cost(fixed_seconds=0.2, kept_seconds=1e-4), noise=0.1, late_factor=1.2)
    >>> round(forecast.seconds(kept=8_000, shed=0), 2), round(forecast.at_most(kept=8_000, shed=0), 2)
    (1.0, 1.2)

    Where the cost of a row is a guess, a batch larger than any before may take much longer than expected:

    >>> guess = Forecast(cost=forecast.cost, noise=0.1, late_factor=1.2, kept_variance=1e-9)
    >>> round(guess.at_most(kept=8_000, shed=0), 2), round(guess.at_most(kept=80_000, shed=0), 2)
    (1.59, 14.23)
    """

    cost: Cost
    noise: float = 0.0
    late_factor: float = 1.0
    late_seconds: float = 0.0
    fixed_variance: float = 0.0
    kept_variance: float = 0.0
    covariance: float = 0.0
    off: float = 0.0
    dither: float = 0.0

    def __post_init__(self) -> None:
        require_not_negative("noise", self.noise, meaning="the spread of the durations of equal batches")

    def seconds(self, *, kept: float, shed: float) -> float:
        """Expected duration of a batch."""
        return self.cost.of(kept=kept, shed=shed)

    def at_most(self, *, kept: float, shed: float) -> float:
        """Duration that all but the agreed share of batches stay below."""
        expected = self.seconds(kept=kept, shed=shed)
        if expected < NOTHING_SECONDS:
            return expected + self.late_seconds
        return (expected * self.late_factor + self.late_seconds) * self.guessed_factor(kept=kept, shed=shed)

    def guessed_factor(self, *, kept: float, shed: float) -> float:
        """How many times longer than expected a batch may take because costs are guessed, noise left aside."""
        expected = max(self.seconds(kept=kept, shed=shed), NOTHING_SECONDS)
        variance = self.fixed_variance + 2 * self.covariance * kept + self.kept_variance * kept * kept
        spread = math.sqrt(self.noise**2 + max(0.0, variance) / expected**2)
        return math.exp(min(NINETEEN_OF_TWENTY * (spread - self.noise), 10.0))

    def most_kept(self, *, offered: float, seconds: float, expected_seconds: float) -> float:
        """Count the rows of a batch that may be kept, so that it ends in time.

        ``seconds`` is the time that all but a few batches may take, ``expected_seconds`` the one that they may be
        expected to. However much they vary, two fifths of the time that dropping frees are used: a margin beyond that
        would lose more answers than lateness does.
        """
        without_rows = self.seconds(kept=0, shed=offered)
        spare_seconds = min(seconds, expected_seconds) - without_rows
        per_row = self.cost.kept_seconds - self.cost.shed_seconds
        if spare_seconds <= 0:
            return 0.0
        expected_fit = offered if per_row <= 0 else min(offered, spare_seconds / per_row)
        low, high = LEAST_SHARE * expected_fit, expected_fit
        if self.at_most(kept=high, shed=offered - high) <= seconds:
            return high
        for _ in range(40):
            middle = (low + high) / 2
            if self.at_most(kept=middle, shed=offered - middle) <= seconds:
                low = middle
            else:
                high = middle
        return low

    def scaled(self, factor: float) -> Forecast:
        """Forecast for a machine that takes so many times as long for everything."""
        return replace(
            self,
            cost=Cost(**{name: seconds * factor for name, seconds in asdict(self.cost).items()}),
            fixed_variance=self.fixed_variance * factor**2,
            kept_variance=self.kept_variance * factor**2,
            covariance=self.covariance * factor**2,
        )

    def to_dict(self) -> dict[str, Any]:
        """Convert to what JSON can hold."""
        return asdict(self)

    @staticmethod
    def from_dict(fields: Mapping[str, Any]) -> Forecast:
        """Restore what :meth:`to_dict` gave."""
        return Forecast(**{**fields, "cost": Cost(**fields["cost"])})


LEAST_SHARE = 0.4
