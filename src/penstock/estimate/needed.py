"""How large a sample an error target needs, before it is taken."""

from __future__ import annotations

import math
from statistics import NormalDist

from penstock.model.error_target import MaxError
from penstock.model.quality import LossTolerance

# What the rest of the rows is still worth once the target is met: little, so that they go first, but not nothing.
BEYOND_TARGET = 0.01


def needed_share(target: MaxError, *, tuples: float, evenness: float = 1.0) -> float:
    """Share of an answer's tuples that, sampled at random, meets the target.

    The variance of a weighted sum over survivors at rate p is ``(1 - p) / p * sum of squares``.

    Parameters
    ----------
    target
        Relative error and confidence.
    tuples
        How many tuples an answer has.
    evenness
        Mean of the squared values over the square of their mean: 1 for counts, more for uneven values.

    Examples
    --------
    >>> round(needed_share(MaxError(relative=0.05, confidence=0.95), tuples=10_000), 3)
    0.133
    """
    if tuples <= 0 or not math.isfinite(evenness):
        return 1.0  # nobody knows, so nothing can be spared
    quantile = NormalDist().inv_cdf((1 + target.confidence) / 2)
    noise = quantile**2 * evenness / tuples
    return noise / (noise + target.relative**2)


def tolerance(share: float) -> LossTolerance:
    """Utility of an answer that has its target met from this share on.

    >>> tolerance(0.2).utility(0.2), round(tolerance(0.2).utility(0.1), 3)
    (0.99, 0.495)
    """
    if share >= 1 - BEYOND_TARGET:
        return LossTolerance.of((0.0, 0.0), (1.0, 1.0))
    return LossTolerance.of((0.0, 0.0), (share, 1.0 - BEYOND_TARGET), (1.0, 1.0))
