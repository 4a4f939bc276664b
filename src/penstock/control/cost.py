"""Learn what a batch costs from the batches that ran."""

from __future__ import annotations

import math
from collections import deque

import numpy as np
from scipy.optimize import nnls

from penstock.model.errors import InvalidInputError
from penstock.model.load import Cost

# A batch without tuples is seldom seen, so the fixed cost starts from a weak belief: a hundredth of one batch.
PRIOR_FIXED_SECONDS = 0.1
PRIOR_WEIGHT = 0.01


class CostModel:
    """Fit ``seconds = fixed + kept_seconds * kept + shed_seconds * shed`` to the recent batches.

    Non-negative least squares on relative errors, older batches fading by ``memory`` per batch. Non-negative, because
    no part of a batch gives time back; relative, because a slow machine is slow in proportion. Where the batches
    seen so far do not tell fixed from variable cost (all of one size), the time goes to the tuples: the first large
    batch is then thought dearer than it is, never cheaper.

    Parameters
    ----------
    memory
        Weight that a batch keeps when the next one comes.
    window
        Batches remembered.

    Examples
    --------
    >>> model = CostModel()
    >>> for kept in (5_000, 10_000, 20_000, 40_000):
    ...     model.learn(kept=kept, shed=0, seconds=0.2 + kept * 1e-4)
    >>> cost = model.cost()
    >>> round(cost.fixed_seconds, 2), round(cost.kept_seconds * 1e6)
    (0.2, 100)
    """

    # The first batch of a query compiles code and opens state stores: it tells little about the ones to come.
    WARM_UP_BATCHES = 1
    ENOUGH_BATCHES = 3

    def __init__(self, *, memory: float = 0.9, window: int = 40) -> None:
        if not 0 < memory <= 1:
            raise InvalidInputError(f"memory must be in (0, 1], got {memory!r}; it is what a batch's weight fades by")
        self._memory = memory
        self._samples: deque[tuple[float, float, float]] = deque(maxlen=window)
        self._seen = 0

    def learn(self, *, kept: float, shed: float, seconds: float) -> None:
        """Take in one finished batch."""
        if not (math.isfinite(seconds) and seconds > 0 and kept >= 0 and shed >= 0):
            raise InvalidInputError(
                f"a batch of {kept!r} kept and {shed!r} shed tuples in {seconds!r} s cannot be learned from; "
                "counts are at least 0 and a duration is finite and above 0"
            )
        self._seen += 1
        if self._seen > self.WARM_UP_BATCHES:
            self._samples.append((kept, shed, seconds))

    @property
    def ready(self) -> bool:
        """Whether there were enough batches with tuples to believe the fit."""
        return sum(kept + shed > 0 for kept, shed, _ in self._samples) >= self.ENOUGH_BATCHES

    def cost(self) -> Cost | None:
        """Fit the remembered batches; None until there are enough of them."""
        if not self.ready:
            return None
        kept, shed, seconds = np.array(self._samples, dtype=float).T
        ages = np.arange(len(seconds))[::-1]
        weights = np.sqrt(self._memory**ages) / seconds
        # Columns in units of a typical batch, so that no coefficient drowns in another's scale.
        kept_unit, shed_unit = max(kept.mean(), 1.0), max(shed.mean(), 1.0)
        rows = np.stack([np.ones_like(kept), kept / kept_unit, shed / shed_unit], axis=1) * weights[:, None]
        prior = np.array([[PRIOR_WEIGHT / PRIOR_FIXED_SECONDS, 0.0, 0.0]])
        fixed, per_kept_unit, per_shed_unit = nnls(
            np.concatenate([rows, prior]), np.concatenate([seconds * weights, [PRIOR_WEIGHT]])
        )[0]
        kept_seconds = float(per_kept_unit / kept_unit)
        return Cost(
            fixed_seconds=float(fixed),
            kept_seconds=kept_seconds,
            # Dropping a tuple is a part of what keeping it takes.
            shed_seconds=min(float(per_shed_unit / shed_unit), kept_seconds),
        )
