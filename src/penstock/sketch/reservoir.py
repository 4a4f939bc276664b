"""A uniform sample of a stream, kept up to date as tuples arrive.

Algorithm L of Li, "Reservoir-Sampling Algorithms of Time Complexity O(n(1 + log(N/n)))" (1994): once the reservoir
is full, the number of tuples to skip until the next replacement is drawn at once, so that a tuple which changes
nothing costs nothing. Skips and slots are drawn in blocks and applied with NumPy.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from penstock.model.errors import InvalidInputError

DRAWS_PER_BLOCK = 256


class Reservoir:
    """Keep a uniform sample, without replacement, of everything seen.

    The same seed gives the same sample however the stream is cut into arrays.

    Parameters
    ----------
    size
        Tuples to keep.
    seed
        Fixes the sample.

    Examples
    --------
    >>> import numpy as np
    >>> reservoir = Reservoir(1_000, seed=7)
    >>> for start in range(0, 100_000, 10_000):
    ...     reservoir.update(np.arange(start, start + 10_000))
    >>> reservoir.seen, len(reservoir.sample), round(float(reservoir.sample.mean()), -3)
    (100000, 1000, 49000.0)
    """

    def __init__(self, size: int, *, seed: int) -> None:
        if size < 1:
            raise InvalidInputError(f"size must be at least 1, got {size!r}; it is the number of tuples to keep")
        self.size = size
        self.seen = 0
        self._random = np.random.default_rng(seed)
        self._kept: npt.NDArray[Any] | None = None
        self._log_threshold = 0.0
        # Position of the last replacement drawn; the first can come right after the reservoir is full.
        self._last = size - 1
        # Replacements to come: positions in the stream, and the slots they go to.
        self._positions = np.empty(0, dtype=np.int64)
        self._slots = np.empty(0, dtype=np.int64)

    @property
    def sample(self) -> npt.NDArray[Any]:
        """The sampled tuples; all of them until more than ``size`` were seen."""
        return np.empty(0) if self._kept is None else self._kept

    def update(self, tuples: npt.NDArray[Any]) -> None:
        """Take in an array of tuples (numbers, or rows of a structured array)."""
        filled = min(self.size - len(self.sample), len(tuples))
        if filled:
            fresh = tuples[:filled].copy()
            self._kept = fresh if self._kept is None else np.concatenate([self._kept, fresh])
        end = self.seen + len(tuples)
        if self._kept is not None and end > self.size:
            for positions, slots in self._replacements(end):
                # Where a slot comes twice, NumPy leaves the later tuple in it, as one by one would.
                self._kept[slots] = tuples[positions - self.seen]
        self.seen = end

    def _replacements(self, end: int) -> Any:
        """Yield the replacements before position ``end``, and keep those drawn beyond it."""
        while True:
            if not len(self._positions):
                self._draw()
            due = int(np.searchsorted(self._positions, end))
            yield self._positions[:due], self._slots[:due]
            self._positions, self._slots = self._positions[due:], self._slots[due:]
            if len(self._positions):
                return

    def _draw(self) -> None:
        # W is the largest of `size` uniform tickets; each replacement multiplies it by u**(1/size), and the next tuple
        # with a smaller ticket is a geometric number of tuples away.
        # 1 - u lies in (0, 1], so that no logarithm is taken of zero.
        tickets = np.log1p(-self._random.random(DRAWS_PER_BLOCK)) / self.size
        thresholds = self._log_threshold + np.cumsum(tickets)
        skips = np.floor(np.log1p(-self._random.random(DRAWS_PER_BLOCK)) / np.log1p(-np.exp(thresholds)))
        # Beyond 2**53 tuples nothing is replaced any more.
        steps = np.minimum(skips, 2.0**53).astype(np.int64) + 1
        self._positions = self._last + np.cumsum(steps)
        self._slots = self._random.integers(0, self.size, DRAWS_PER_BLOCK)
        self._last = int(self._positions[-1])
        self._log_threshold = float(thresholds[-1])

    @staticmethod
    def merge(left: Reservoir, right: Reservoir, *, seed: int) -> Reservoir:
        """Sample the union of two streams: as many tuples of each as a uniform sample of both would hold."""
        if left.size != right.size:
            raise InvalidInputError(
                f"reservoirs of {left.size} and {right.size} tuples cannot be merged; make them of the same size"
            )
        merged = Reservoir(left.size, seed=seed)
        random = np.random.default_rng((seed, left.seen, right.seen))
        merged.seen = left.seen + right.seen
        wanted = min(left.size, merged.seen)
        of_left = int(random.hypergeometric(left.seen, right.seen, wanted)) if merged.seen else 0
        parts = [
            random.permutation(source.sample)[:share]
            for source, share in ((left, of_left), (right, wanted - of_left))
            if share
        ]
        if parts:
            merged._kept = np.concatenate(parts)
        # The threshold of a full reservoir is the largest of `size` tickets among `seen`: that many skips behind.
        if merged.seen > merged.size:
            merged._log_threshold = float(np.log(random.beta(merged.size, merged.seen - merged.size + 1)))
            merged._last = merged.seen - 1
        return merged
