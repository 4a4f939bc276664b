"""The concept of the batches so far: which keys are frequent, learned from a sample of each batch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from math import sqrt

# Sampled tuples per batch. Keys below 1/SAMPLE_TUPLES of the stream are seldom seen: they are small, and kept whole.
SAMPLE_TUPLES = 4_096
# What a batch counts against the one after it: the last three make up four fifths of the memory, so that a concept
# which has drifted away is gone after a few batches.
FADE = 0.6
# A key whose count is so many deviations off has changed: its past says nothing any more.
CHANGED = 4.0
# A key that was seen once may be any of many small ones; its share is not known.
LEAST_SEEN = 1.5


class ConceptMemory:
    """Remember how frequent keys are, recent batches most, and nothing older than a change.

    A group that was large and is small now must not keep its low rate: it would go missing.

    Examples
    --------
    >>> memory = ConceptMemory()
    >>> memory.learn(["a"] * 60 + ["b"] * 40)
    >>> memory.shares()
    {'a': 0.6, 'b': 0.4}
    >>> memory.learn(["a"] * 50 + ["b"] * 50)
    >>> {key: round(share, 3) for key, share in memory.shares().items()}
    {'a': 0.537, 'b': 0.463}
    >>> memory.learn(["b"] * 100)
    >>> memory.shares()
    {'b': 1.0}
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
        total = self._total * FADE + fresh.total()
        seen = {}
        for key in {**self._seen, **fresh}:
            expected = self._seen.get(key, 0.0) / self._total * fresh.total() if self._total else 0.0
            changed = abs(fresh[key] - expected) > CHANGED * sqrt(expected + 1.0)
            now = fresh[key] / fresh.total() * total
            seen[key] = now if changed else self._seen.get(key, 0.0) * FADE + fresh[key]
        self._total = total
        # A trace of less than a tenth of a tuple says nothing.
        self._seen = {key: count for key, count in seen.items() if count > 0.1}

    def shares(self) -> dict[str, float]:
        """Share of the stream by key, for the keys that are frequent enough to be known."""
        return {key: count / self._total for key, count in self._seen.items() if count >= LEAST_SEEN}
