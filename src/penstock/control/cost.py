"""Learn what a batch costs from the batches that ran."""

from __future__ import annotations

import math
from collections import deque

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import nnls

from penstock.model.errors import InvalidInputError
from penstock.model.load import Cost

# What is believed before anything is seen. It weighs about as much as one batch, so it decides only where the batches
# do not: when they are all of one size, or when none has shed yet.
NOISE = 0.2  # relative spread of the durations of equal batches, as measured on Spark
FIXED_SECONDS, FIXED_SPREAD = 0.1, 2.0  # a batch without tuples, give or take twice that
SHED_SHARE, SHED_SHARE_SPREAD = 0.1, 0.2  # dropping a tuple against keeping it, give or take that much
# Where a query has several outputs, what was worked on is an estimate: so small a share of drops may be none.
NO_SHEDDING = 0.1


def believed_fixed(
    seconds: NDArray[np.float64], typical_seconds: float, *, share: float | None = None
) -> tuple[float, float]:
    """What a batch without tuples is thought to take before the fit, and how firmly."""
    # No more than half of a short batch, or its tuples would count as free.
    fixed_seconds = min(FIXED_SECONDS, typical_seconds / 2) if share is None else share * float(seconds.min())
    return fixed_seconds, NOISE / FIXED_SPREAD


class CostModel:
    """Fit ``seconds = fixed + kept_seconds * kept + shed_seconds * shed`` to the recent batches.

    Least squares on relative errors, for a slow machine is slow in proportion, with older batches fading by
    ``memory`` per batch and outliers counting less. Two batches in a row that are off to the same side are no
    outliers: the costs have changed, and what was learned before is scaled to them.

    No coefficient is below zero, for no part of a batch gives time back, and dropping a tuple costs at most half of
    keeping it: were noise to make them equal, the remedy for overload would be to keep all.

    Batches of much the same size do not tell the fixed cost from the cost of tuples. So the fit starts from a belief
    as weak as one batch: a small fixed cost, and dropping is cheap. The first large batch is then thought dearer than
    it is rather than cheaper, and settles the matter.

    Parameters
    ----------
    memory
        Weight that a batch keeps when the next one comes.
    window
        Batches remembered.
    fixed_share
        Part of the shortest batch that is believed to be fixed cost, give or take twice that; None: a small constant.
        For queries of many stages, whose batches take long without any tuples.

    Examples
    --------
    Truly 0.2 s a batch, 100 µs to keep a tuple and 5 µs to drop it.

    >>> model = CostModel()
    >>> for kept, shed in [(0, 0), (100, 0), (5_000, 0), (9_000, 0), (18_000, 40_000), (20_000, 10_000)]:
    ...     model.learn(kept=kept, shed=shed, seconds=0.2 + kept * 1e-4 + shed * 5e-6)
    >>> cost = model.cost()
    >>> round(cost.fixed_seconds, 1), round(cost.kept_seconds * 1e6), round(cost.shed_seconds * 1e6)
    (0.2, 99, 6)
    """

    # The first batch of a query compiles code and opens state stores: it tells little about the ones to come.
    WARM_UP_BATCHES = 1
    ENOUGH_BATCHES = 3
    # Noise alone goes that far to one side once in 15 batches, and twice in a row to the same side once in 110.
    OFF_SPREADS = 1.5

    def __init__(self, *, memory: float = 0.9, window: int = 40, fixed_share: float | None = None) -> None:
        if not 0 < memory <= 1:
            raise InvalidInputError(f"memory must be in (0, 1], got {memory!r}; it is what a batch's weight fades by")
        self._memory = memory
        self._fixed_share = fixed_share
        self._samples: deque[tuple[float, float, float]] = deque(maxlen=window)
        self._seen = 0
        self._surprise = 0.0

    def learn(self, *, kept: float, shed: float, seconds: float) -> None:
        """Take in one finished batch."""
        if not (math.isfinite(seconds) and seconds > 0 and 0 <= kept < math.inf and 0 <= shed < math.inf):
            raise InvalidInputError(
                f"a batch of {kept!r} kept and {shed!r} shed tuples in {seconds!r} s cannot be learned from; "
                "counts are finite and at least 0 and a duration is finite and above 0"
            )
        self._seen += 1
        if self._seen > self.WARM_UP_BATCHES:
            self._follow_change(kept=kept, shed=shed, seconds=seconds)
            self._samples.append((kept, shed, seconds))

    @property
    def ready(self) -> bool:
        """Whether there were enough batches with tuples to believe the fit."""
        return sum(kept + shed > 0 for kept, shed, _ in self._samples) >= self.ENOUGH_BATCHES

    @property
    def explored_tuples(self) -> float | None:
        """Size of the largest batch remembered: how far the fit rests on batches and not on the belief.

        None before there is a fit, and where one of them was shed from: it was as large as it may be then, and nothing
        beyond is worth a trial.
        """
        if not self.ready or any(shed > NO_SHEDDING * kept for kept, shed, _ in self._samples):
            return None
        return max(kept for kept, _, _ in self._samples)

    def cost(self) -> Cost | None:
        """Fit the remembered batches; None until there are enough of them."""
        if not self.ready:
            return None
        kept, shed, seconds = np.array(self._samples, dtype=float).T
        weights = self._memory ** np.arange(len(seconds))[::-1]
        typical_seconds = float(np.average(seconds, weights=weights))
        # In units of a typical batch, so that no coefficient drowns in another's scale. The second coefficient is
        # the cost of dropping; keeping costs twice that, and the third on top.
        unit = max(float(np.average(kept, weights=weights)), 1.0)
        columns = np.stack([np.ones_like(kept), (2 * kept + shed) / unit, kept / unit], axis=1)
        fixed_seconds, fixed_belief = believed_fixed(seconds, typical_seconds, share=self._fixed_share)
        beliefs = np.array(
            [
                np.array([1.0, 0.0, 0.0]) * fixed_belief / fixed_seconds,
                np.array([0.0, 1 - 2 * SHED_SHARE, -SHED_SHARE]) * NOISE / SHED_SHARE_SPREAD / typical_seconds,
            ]
        )
        expected_seconds = seconds
        for _ in range(3):
            # Errors relative to the measured time favour batches that happened to be fast: by 8 % at 20 % noise. The
            # later passes relate them to the fitted time, and trust a batch less the farther off it is (as Huber).
            spreads = np.abs(np.log(seconds / expected_seconds)) / NOISE
            trust = self.OFF_SPREADS / np.maximum(spreads, self.OFF_SPREADS)
            scale = np.sqrt(weights * trust) / expected_seconds
            fixed, dropping, working = nnls(
                np.concatenate([columns * scale[:, None], beliefs]),
                np.concatenate([seconds * scale, [fixed_belief, 0.0]]),
            )[0]
            expected_seconds = np.maximum(columns @ (fixed, dropping, working), typical_seconds * 1e-3)
        return Cost(
            fixed_seconds=float(fixed),
            kept_seconds=float((2 * dropping + working) / unit),
            shed_seconds=float(dropping / unit),
        )

    def _follow_change(self, *, kept: float, shed: float, seconds: float) -> None:
        """Scale what was learned before, when two batches in a row are off to the same side and beyond noise."""
        cost, before = self.cost(), self._surprise
        expected_seconds = cost.of(kept=kept, shed=shed) if cost else 0.0
        self._surprise = math.log(seconds / expected_seconds) if expected_seconds > 0 else 0.0
        if self._surprise * before > 0 and min(abs(self._surprise), abs(before)) > self.OFF_SPREADS * NOISE:
            factor = math.exp((self._surprise + before) / 2)
            *older, last = self._samples
            self._samples.clear()
            self._samples.extend([(kept, shed, seconds * factor) for kept, shed, seconds in older] + [last])
            self._surprise = 0.0
