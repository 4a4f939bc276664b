"""Learn what each operator of a network costs, from the durations of batches and the tuples that each took in."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from scipy.optimize import nnls

from penstock.control.cost import NOISE
from penstock.model.errors import InvalidInputError

# How far a cost may be from what was believed, as a part of it.
GUESSED_SPREAD, GIVEN_SPREAD = 2.0, 0.2
# A network runs in many stages with state in several: half of its shortest batch may well be fixed cost, give or take
# twice that. Were it thought small, the operators that short batches had and later ones dropped would be blamed for it.
FIXED_SHARE, FIXED_SPREAD = 0.5, 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Belief:
    """What an operator is thought to cost, against the others; ``given`` by the user it is trusted more."""

    weight: float
    given: bool = False


class OperatorCosts:
    """Fit ``seconds = fixed + sum of cost * tuples taken in`` over operators to the recent batches.

    Batches in which all operators take in the same mix of tuples cannot tell their costs apart; then the total is
    right, and how it is split is what was believed. Every change of the drops changes the mix, and tells more.

    Examples
    --------
    Truly 0.1 s a batch, 10 µs in ``a`` and 50 µs in ``b``, of which nothing was known.

    >>> learning = OperatorCosts({"a": Belief(weight=1), "b": Belief(weight=1)})
    >>> for a, b in [(9_000, 100)] * 2 + [(10_000, 5_000), (8_000, 8_000), (20_000, 2_000), (4_000, 12_000)] * 3:
    ...     learning.learn({"a": a, "b": b}, seconds=0.1 + a * 1e-5 + b * 5e-5)
    >>> found = learning.costs()
    >>> abs(found["a"] / 1e-5 - 1) < 0.05, abs(found["b"] / 5e-5 - 1) < 0.05
    (True, True)
    """

    WARM_UP_BATCHES = 1
    ENOUGH_BATCHES = 3

    def __init__(self, beliefs: Mapping[str, Belief], *, memory: float = 0.95, window: int = 60) -> None:
        if not beliefs:
            raise InvalidInputError("beliefs must not be empty; a network without operators costs nothing")
        self._names = list(beliefs)
        self._weights = np.array([belief.weight for belief in beliefs.values()])
        self._spreads = np.array([GIVEN_SPREAD if b.given else GUESSED_SPREAD for b in beliefs.values()])
        self._memory = memory
        self._samples: deque[tuple[tuple[float, ...], float]] = deque(maxlen=window)
        self._seen = 0

    def learn(self, taken: Mapping[str, float], *, seconds: float) -> None:
        """Take in one finished batch: tuples that each operator took in, and how long the batch took."""
        if not (math.isfinite(seconds) and seconds > 0):
            raise InvalidInputError(f"a batch of {seconds!r} s cannot be learned from; it must have taken time")
        self._seen += 1
        if self._seen > self.WARM_UP_BATCHES:
            self._samples.append((tuple(float(taken.get(name, 0.0)) for name in self._names), seconds))

    def costs(self) -> dict[str, float] | None:
        """Seconds per tuple of each operator; None until enough batches with tuples were seen."""
        if sum(any(taken) for taken, _ in self._samples) < self.ENOUGH_BATCHES:
            return None
        tuples = np.array([taken for taken, _ in self._samples])
        seconds = np.array([took for _, took in self._samples])
        fading = self._memory ** np.arange(len(seconds))[::-1]
        fixed, fixed_belief = FIXED_SHARE * float(seconds.min()), NOISE / FIXED_SPREAD
        # First the common unit: what a tuple costs in an operator of weight 1.
        units = tuples @ self._weights
        unit_of = max(float(np.average(units, weights=fading)), 1e-300)
        scale = np.sqrt(fading) / seconds
        columns = np.stack([np.ones_like(units), units / unit_of], axis=1) * scale[:, None]
        belief = np.array([[fixed_belief / fixed, 0.0]])
        _, unit = nnls(np.concatenate([columns, belief]), np.concatenate([seconds * scale, [fixed_belief]]))[0]
        if unit <= 0:
            return None
        # Then each operator, as a factor on what the unit says, which is believed to be 1.
        expected = self._weights * unit / unit_of
        columns = np.concatenate([np.ones((len(seconds), 1)), tuples * expected], axis=1) * scale[:, None]
        beliefs = np.diag(np.concatenate([[fixed_belief / fixed], NOISE / self._spreads]))
        wanted = np.concatenate([[fixed_belief], NOISE / self._spreads])
        found = nnls(np.concatenate([columns, beliefs]), np.concatenate([seconds * scale, wanted]))[0][1:]
        # Nothing is free: a cost of zero would make drops elsewhere look useless for ever.
        return dict(zip(self._names, (np.maximum(found, 0.02) * expected).tolist(), strict=True))
