"""The concept of the batches so far: which keys are frequent, learned from a sample of each batch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

# Sampled tuples per batch. Keys below 1/SAMPLE_TUPLES of the stream are seldom seen: they are small, and kept whole.
SAMPLE_TUPLES = 4_096
# What a batch counts against the one after it: the last three make up four fifths of the memory, so that a concept
# which has drifted away is gone after a few batches.
FADE = 0.6
# A key that was seen once may be any of many small ones; its share is not known.
LEAST_SEEN = 1.5


class ConceptMemory:
    """Remember how frequent keys are, recent batches most.

    Examples
    --------
    >>> memory = ConceptMemory()
    >>> memory.learn(["a"] * 60 + ["b"] * 40)
    >>> memory.shares()
    {'a': 0.6, 'b': 0.4}
    >>> memory.learn(["c"] * 100)
    >>> {key: round(share, 2) for key, share in memory.shares().items()}
    {'a': 0.23, 'b': 0.15, 'c': 0.62}
    """

    def __init__(self, shares: Mapping[str, float] | None = None) -> None:
        # Shares of an earlier run count as one batch.
        self._seen: dict[str, float] = {key: share * SAMPLE_TUPLES for key, share in (shares or {}).items()}
        self._total = float(SAMPLE_TUPLES) if shares else 0.0

    def learn(self, keys: Iterable[str]) -> None:
        """Take in the keys of a uniform sample of a batch."""
        fresh = Counter(keys)
        if not fresh:
            return
        seen = {key: count * FADE for key, count in self._seen.items()}
        for key, count in fresh.items():
            seen[key] = seen.get(key, 0.0) + count
        self._total = self._total * FADE + fresh.total()
        # A trace of less than a tenth of a tuple says nothing.
        self._seen = {key: count for key, count in seen.items() if count > 0.1}

    def shares(self) -> dict[str, float]:
        """Share of the stream by key, for the keys that are frequent enough to be known."""
        return {key: count / self._total for key, count in self._seen.items() if count >= LEAST_SEEN}
