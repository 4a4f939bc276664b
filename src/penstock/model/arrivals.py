"""When tuples arrive: phases of constant rates, such as quiet, burst, quiet."""

from __future__ import annotations

import math
from bisect import bisect_right
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import accumulate

import numpy as np
from numpy.typing import ArrayLike, NDArray

from penstock.model.errors import InvalidInputError, require_not_negative, require_positive


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    """A stretch of time with one arrival rate; a rate of zero is a pause."""

    seconds: float
    tuples_per_second: float

    def __post_init__(self) -> None:
        require_positive("seconds", self.seconds, meaning="how long the phase lasts; leave out a phase without time")
        require_not_negative("tuples_per_second", self.tuples_per_second, meaning="an arrival rate; 0 is a pause")


@dataclass(frozen=True, slots=True)
class Arrivals:
    """Place every tuple in time: evenly within a phase, one phase after the other.

    Tuples are numbered from 0. Tuple ``i`` has arrived by ``t`` if and only if ``i < count_at(t)``, to the last bit:
    times and rates count as the decimals they are written as, so 10 s at 0.7 tuples per second are 7 tuples.

    Parameters
    ----------
    phases
        In the order of time; the first starts at 0, and nothing arrives after the last.

    Examples
    --------
    >>> arrivals = Arrivals.of((10, 1000), (20, 5000), (10, 1000))
    >>> arrivals.total_seconds, arrivals.total_tuples
    (40.0, 120000)
    >>> [arrivals.count_at(seconds) for seconds in (0, 5, 12, 99)]
    [0, 5000, 20000, 120000]
    >>> arrivals.arrival_seconds([4_999, 5_000, 19_999])
    array([ 5.   ,  5.001, 12.   ])
    """

    phases: tuple[Phase, ...]
    _starts: NDArray[np.float64] = field(init=False, repr=False, compare=False)
    _ends: NDArray[np.float64] = field(init=False, repr=False, compare=False)
    _rates: NDArray[np.float64] = field(init=False, repr=False, compare=False)
    _tuples_before: NDArray[np.float64] = field(init=False, repr=False, compare=False)
    _whole_tuples_by_end: NDArray[np.int64] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not self.phases:
            raise InvalidInputError("phases must not be empty; give at least one, as in Arrivals.of((10, 1000))")
        seconds = [_as_written(phase.seconds) for phase in self.phases]
        rates = [_as_written(phase.tuples_per_second) for phase in self.phases]
        edges = list(accumulate(seconds, initial=Fraction(0)))
        counts = list(accumulate((s * rate for s, rate in zip(seconds, rates, strict=True)), initial=Fraction(0)))
        for name, values, kind in (
            ("_starts", edges[:-1], np.float64),
            ("_ends", edges[1:], np.float64),
            ("_rates", rates, np.float64),
            ("_tuples_before", counts[:-1], np.float64),
            ("_whole_tuples_by_end", [math.floor(count) for count in counts[1:]], np.int64),
        ):
            object.__setattr__(self, name, np.array(values, dtype=kind))

    @staticmethod
    def of(*phases: tuple[float, float]) -> Arrivals:
        """Line up phases given as (seconds, tuples per second)."""
        return Arrivals(tuple(Phase(seconds=seconds, tuples_per_second=rate) for seconds, rate in phases))

    @property
    def total_seconds(self) -> float:
        """End of the last phase."""
        return float(self._ends[-1])

    @property
    def total_tuples(self) -> int:
        """Number of tuples in all."""
        return int(self._whole_tuples_by_end[-1])

    def count_at(self, seconds: float) -> int:
        """Count the tuples that have arrived by then."""
        if np.isnan(seconds):
            raise InvalidInputError(
                f"seconds must be a number, got {seconds!r}; it is a time since the first phase began"
            )
        # A search over the arrival times themselves: no second formula that could round another way.
        return bisect_right(range(self.total_tuples), seconds, key=lambda index: float(self.arrival_seconds(index)))

    def arrival_seconds(self, index: ArrayLike) -> NDArray[np.float64]:
        """Tell when the tuples with these numbers arrive; accepts a number or an array of them."""
        numbers = np.asarray(index)
        if numbers.size and (numbers.dtype.kind not in "iu" or numbers.min() < 0 or numbers.max() >= self.total_tuples):
            raise InvalidInputError(
                f"index must hold whole numbers in [0, {self.total_tuples}), got {index!r}; no other tuples arrive"
            )
        # The phase in which the count first reaches i + 1: pauses are passed over, as their count does not grow.
        at = np.searchsorted(self._whole_tuples_by_end, numbers.astype(np.int64), side="right")
        seconds = self._starts[at] + (numbers + 1 - self._tuples_before[at]) / self._rates[at]
        return np.asarray(np.minimum(seconds, self._ends[at]), dtype=np.float64)


def _as_written(number: float) -> Fraction:
    """Take 0.1 for a tenth, not for the binary fraction next to it."""
    return Fraction(str(number))
