"""Concept drift between consecutive windows ([CoD18] section II-C and Fig. 2)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from penstock.policy.strata.groups import GroupConcept
from penstock.policy.strata.scalar import ScalarConcept


@dataclass(frozen=True, slots=True, kw_only=True)
class Drift:
    """How far a concept moved.

    Attributes
    ----------
    overlap
        Common groups over all groups of the two windows: 1 if the groups are the same, 0 if none is.
    distance
        Share of the tuples that would have to change their group to turn one distribution into the other (total
        variation): 0 for the same frequencies, 1 for no group in common.
    """

    overlap: float
    distance: float


def drift(before: GroupConcept, after: GroupConcept) -> Drift:
    """Measure the drift from one window to the next.

    >>> import numpy as np
    >>> before, after = GroupConcept.of(np.array([1, 1, 2, 2])), GroupConcept.of(np.array([2, 2, 2, 3]))
    >>> drift(before, after)
    Drift(overlap=0.333..., distance=0.5)
    """
    if not before.groups and not after.groups:
        return Drift(overlap=1.0, distance=0.0)
    keys, codes = np.unique(np.concatenate([before.keys, after.keys]), return_inverse=True)
    moved = np.bincount(codes, weights=np.concatenate([before.shares, -after.shares]), minlength=len(keys))
    common = before.groups + after.groups - len(keys)
    # Against an empty window every tuple has moved, though only one side has any.
    distance = 1.0 if not (before.groups and after.groups) else float(np.abs(moved).sum() / 2)
    return Drift(overlap=common / len(keys), distance=min(1.0, distance))


def value_drift(before: GroupConcept, after: GroupConcept) -> Drift:
    """Measure the drift of windows without groups, by the mean and the spread of all their values.

    >>> import numpy as np
    >>> before, after = (GroupConcept.of(np.zeros(2, dtype=np.int64), np.array(v)) for v in ([1.0, 3.0], [2.0, 4.0]))
    >>> value_drift(before, after)
    Drift(overlap=0.333..., distance=0.333...)
    """
    return scalar_drift(*(ScalarConcept.of_whole(concept) for concept in (before, after)))


def scalar_drift(before: ScalarConcept, after: ScalarConcept) -> Drift:
    """Measure the drift of a scalar concept: how far the intervals mean ± deviation overlap, and lie apart.

    The distance is that of the means against the deviations, as a share: 0 for equal means, near 1 for means that lie
    many deviations apart.
    """
    low = max(before.mean - before.deviation, after.mean - after.deviation)
    high = min(before.mean + before.deviation, after.mean + after.deviation)
    span = max(before.mean + before.deviation, after.mean + after.deviation) - min(
        before.mean - before.deviation, after.mean - after.deviation
    )
    apart = abs(before.mean - after.mean)
    scale = apart + before.deviation + after.deviation
    return Drift(
        overlap=1.0 if span == 0 else max(0.0, high - low) / span,
        distance=0.0 if scale == 0 else apart / scale,
    )
