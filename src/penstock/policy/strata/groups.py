"""The concept of a grouped query: how often each group occurs, and how its values spread.

[CoD18] section II-C and Table II. Deviation: frequencies are counted exactly, as section VI-C2 has it, and so are the
moments that variance-optimal allocation needs; Algorithm 2 takes both from a sample, in which small groups are missing.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from penstock.model.errors import InvalidInputError

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class GroupConcept:
    """Groups in the order of their keys; concepts of parts of a window merge to the concept of the window.

    Attributes
    ----------
    keys
        What identifies each group: integers (hashes of the key columns), ascending.
    counts
        Tuples of each group.
    means, squares
        Mean of each group's values and their summed squared deviation from it; zero where no value was named.

    Examples
    --------
    >>> import numpy as np
    >>> concept = GroupConcept.of(np.array([7, 3, 7]), np.array([1.0, 5.0, 2.0]))
    >>> concept.keys.tolist(), concept.counts.tolist(), concept.means.tolist(), concept.tuples
    ([3, 7], [1, 2], [5.0, 1.5], 3)
    """

    keys: Ints
    counts: Ints
    means: Floats
    squares: Floats

    @property
    def groups(self) -> int:
        """Number of groups."""
        return len(self.keys)

    @property
    def tuples(self) -> int:
        """Number of tuples."""
        return int(self.counts.sum())

    @property
    def shares(self) -> Floats:
        """Relative frequency of each group."""
        return self.counts / max(self.tuples, 1)

    def variation(self) -> Floats:
        """Coefficient of variation of each group: standard deviation over the absolute mean.

        Groups whose mean is zero count as varying like the whole, and so does nothing else: the moments are exact.
        """
        deviation = np.sqrt(self.squares / np.maximum(self.counts, 1))
        size = np.abs(self.means)
        known = size > 0
        varied = np.divide(deviation, size, out=np.zeros(self.groups), where=known)
        typical = float(np.average(varied[known], weights=self.counts[known])) if known.any() else 1.0
        varied[~known & (deviation > 0)] = max(typical, 1.0)
        return varied

    @staticmethod
    def empty() -> GroupConcept:
        """The concept of no tuples."""
        nothing = np.empty(0, dtype=np.int64)
        return GroupConcept(keys=nothing, counts=nothing, means=np.empty(0), squares=np.empty(0))

    @staticmethod
    def of(keys: Ints, values: Floats | None = None) -> GroupConcept:
        """Extract the concept of tuples from their keys and values."""
        distinct, codes = np.unique(keys, return_inverse=True)
        return GroupConcept.of_codes(distinct.astype(np.int64), codes, values)

    @staticmethod
    def of_codes(distinct: Ints, codes: npt.NDArray[np.integer], values: Floats | None = None) -> GroupConcept:
        """Extract the concept of tuples whose keys were numbered already, in the order of ``distinct``.

        Values that are not numbers (NaN) leave a group's moments as if they were not there.
        """
        if len(distinct) > 1 and not (distinct[1:] > distinct[:-1]).all():
            raise InvalidInputError("distinct must hold each key once, ascending; use np.unique")
        groups = len(distinct)
        counts = np.bincount(codes, minlength=groups).astype(np.int64)
        if values is None:
            return GroupConcept(keys=distinct, counts=counts, means=np.zeros(groups), squares=np.zeros(groups))
        sound = np.isfinite(values)
        if not sound.all():
            codes, values = codes[sound], values[sound]
        valued = np.bincount(codes, minlength=groups)
        means = np.bincount(codes, weights=values, minlength=groups) / np.maximum(valued, 1)
        # Deviations are summed after the mean is taken off: the textbook difference of squares cancels.
        squares = np.bincount(codes, weights=(values - means[codes]) ** 2, minlength=groups)
        # Spread per tuple stays that of the tuples with a value.
        return GroupConcept(keys=distinct, counts=counts, means=means, squares=squares * counts / np.maximum(valued, 1))

    @staticmethod
    def merge(*parts: GroupConcept) -> GroupConcept:
        """Join the concepts of parts to the concept of the whole."""
        filled = [part for part in parts if part.groups]
        if len(filled) <= 1:
            return filled[0] if filled else GroupConcept.empty()
        keys, codes = np.unique(np.concatenate([part.keys for part in filled]), return_inverse=True)
        groups = len(keys)
        counts = np.concatenate([part.counts for part in filled])
        part_means = np.concatenate([part.means for part in filled])
        whole = np.bincount(codes, weights=counts, minlength=groups)
        means = np.bincount(codes, weights=part_means * counts, minlength=groups) / whole
        spread = np.concatenate([part.squares for part in filled]) + counts * (part_means - means[codes]) ** 2
        return GroupConcept(
            keys=keys,
            counts=whole.astype(np.int64),
            means=means,
            squares=np.bincount(codes, weights=spread, minlength=groups).astype(np.float64),
        )
