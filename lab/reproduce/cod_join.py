"""A join shed by the intersection concept against one shed uniformly, on the keys of a real stream."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from lab.reproduce.cod_streams import task_events, users
from penstock.policy.strata.groups import Floats, GroupConcept, Ints
from penstock.policy.strata.join import JoinQuotas, allocate_join
from penstock.policy.strata.selection import WHOLE, Codes, select, spread

SUBMITTED, FINISHED = 0, 4


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Side:
    """One side of a join in one window: keys, values and hashes of its tuples."""

    concept: GroupConcept
    codes: Codes
    values: Floats
    hashes: Ints

    @staticmethod
    def of(keys: Codes, values: Floats, *, seed: int) -> Side:
        """Number the keys and hash the tuples."""
        distinct, codes = np.unique(keys, return_inverse=True)
        return Side(
            concept=GroupConcept.of_codes(distinct.astype(np.int64), codes, values),
            codes=codes,
            values=values,
            hashes=spread(np.arange(len(keys)), seed=seed),
        )

    def totals(self, kept: Codes, weights: Floats) -> tuple[Floats, Floats]:
        """Weighted number of tuples and weighted sum of values, by key."""
        groups, codes = self.concept.groups, self.codes[kept]
        return (
            np.bincount(codes, weights=weights, minlength=groups).astype(np.float64),
            np.bincount(codes, weights=weights * self.values[kept], minlength=groups).astype(np.float64),
        )


def answers(left: Side, left_totals: tuple[Floats, Floats], right: Side, right_counts: Floats) -> tuple[float, float]:
    """Size of the join on the key, and the sum of the left values over it."""
    keys = (left.concept.keys, right.concept.keys)
    _, at_left, at_right = np.intersect1d(*keys, assume_unique=True, return_indices=True)
    counts, sums = left_totals
    return float(counts[at_left] @ right_counts[at_right]), float(sums[at_left] @ right_counts[at_right])


def by_concept(left: Side, right: Side, budget: float) -> tuple[tuple[float, float], JoinQuotas]:
    """Estimate the join from the survivors of the intersection concept."""
    quotas = allocate_join(left.concept, right.concept, budget)
    kept_left = select(quotas.left, [(left.codes, left.hashes)])[0]
    kept_right = select(quotas.right, [(right.codes, right.hashes)])[0]
    left_totals = left.totals(kept_left, quotas.left.weights[left.codes[kept_left]])
    right_counts, _ = right.totals(kept_right, quotas.right.weights[right.codes[kept_right]])
    return answers(left, left_totals, right, right_counts), quotas


def uniformly(left: Side, right: Side, keep: float) -> tuple[tuple[float, float], int]:
    """Estimate the join from a uniform sample of both sides; also tell how many tuples that kept."""
    threshold = round(keep * WHOLE)
    kept_left, kept_right = np.flatnonzero(left.hashes < threshold), np.flatnonzero(right.hashes < threshold)
    left_totals = left.totals(kept_left, np.full(len(kept_left), 1 / keep))
    right_counts, _ = right.totals(kept_right, np.full(len(kept_right), 1 / keep))
    return answers(left, left_totals, right, right_counts), len(kept_left) + len(kept_right)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class JoinErrors:
    """Relative errors over the windows, of the join's size and of a sum over it."""

    uniform: Mapping[str, Floats]
    concept: Mapping[str, Floats]
    processed_uniform: float
    processed_concept: float
    missing_keys: float
    matched_keys: float
    real: bool

    def ratio(self, answer: str) -> float:
        """Mean error of the concept-driven answer against the uniform one."""
        return float(self.concept[answer].mean() / self.uniform[answer].mean())

    def told(self, keep: float) -> str:
        """The errors with the volume they were had at, in words."""
        return (
            f"{'real' if self.real else 'generated'} stream, tasks submitted and finished in the same hour, by user; "
            f"budget {100 * keep:g} %; Uniform: size {self.uniform['size'].mean():.4f}, sum "
            f"{self.uniform['sum'].mean():.4f} at {100 * self.processed_uniform:.2f} % processed; CoD: size "
            f"{self.concept['size'].mean():.4f}, sum {self.concept['sum'].mean():.4f} at "
            f"{100 * self.processed_concept:.2f} % processed, "
            f"{self.missing_keys:.1f} of {self.matched_keys:.1f} keys missing"
        )


def join_errors(*, keep: float, seeds: range, most_windows: int) -> JoinErrors:
    """Join submissions with ends of tasks on the user, window by window, and shed both sides both ways."""
    tasks = task_events()
    windows = list(users().windows())
    chosen = np.unique(np.linspace(0, len(windows) - 1, min(most_windows, len(windows))).astype(int))
    rows = []
    for number in chosen:
        span = windows[number]
        submitted, finished = tasks.kinds[span] == SUBMITTED, tasks.kinds[span] == FINISHED
        keys, values = tasks.users[span], tasks.cpu[span]
        for seed in seeds:
            left = Side.of(keys[submitted], values[submitted], seed=2 * seed)
            right = Side.of(keys[finished], values[finished], seed=2 * seed + 1)
            whole = left.totals(np.arange(len(left.codes)), np.ones(len(left.codes)))
            size, total = answers(left, whole, right, right.concept.counts.astype(np.float64))
            if not size or not total:
                continue
            offered = len(left.codes) + len(right.codes)
            even, even_kept = uniformly(left, right, keep)
            driven, quotas = by_concept(left, right, keep * offered)
            rows.append(
                (
                    *(abs(even[0] / size - 1), abs(even[1] / total - 1), even_kept / offered),
                    *(abs(driven[0] / size - 1), abs(driven[1] / total - 1), quotas.kept / offered),
                    *(quotas.missing_keys, quotas.matched_keys),
                )
            )
    found = np.array(rows)
    return JoinErrors(
        uniform={"size": found[:, 0], "sum": found[:, 1]},
        concept={"size": found[:, 3], "sum": found[:, 4]},
        processed_uniform=float(found[:, 2].mean()),
        processed_concept=float(found[:, 5].mean()),
        missing_keys=float(found[:, 6].mean()),
        matched_keys=float(found[:, 7].mean()),
        real=tasks.real,
    )
