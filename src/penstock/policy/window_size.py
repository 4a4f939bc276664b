"""How many tuples an answer rests on while nothing is shed: N of [Sampling03], for both kinds of window."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.model.errors import require_not_negative, require_positive


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeWindow:
    """The tuples of the last so many seconds: the more, the higher the rate.

    >>> TimeWindow(seconds=60).tuples(tuples_per_second=1000, selectivity=0.05)
    3000.0
    """

    seconds: float

    def __post_init__(self) -> None:
        require_positive("seconds", self.seconds, meaning="the length of the window")

    def tuples(self, *, tuples_per_second: float, selectivity: float) -> float:
        """Tuples that pass all operators on the way, at this rate of the source."""
        require_not_negative("tuples_per_second", tuples_per_second, meaning="the arrival rate of the source")
        require_not_negative(
            "selectivity", selectivity, meaning="the tuples that reach the query per tuple of the source"
        )
        return self.seconds * tuples_per_second * selectivity


@dataclass(frozen=True, slots=True, kw_only=True)
class CountWindow:
    """The last so many tuples of the source, whatever its rate; they are counted before anything is shed.

    >>> CountWindow(size=10_000).tuples(tuples_per_second=1000, selectivity=0.05)
    500.0
    """

    size: float

    def __post_init__(self) -> None:
        require_positive("size", self.size, meaning="the tuples of the source that a window spans")

    def tuples(self, *, tuples_per_second: float, selectivity: float) -> float:
        """Tuples that pass all operators on the way; the rate makes no difference."""
        require_not_negative("tuples_per_second", tuples_per_second, meaning="the arrival rate of the source")
        require_not_negative(
            "selectivity", selectivity, meaning="the tuples that reach the query per tuple of the source"
        )
        return self.size * selectivity
