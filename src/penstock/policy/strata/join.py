"""The concept of an equi-join: which keys both streams have, and how often ([CoD18] section VI-C3).

Keys that only one stream has can meet nobody: their tuples are shed, all of them, at no loss. Of the others each side
keeps a quota per key. As quotas are exact, a key with a survivor on each side contributes its true number of pairs:
``left/kept_left * right/kept_right`` times ``kept_left * kept_right``.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from penstock.model.plan import Wins
from penstock.policy.strata.allocation import Quotas, share_out
from penstock.policy.strata.groups import Floats, GroupConcept, Ints


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class JoinQuotas:
    """Quotas of both sides.

    Attributes
    ----------
    left, right
        How many tuples of each key survive on each side.
    matched_keys
        Keys that both sides have.
    missing_keys
        Keys of these for which the budget had no tuple on one of the sides.
    pairs, missing_pairs
        Size of the join, and how much of it falls on missing keys.
    """

    left: Quotas
    right: Quotas
    matched_keys: int
    missing_keys: int
    pairs: int
    missing_pairs: int

    @property
    def kept(self) -> int:
        """Tuples that survive on both sides."""
        return self.left.kept + self.right.kept


def allocate_join(left: GroupConcept, right: GroupConcept, budget: float, *, wins: Wins = "budget") -> JoinQuotas:
    """Share a budget of tuples of both sides among the keys that both have.

    The more pairs a key makes, the more of its tuples are kept; each side keeps at least one of each key. Where the
    budget has no room for that, the keys with the fewest pairs go missing (``wins="budget"``), or it is exceeded.

    Examples
    --------
    >>> import numpy as np
    >>> left = GroupConcept.of(np.repeat([1, 2, 3], [80, 10, 500]))
    >>> right = GroupConcept.of(np.repeat([1, 2, 4], [20, 5, 300]))
    >>> quotas = allocate_join(left, right, 40)
    >>> quotas.left.tuples.tolist(), quotas.right.tuples.tolist(), quotas.pairs
    ([19, 1, 0], [19, 1, 0], 1650)
    """
    keys, at_left, at_right = np.intersect1d(left.keys, right.keys, assume_unique=True, return_indices=True)
    left_sizes, right_sizes = left.counts[at_left], right.counts[at_right]
    pairs = left_sizes * right_sizes
    sizes = np.concatenate([left_sizes, right_sizes])
    # A pair needs both sides: a key that cannot have both has neither.
    affordable = _affordable(pairs, budget) if wins == "budget" else np.ones(len(keys), dtype=bool)
    both = np.tile(affordable, 2)
    tuples = np.zeros(2 * len(keys), dtype=np.int64)
    if both.any():
        tuples[both] = share_out(
            sizes[both],
            _appetite(pairs, left.variation()[at_left], right.variation()[at_right])[both],
            budget,
            wins="coverage",
            prices=np.ones(int(both.sum())),
            first=sizes[both],
        )
    return JoinQuotas(
        left=Quotas(concept=left, tuples=_placed(left, at_left, tuples[: len(keys)])),
        right=Quotas(concept=right, tuples=_placed(right, at_right, tuples[len(keys) :])),
        matched_keys=len(keys),
        missing_keys=int((~affordable).sum()),
        pairs=int(pairs.sum()),
        missing_pairs=int(pairs[~affordable].sum()),
    )


def _affordable(pairs: Ints, budget: float) -> npt.NDArray[np.bool_]:
    chosen = np.zeros(len(pairs), dtype=bool)
    chosen[np.argsort(-pairs, kind="stable")[: int(budget // 2)]] = True
    return chosen


def _appetite(pairs: Ints, left_variation: Floats, right_variation: Floats) -> Floats:
    """Neyman over pairs: a tuple of a key stands for as many pairs as the other side has tuples of it.

    A side without a named value varies nowhere; then both sides share alike.
    """
    alike = np.ones(len(pairs))
    sides = [pairs * (varied if varied.any() else alike) for varied in (left_variation, right_variation)]
    return np.concatenate(sides)


def _placed(concept: GroupConcept, at: Ints, tuples: Ints) -> Ints:
    placed = np.zeros(concept.groups, dtype=np.int64)
    placed[at] = tuples
    return placed
