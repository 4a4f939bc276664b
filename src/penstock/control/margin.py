"""Learn how far batches overrun what was expected of them, so that all but a few end in time."""

from __future__ import annotations

import math
from collections import deque

import numpy as np
from scipy.stats import norm

from penstock.model.forecast import NINETEEN_OF_TWENTY

# Overruns beyond this many spreads are stalls. A stall lasts as long in a small batch as in a large one.
STALL_SPREADS = 3.0
# So many batches beyond the promised time are to be remembered, on average, to know it.
BEYOND_BATCHES = 4
# Before anything is seen, overruns are thought normal, as firmly as this many batches would show it.
BELIEVED_BATCHES = 8
LEAST_REMEMBERED = 60
# The share to plan with is a little below the one that is promised: a batch may be late in other ways, too.
PLANNED = 0.7
# How fast the share to plan with answers a late batch, and how far it goes.
STEP = 0.03
LEAST, MOST = 0.1, 1.3


class Margin:
    """Find the time below which all but a share of batches stay, from the overruns of the last ones.

    The overruns are those of the forecasts that were really made, so they hold all that can go wrong: noise, stalls, a
    machine that changes its speed, costs that were misjudged. The share to plan with is corrected by how many batches
    were late in the end, as in adaptive conformal inference [Gibbs21]: whatever the machine does, the
    share of late batches comes out as promised in the long run.

    Examples
    --------
    >>> margin = Margin(late_share=0.05)
    >>> before, _ = margin.overrun(expected_seconds=1.0, noise=0.2)
    >>> for seconds in [1.0, 1.02, 0.98] * 20:
    ...     margin.learn(expected_seconds=1.0, seconds=seconds, noise=0.02, spread=0.02)
    >>> after, _ = margin.overrun(expected_seconds=1.0, noise=0.02)
    >>> round(before, 2), round(after, 2)
    (1.44, 1.04)
    """

    def __init__(self, *, late_share: float) -> None:
        self._late_share = late_share * PLANNED
        self._share = self._late_share
        self._overruns: deque[tuple[float, float]] = deque(
            maxlen=max(LEAST_REMEMBERED, round(BEYOND_BATCHES / self._late_share))
        )

    def learn(self, *, expected_seconds: float, seconds: float, noise: float, spread: float) -> None:
        """Take in how long a batch took; ``spread`` is that of its forecast, noise and guesses together."""
        # What comes of guessed costs is left out: a forecast has its own share of that.
        off = math.log(seconds / expected_seconds) * noise / spread
        most = STALL_SPREADS * noise
        guessed = NINETEEN_OF_TWENTY * (spread - noise)
        stalled = max(0.0, seconds - expected_seconds * math.exp(most + guessed)) if off > most else 0.0
        self._overruns.append((min(max(off, -most), most), stalled))

    def ended(self, *, late: bool) -> None:
        """Correct the share to plan with by whether a batch was late."""
        share = self._share + STEP * (self._late_share - late)
        self._share = min(max(share, LEAST * self._late_share), MOST * self._late_share)

    def overrun(self, *, expected_seconds: float, noise: float) -> tuple[float, float]:
        """Give a factor and seconds: batches of about this length end within that factor and so many seconds more."""
        believed = norm.ppf((np.arange(BELIEVED_BATCHES) + 0.5) / BELIEVED_BATCHES) * noise
        seen = np.array([*self._overruns, *((off, 0.0) for off in believed)])
        factors, stalls = np.exp(seen[:, 0]), seen[:, 1]
        order = np.argsort(expected_seconds * factors + stalls)
        # Between two batches, as quantiles are taken.
        position = (1 - self._share) * (len(order) - 1)
        low, part = int(position), position - int(position)
        lower, upper = order[low], order[min(low + 1, len(order) - 1)]
        factor = float((1 - part) * factors[lower] + part * factors[upper])
        # So few batches may have been lucky ones: no less than what noise alone calls for.
        return (
            max(factor, math.exp(float(norm.ppf(1 - self._share)) * noise)),
            float((1 - part) * stalls[lower] + part * stalls[upper]),
        )
