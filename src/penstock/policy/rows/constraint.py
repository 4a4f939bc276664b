"""What a shedder holds the queuing latency to: its average, its maximum, or its average over the last tuples."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from penstock.model.errors import require_not_negative, require_whole

AVERAGE, MAXIMUM, WINDOW = 0, 1, 2


@dataclass(frozen=True, slots=True, kw_only=True)
class AverageLatency:
    """Hold the mean queuing latency of all admitted tuples (AVG(tau) in [LAS20]).

    A quiet time earns credit that a later burst may use up; where that is not wanted, take :class:`WindowLatency`.
    """

    KIND: ClassVar[int] = AVERAGE

    seconds: float

    def __post_init__(self) -> None:
        _require_seconds(self.seconds)

    @property
    def window_tuples(self) -> int:
        """How many admitted tuples are remembered one by one."""
        return 0


@dataclass(frozen=True, slots=True, kw_only=True)
class MaximumLatency:
    """Hold the queuing latency of every admitted tuple (ABS(tau) in [LAS20])."""

    KIND: ClassVar[int] = MAXIMUM

    seconds: float

    def __post_init__(self) -> None:
        _require_seconds(self.seconds)

    @property
    def window_tuples(self) -> int:
        """How many admitted tuples are remembered one by one."""
        return 0


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowLatency:
    """Hold the mean queuing latency of the last ``tuples`` admitted tuples.

    >>> WindowLatency(seconds=0.5, tuples=0)
    Traceback (most recent call last):
    ...
    penstock.model.errors.InvalidInputError: tuples must be a whole number of at least 1, got 0; it is how many \
tuples the mean covers
    """

    KIND: ClassVar[int] = WINDOW

    seconds: float
    tuples: int = 1024

    def __post_init__(self) -> None:
        _require_seconds(self.seconds)
        require_whole("tuples", self.tuples, meaning="how many tuples the mean covers")

    @property
    def window_tuples(self) -> int:
        """How many admitted tuples are remembered one by one."""
        return self.tuples


Constraint = AverageLatency | MaximumLatency | WindowLatency


def _require_seconds(seconds: float) -> None:
    require_not_negative("seconds", seconds, meaning="the queuing latency to hold; 0 allows no waiting at all")
