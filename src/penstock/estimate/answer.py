"""One answer, as a value that people read."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass

import numpy as np

from penstock.estimate.algebra import Interval, Number, NumPy
from penstock.estimate.interval import Aggregate, Within, interval
from penstock.estimate.moments import Moments


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """An answer, how far off it may be, and what it rests on.

    Attributes
    ----------
    value
        The answer; None where there is nothing to answer from (no tuple).
    lower, upper
        Bounds that hold the truth at the stated confidence; None where the sample does not support any.
    relative_error
        The larger distance from the value to a bound, as a share of the value; None without bounds, and around 0.
    share
        Share of the input that survived to be answered from; None without a tuple.
    reliable
        Whether the bounds can be relied on; False also means that there are none.
    """

    value: float | None
    lower: float | None = None
    upper: float | None = None
    relative_error: float | None = None
    share: float | None = None
    reliable: bool = False

    @property
    def exact(self) -> bool:
        """Whether the answer is what it would have been with nothing shed."""
        return self.reliable and self.lower == self.value == self.upper

    def covers(self, truth: float) -> bool:
        """Whether the bounds hold the truth; False without bounds."""
        return self.lower is not None and self.upper is not None and self.lower <= truth <= self.upper


def estimate(
    moments: Moments,
    aggregate: Aggregate,
    *,
    confidence: float = 0.95,
    method: str = "normal",
    within: Within = None,
) -> Estimate:
    """Answer from a weighted sample, with bounds where the sample supports them.

    Parameters
    ----------
    moments
        Of the surviving tuples.
    aggregate
        ``"count"``, ``"sum"``, ``"avg"`` or ``"variance"`` (of the population).
    confidence
        Share of intervals that are to hold the truth.
    method
        ``"normal"``, or ``"hoeffding"`` for bounds that hold for any distribution and are wider.
    within
        Least and largest value that can occur, if known. The variance has bounds only with it.

    Examples
    --------
    >>> sampled = Moments.of([2.0] * 400, weights=[5.0] * 400)
    >>> total = estimate(sampled, "sum")
    >>> total.value, round(total.lower), round(total.upper), total.share, total.reliable
    (4000.0, 3649, 4351, 0.2, True)

    A handful of tuples gives a value, and no made-up bounds:

    >>> estimate(Moments.of([2.0] * 3, weights=[5.0] * 3), "sum")
    Estimate(value=30.0, lower=None, upper=None, relative_error=None, share=0.2, reliable=False)

    Where nothing was shed, the answer is exact:

    >>> estimate(Moments.of([2.0] * 3), "sum").exact
    True
    """
    answered = intervals(moments, aggregate, confidence=confidence, method=method, within=within)
    return Estimate(
        value=_known(answered.value),
        lower=_known(answered.lower),
        upper=_known(answered.upper),
        relative_error=_known(answered.relative_error),
        share=_known(answered.share),
        reliable=bool(answered.reliable),
    )


def estimate_groups(
    moments: Mapping[Hashable, Moments],
    aggregate: Aggregate,
    *,
    confidence: float = 0.95,
    method: str = "normal",
    within: Within = None,
) -> dict[Hashable, Estimate]:
    """Answer for every group apart; see :func:`estimate`. A group of which nothing survived is not among them."""
    return {
        group: estimate(of_group, aggregate, confidence=confidence, method=method, within=within)
        for group, of_group in moments.items()
    }


def intervals(
    moments: Moments, aggregate: Aggregate, *, confidence: float = 0.95, method: str = "normal", within: Within = None
) -> Interval:
    """Answer for arrays of moments at once; what is missing is NaN."""
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        answered: Interval = interval(moments, aggregate, NumPy(), confidence=confidence, method=method, within=within)
        return answered


def _known(number: Number) -> float | None:
    return float(number) if np.isfinite(number) else None
