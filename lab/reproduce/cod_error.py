"""How wrong a window's answers are after shedding: the measure of [CoD18] section VII-C3, missing groups counted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from lab.reproduce.cod_streams import Stream
from penstock.policy.contract import Policy
from penstock.policy.strata.groups import Floats, GroupConcept
from penstock.policy.strata.selection import Codes, spread
from penstock.policy.strata.windows import Survivors, shed_window


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Errors:
    """One policy over all windows of a stream: relative error, processed share and number of missing groups of each."""

    error: Floats
    volume: Floats
    missing: Floats

    @property
    def mean(self) -> float:
        """Mean error over the windows."""
        return float(self.error.mean())

    @property
    def p95(self) -> float:
        """The error that one window in twenty exceeds."""
        return float(np.percentile(self.error, 95))

    @property
    def processed(self) -> float:
        """Mean share of a window that was processed."""
        return float(self.volume.mean())


def group_errors(values: Floats, codes: Codes, concept: GroupConcept, left: Survivors) -> Floats:
    """Relative error of each group's mean; 1 for a group that went missing."""
    assert left.rows is not None  # noqa: S101 - narrows the type for the checker
    kept, weights = left.rows[0], left.weights[0]
    groups = concept.groups
    weighed = np.bincount(codes[kept], weights=weights, minlength=groups)
    summed = np.bincount(codes[kept], weights=weights * values[kept], minlength=groups)
    there = weighed > 0
    off = np.ones(groups)
    means = np.divide(summed, weighed, out=np.zeros(groups), where=there)
    truth = concept.means
    # A true mean of zero has no relative error: it is met, or it is not.
    exact = np.isclose(means, truth, rtol=1e-9, atol=1e-12)
    size = np.where(truth == 0, np.inf, np.abs(truth))
    off[there] = np.where(truth[there] == 0, 1.0, np.abs(means - truth)[there] / size[there])
    off[there & exact] = 0.0
    return off


def errors_of(stream: Stream, policies: Mapping[str, Policy], *, seeds: range, most_windows: int) -> dict[str, Errors]:
    """Shed every window by every policy, with the same tuples in the same order of hashes, once per seed."""
    taken: dict[str, list[tuple[float, float, float]]] = {name: [] for name in policies}
    windows = list(stream.windows())
    chosen = np.unique(np.linspace(0, len(windows) - 1, min(most_windows, len(windows))).astype(int))
    for number in chosen:
        span = windows[number]
        values = stream.values[span]
        distinct, codes = np.unique(stream.keys[span], return_inverse=True)
        concept = GroupConcept.of_codes(distinct, codes, values)
        for seed in seeds:
            hashes = spread(np.arange(span.start, span.stop), seed=seed)
            for name, policy in policies.items():
                left = shed_window(policy, [(codes, hashes)], concept)
                error = float(group_errors(values, codes, concept, left).mean())
                taken[name].append((error, left.kept / left.offered, left.missing_groups))
    return {
        name: Errors(error=rows[:, 0], volume=rows[:, 1], missing=rows[:, 2])
        for name, rows in ((name, np.array(each)) for name, each in taken.items())
    }
