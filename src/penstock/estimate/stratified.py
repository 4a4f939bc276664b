"""Answers from a sample of fixed size within each stratum, whose sizes are known.

Of stratum h with N_h tuples, n_h were drawn without replacement, each set of n_h being as likely as any other (as a
reservoir does). Then ``Σ N_h * mean_h`` is unbiased for the sum, with variance ``Σ N_h² (1 - n_h / N_h) s_h² / n_h``;
the bracket is the finite-population correction. Unlike Bernoulli sampling, the spread between strata adds nothing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.stats import t as student_t

from penstock.estimate.answer import Estimate
from penstock.estimate.interval import METHODS, Aggregate, Within, require
from penstock.model.errors import InvalidInputError

POWERS = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Stratum:
    """What was drawn from one stratum, and how many tuples it holds in all.

    Attributes
    ----------
    population
        Tuples of the stratum before anything was shed.
    powers
        Sums of the 0th to 4th powers of the values drawn; the 0th is how many were drawn.
    low, high
        Smallest and largest value drawn.
    """

    population: float
    powers: tuple[float, ...]
    low: float = math.nan
    high: float = math.nan

    def __post_init__(self) -> None:
        if not (math.isfinite(self.population) and self.population >= self.powers[0]):
            raise InvalidInputError(
                f"population must be at least the {self.powers[0]:.0f} tuples drawn, got {self.population!r}; "
                "it counts the tuples of the stratum before anything was shed"
            )

    @staticmethod
    def of(values: npt.ArrayLike, *, population: float) -> Stratum:
        """Take in the values drawn from a stratum.

        >>> Stratum.of([1.0, 3.0], population=10).powers
        (2.0, 4.0, 10.0, 28.0, 82.0)
        """
        drawn = np.asarray(values, dtype=float)
        if not np.isfinite(drawn).all():
            raise InvalidInputError(
                "values of a stratum must be finite; its population must count the same tuples, "
                "so leave out what is missing from both"
            )
        powers = tuple(float((drawn**k).sum()) for k in range(POWERS))
        low, high = (float(drawn.min()), float(drawn.max())) if drawn.size else (math.nan, math.nan)
        return Stratum(population=population, powers=powers, low=low, high=high)

    @property
    def drawn(self) -> float:
        """How many tuples were drawn."""
        return self.powers[0]

    @property
    def whole(self) -> bool:
        """Whether nothing of it was shed."""
        return self.drawn == self.population


def estimate_stratified(
    strata: Sequence[Stratum],
    aggregate: Aggregate,
    *,
    confidence: float = 0.95,
    method: str = "normal",
    within: Within = None,
) -> Estimate:
    """Answer from a stratified sample; parameters as in :func:`penstock.estimate.answer.estimate`.

    Examples
    --------
    >>> rare, plenty = Stratum.of([9.0, 11.0], population=2), Stratum.of([1.0, 2.0] * 100, population=10_000)
    >>> total = estimate_stratified([rare, plenty], "sum")
    >>> total.value, round(total.upper - total.value), total.reliable
    (15020.0, 692, True)
    """
    require(aggregate, confidence=confidence, method=method, within=within)
    present = [stratum for stratum in strata if stratum.population > 0]
    population = sum(stratum.population for stratum in present)
    if not population:
        return (
            Estimate(value=0.0, lower=0.0, upper=0.0, relative_error=0.0, reliable=True)
            if (aggregate == "count")
            else Estimate(value=None)
        )
    share = sum(stratum.drawn for stratum in present) / population
    if aggregate == "count":
        return _exact(population, share)
    if any(stratum.drawn == 0 for stratum in present):
        # A stratum of which nothing is known leaves the whole unknown.
        return Estimate(value=None, share=share)
    mean, mean_square = (_total(present, k) / population for k in (1, 2))
    variance = max(0.0, mean_square - mean * mean)
    value = {"sum": mean * population, "avg": mean, "variance": variance}[aggregate]
    if all(stratum.whole for stratum in present):
        return _exact(value, share)
    # The polynomial of the value whose total is the answer, or its error: as in penstock.estimate.interval.
    z = {
        "sum": (0.0, 1.0),
        "avg": (0.0, 1 / population),
        "variance": ((mean * mean - variance) / population, -2 * mean / population, 1 / population),
    }[aggregate]
    half = (_normal_half if method == "normal" else _hoeffding_half)(present, z, confidence, within)
    if half is None or (aggregate == "variance" and within is None):
        return Estimate(value=value, share=share)
    lower = max(0.0, value - half) if aggregate == "variance" else value - half
    return Estimate(
        value=value,
        lower=lower,
        upper=value + half,
        relative_error=half / abs(value) if value else None,
        share=share,
        reliable=True,
    )


def _exact(value: float, share: float) -> Estimate:
    return Estimate(value=value, lower=value, upper=value, relative_error=0.0, share=share, reliable=True)


def _total(strata: Sequence[Stratum], power: int) -> float:
    return math.fsum(s.population * s.powers[power] / s.drawn for s in strata)


def _normal_half(strata: Sequence[Stratum], z: tuple[float, ...], confidence: float, _: Within) -> float | None:
    """Half the width by Student's t, with Satterthwaite's degrees of freedom; None where there are too few tuples."""
    sampled = [stratum for stratum in strata if not stratum.whole]
    if min(s.drawn for s in sampled) < 2 or sum(s.drawn for s in sampled) < METHODS["normal"].tuples["sum"]:
        return None
    parts = []
    for s in sampled:
        mean = float(np.dot(z, s.powers[: len(z)])) / s.drawn
        square = float(np.dot(np.convolve(z, z), s.powers[: 2 * len(z) - 1])) / s.drawn
        spread = max(0.0, square - mean * mean) * s.drawn / (s.drawn - 1)
        parts.append((s.population**2 * (1 - s.drawn / s.population) * spread / s.drawn, s.drawn - 1))
    variance = math.fsum(part for part, _ in parts)
    if variance <= 0:
        # All values alike: that the ones not drawn are too cannot be told from these.
        return None
    freedom = variance**2 / math.fsum(part**2 / free for part, free in parts)
    return float(student_t.ppf((1 + confidence) / 2, freedom)) * math.sqrt(variance)


def _hoeffding_half(strata: Sequence[Stratum], z: tuple[float, ...], confidence: float, within: Within) -> float | None:
    """Half the width by Hoeffding's inequality, which holds for draws without replacement as well."""
    sampled = [stratum for stratum in strata if not stratum.whole]
    if within is None and sum(s.drawn for s in sampled) < METHODS["hoeffding"].tuples["sum"]:
        return None
    squares = 0.0
    for s in sampled:
        low, high = within or (s.low, s.high)
        turn = [-z[1] / (2 * z[2])] if len(z) == 3 else []
        reached = np.polynomial.polynomial.polyval([low, high, *turn], z)
        squares += (s.population * float(np.ptp(reached))) ** 2 / s.drawn
    return math.sqrt(math.log(2 / (1 - confidence)) / 2 * squares) if squares > 0 else None
