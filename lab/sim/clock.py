"""Time that passes only when told to."""

from __future__ import annotations

import math

from penstock.model.errors import InvalidInputError


class SimulatedClock:
    """Hold the simulated time; it moves forward only.

    >>> clock = SimulatedClock()
    >>> clock.advance(2.5)
    >>> clock.advance_to(4.0)
    >>> clock.now
    4.0
    >>> clock.advance_to(3.0)
    Traceback (most recent call last):
    ...
    penstock.model.errors.InvalidInputError: the clock stands at 4.0 s and cannot go to 3.0 s; time only moves ...
    """

    def __init__(self, *, now: float = 0.0) -> None:
        if not math.isfinite(now):
            raise InvalidInputError(f"now must be finite, got {now!r}; it is where the clock starts, in seconds")
        self._now = float(now)

    @property
    def now(self) -> float:
        """Seconds since the simulated epoch."""
        return self._now

    def advance(self, seconds: float) -> None:
        """Let this many seconds pass."""
        self.advance_to(self._now + seconds)

    def advance_to(self, now: float) -> None:
        """Let time pass until then."""
        if not math.isfinite(now) or now < self._now:
            raise InvalidInputError(
                f"the clock stands at {self._now} s and cannot go to {now} s; time only moves forward, "
                "so start a new clock to run again"
            )
        self._now = float(now)
