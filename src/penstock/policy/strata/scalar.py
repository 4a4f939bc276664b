"""The concept of a scalar aggregate: mean and variance, which give the sampling rate ([CoD18] section VI-C1)."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from penstock.policy.sampling import Query, effective_keep
from penstock.policy.strata.groups import Floats, GroupConcept
from penstock.sketch.reservoir import Reservoir


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalarConcept:
    """Mean and variance of the values of a window, and how many there are.

    Examples
    --------
    >>> import numpy as np
    >>> concept = ScalarConcept.of(np.array([1.0, 2.0, 3.0] * 30_000))
    >>> concept.mean, round(concept.variance, 3), round(concept.keep_for(relative_error=0.05), 3)
    (2.0, 0.667, 0.098)
    """

    tuples: int
    mean: float
    variance: float

    @property
    def deviation(self) -> float:
        """Standard deviation."""
        return math.sqrt(self.variance)

    @staticmethod
    def of(values: Floats) -> ScalarConcept:
        """Extract the concept of all values."""
        if not len(values):
            return ScalarConcept(tuples=0, mean=0.0, variance=0.0)
        return ScalarConcept(tuples=len(values), mean=float(np.mean(values)), variance=float(np.var(values)))

    @staticmethod
    def of_whole(concept: GroupConcept) -> ScalarConcept:
        """Take all groups of a concept together."""
        if not concept.tuples:
            return ScalarConcept(tuples=0, mean=0.0, variance=0.0)
        mean = float(np.average(concept.means, weights=concept.counts))
        squares = concept.squares + concept.counts * (concept.means - mean) ** 2
        return ScalarConcept(tuples=concept.tuples, mean=mean, variance=float(squares.sum()) / concept.tuples)

    @staticmethod
    def of_sample(sample: Reservoir) -> ScalarConcept:
        """Estimate the concept of a window from the sample that was kept while it filled."""
        values = sample.sample
        if not len(values):
            return ScalarConcept(tuples=0, mean=0.0, variance=0.0)
        variance = float(np.var(values, ddof=1)) if len(values) > 1 else 0.0
        return ScalarConcept(tuples=sample.seen, mean=float(np.mean(values)), variance=variance)

    def keep_for(self, *, relative_error: float, miss_probability: float = 0.05) -> float:
        """Find the share of the window that answers a sum this precisely, as [Sampling03] has it.

        Values that average to zero have no relative error; then the whole window is kept.
        """
        if self.mean == 0 or not self.tuples:
            return 1.0
        query = Query(name="window", window_tuples=self.tuples, mean=self.mean, standard_deviation=self.deviation)
        return min(1.0, effective_keep(query, relative_error=relative_error, miss_probability=miss_probability))
