"""Learn what a batch costs from the batches that ran, and forecast the next one."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, replace
from statistics import median

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import nnls

from penstock.control.margin import Margin
from penstock.model.errors import InvalidInputError
from penstock.model.forecast import Forecast
from penstock.model.load import Cost

# What is believed before anything is seen. It weighs about as much as one batch, so it decides only where the batches
# do not: when they are all of one size, or when none has shed yet.
NOISE = 0.2  # relative spread of the durations of equal batches, as measured on Spark
NOISE_BATCHES = 3.0  # how many batches that weighs
FIXED_SHARE, FIXED_SPREAD = 0.5, 0.5  # of the shortest batch, what it would take without rows
SHED_SHARE, SHED_SHARE_SPREAD = 0.05, 0.1  # dropping a row against keeping it
UNSEEN_SHARE = 0.1  # of a batch's time, that may be the rows' though the fit says otherwise
FOREIGN_SPREAD = 1.0  # a row of a source that is not shed, in units of a kept one; believed to be free


@dataclass(frozen=True, slots=True)
class Sample:
    """One batch as it is learned from; ``seconds`` are those of its own job, on the machine as it is now."""

    kept: float
    shed: float
    foreign: float
    seconds: float


@dataclass(frozen=True, slots=True)
class Fit:
    """What fits the samples: seconds of a batch without rows, per kept, shed and foreign row; and how firmly."""

    coefficients: NDArray[np.float64]
    covariance: NDArray[np.float64]
    noise: float

    def seconds(self, kept: float, shed: float, foreign: float) -> float:
        """Expected duration of a batch's job."""
        return float(self.coefficients @ (1.0, kept, shed, foreign))

    def spread(self, kept: float, shed: float, foreign: float) -> float:
        """Relative spread around it: noise, and what is guessed of the fixed cost and of kept rows."""
        # Dropping is cheap; to doubt how cheap would forbid to drop from the first large batch.
        known = np.array([1.0, kept])
        variance = float(known @ self.covariance @ known)
        return math.sqrt(self.noise**2 + max(0.0, variance) / max(self.seconds(kept, shed, foreign), 1e-9) ** 2)


class CostModel:
    """Fit ``seconds = fixed + kept_seconds * kept + shed_seconds * shed + foreign_seconds * foreign`` to batches.

    Least squares on relative errors, for a slow machine is slow in proportion, with outliers counting less. No
    coefficient is below zero, and dropping a row costs at most half of keeping it: were noise to make them equal, the
    remedy for overload would be to keep all.

    How the costs relate to one another is remembered for long; how fast the machine is, is not. What was seen is scaled
    to the machine as it is now: a little by every batch, and all the way where two in a row are off to the same side
    and beyond noise. One alone is an outlier.

    Where Spark tells what a batch took beside its own job (offsets, planning, logs, commit), that is no cost of rows,
    whatever the fit would say: it is the median of the last three batches.

    Batches of one size do not tell the fixed cost from the cost of rows. Then the fit believes half of each, and says
    how far it may be off, so that a first large batch is met with care.

    Parameters
    ----------
    late_share
        Share of batches that may take longer than :meth:`forecast` says.
    full_seconds
        What a batch takes that fills its time: the margin is right for such a batch, for no other needs one.

    Examples
    --------
    Truly 0.2 s a batch, 100 µs to keep a row and 5 µs to drop it.

    >>> model = CostModel()
    >>> for kept, shed in [(0, 0), (100, 0), (5_000, 0), (9_000, 0), (18_000, 40_000), (20_000, 10_000)]:
    ...     model.learn(kept=kept, shed=shed, seconds=0.2 + kept * 1e-4 + shed * 5e-6)
    >>> cost = model.forecast().cost
    >>> round(cost.fixed_seconds, 1), round(cost.kept_seconds * 1e6), round(cost.shed_seconds * 1e6)
    (0.2, 101, 5)
    """

    # The first batch of a query compiles code and opens state stores: it tells little about the ones to come.
    WARM_UP_BATCHES = 1
    ENOUGH_BATCHES = 3
    # A cold query gets faster by leaps, whatever its batches hold. What was seen before such a leap is forgotten.
    LEAP, COLD_BATCHES = 0.6, 10
    # Noise alone goes that far to one side once in 22 batches, and twice in a row to the same side once in 250.
    OFF_SPREADS = 2.0
    # What a single batch says of the machine's speed.
    FOLLOW = 0.15
    MEMORY, WINDOW = 0.97, 80
    OVERHEAD_BATCHES = 3
    # Kept rows of the last batches that differ by less tell nothing apart, unless plans are varied on purpose.
    LITTLE_VARIED, DITHER, VARIED_BATCHES = 0.05, 0.06, 8

    def __init__(self, *, late_share: float = 0.05, full_seconds: float = 1.0) -> None:
        self._full_seconds = full_seconds
        self._margin = Margin(late_share=late_share)
        self._samples: deque[Sample] = deque(maxlen=self.WINDOW)
        self._overheads: deque[float] = deque(maxlen=self.OVERHEAD_BATCHES)
        self._last: tuple[float, float] | None = None
        self._seen = 0
        self._off = self._off_spreads = 0.0
        self._fit: Fit | None = None
        self._forecast: Forecast | None = None

    def learn(
        self, *, kept: float, shed: float, seconds: float, overhead_seconds: float | None = None, foreign: float = 0.0
    ) -> None:
        """Take in one finished batch; ``overhead_seconds`` of it went by beside its own job."""
        if not (math.isfinite(seconds) and seconds > 0 and 0 <= kept < math.inf and 0 <= shed < math.inf):
            raise InvalidInputError(
                f"a batch of {kept!r} kept and {shed!r} shed rows in {seconds!r} s cannot be learned from; "
                "counts are finite and at least 0 and a duration is finite and above 0"
            )
        self._seen += 1
        if self._seen <= self.WARM_UP_BATCHES:
            return
        overhead = min(overhead_seconds or 0.0, 0.99 * seconds)
        rows = kept + shed
        if self._seen <= self.COLD_BATCHES and self._last is not None:
            last_rows, last_seconds = self._last
            if seconds < self.LEAP * last_seconds * min(1.0, rows / max(last_rows, 1.0)):
                self._samples.clear()
                self._overheads.clear()
        self._last = rows, seconds
        if self.ready:
            self._compare(Sample(kept, shed, foreign, seconds - overhead), seconds)
        self._overheads.append(overhead)
        self._samples.append(Sample(kept, shed, foreign, seconds - overhead))
        self._fit = self._fitted()
        self._forecast = self._forecasted()

    def ended(self, *, late: bool) -> None:
        """Take in whether a batch that was forecast was late."""
        if self.ready:
            self._margin.ended(late=late)
            self._forecast = self._forecasted()

    @property
    def ready(self) -> bool:
        """Whether there were enough batches with rows to believe the fit."""
        return sum(sample.kept + sample.shed > 0 for sample in self._samples) >= self.ENOUGH_BATCHES

    def forecast(self) -> Forecast | None:
        """Forecast the next batch; None until enough is known."""
        return self._forecast if self.ready else None

    def _compare(self, sample: Sample, seconds: float) -> None:
        """Hold a batch against its forecast: learn the margin, and follow the machine's speed."""
        fit = self._fit
        assert fit is not None  # noqa: S101 - there were samples
        expected = fit.seconds(sample.kept, sample.shed, sample.foreign)
        spread = fit.spread(sample.kept, sample.shed, sample.foreign)
        overhead = median(self._overheads)
        self._margin.learn(
            expected_seconds=expected + overhead, seconds=seconds, noise=fit.noise, spread=max(spread, fit.noise)
        )
        off = math.log(sample.seconds / expected)
        off_spreads, before = off / spread, self._off_spreads
        if off_spreads * before > 0 and min(abs(off_spreads), abs(before)) > self.OFF_SPREADS:
            # By the smaller of the two, for one may be a stall. The newest sample was already seen on this machine.
            self._scale(math.exp(min(off, self._off, key=abs)), all_but=1)
            self._off = self._off_spreads = 0.0
            return
        within = max(-self.OFF_SPREADS, min(self.OFF_SPREADS, off_spreads))
        # Only noise tells of speed; the rest of the spread is what is guessed of the costs.
        self._scale(math.exp(self.FOLLOW * within * fit.noise**2 / spread))
        self._off, self._off_spreads = off, off_spreads

    def _scale(self, factor: float, *, all_but: int = 0) -> None:
        for position in range(len(self._samples) - all_but):
            sample = self._samples[position]
            self._samples[position] = replace(sample, seconds=sample.seconds * factor)

    def _fitted(self) -> Fit:
        kept, shed, foreign, seconds = np.array(
            [(sample.kept, sample.shed, sample.foreign, sample.seconds) for sample in self._samples]
        ).T
        weights = self.MEMORY ** np.arange(len(seconds))[::-1]
        typical_seconds = float(np.average(seconds, weights=weights))
        # In units of a typical batch, so that no coefficient drowns in another's scale. The second coefficient is
        # the cost of dropping; keeping costs twice that, and the third on top.
        unit = max(float(np.average(kept, weights=weights)), 1.0)
        foreign_unit = max(float(np.average(foreign, weights=weights)), 1.0)
        columns = np.stack([np.ones_like(kept), (2 * kept + shed) / unit, kept / unit, foreign / foreign_unit], axis=1)
        fixed_seconds, fixed_belief = FIXED_SHARE * float(seconds.min()), NOISE * FIXED_SHARE / FIXED_SPREAD
        beliefs = np.array(
            [
                np.array([1.0, 0.0, 0.0, 0.0]) * fixed_belief / fixed_seconds,
                np.array([0.0, 1 - 2 * SHED_SHARE, -SHED_SHARE, 0.0]) * NOISE / SHED_SHARE_SPREAD / typical_seconds,
                np.array([0.0, 0.0, 0.0, 1.0]) * NOISE / FOREIGN_SPREAD / typical_seconds,
            ]
        )
        wanted = np.array([fixed_belief, 0.0, 0.0])
        expected_seconds = seconds
        for _ in range(3):
            # Errors relative to the measured time favour batches that happened to be fast: by 8 % at 20 % noise. The
            # later passes relate them to the fitted time, and trust a batch less the farther off it is (as Huber).
            off = np.abs(np.log(seconds / expected_seconds)) / NOISE
            scale = np.sqrt(weights * self.OFF_SPREADS / np.maximum(off, self.OFF_SPREADS)) / expected_seconds
            system = np.concatenate([columns * scale[:, None], beliefs])
            found = nnls(system, np.concatenate([seconds * scale, wanted]))[0]
            expected_seconds = np.maximum(columns @ found, typical_seconds * 1e-3)
        off = np.minimum(np.log(seconds / expected_seconds) ** 2, (2 * NOISE) ** 2)
        # What the fit itself took up of the noise is no longer in the differences.
        freedom = NOISE_BATCHES + max(float(weights.sum()) - 1.5, 0.5)
        noise = math.sqrt((NOISE_BATCHES * NOISE**2 + float(weights @ off)) / freedom)
        # From the unknowns of the fit to (fixed, kept): only these two are guessed.
        known = np.array([[1.0, 0.0, 0.0, 0.0], [0.0, 2 / unit, 1 / unit, 0.0]])
        covariance = known @ np.linalg.pinv(system.T @ system) @ known.T * noise**2
        # A machine that gets faster while batches grow hides what their rows cost. So far beyond the largest batch the
        # fit is not to be trusted, however well it fits.
        covariance[1, 1] += (UNSEEN_SHARE * typical_seconds / max(float(kept.max()), 1.0)) ** 2
        fixed, dropping, working, aside = found.tolist()
        per_row = np.array([fixed, (2 * dropping + working) / unit, dropping / unit, aside / foreign_unit])
        return Fit(per_row, covariance, noise)

    def _forecasted(self) -> Forecast:
        fit = self._fit
        assert fit is not None  # noqa: S101 - called after a fit
        fixed, kept, shed, foreign = fit.coefficients.tolist()
        late_factor, late_seconds = self._margin.overrun(expected_seconds=self._full_seconds, noise=fit.noise)
        return Forecast(
            cost=Cost(
                fixed_seconds=fixed + median(self._overheads),
                kept_seconds=kept,
                shed_seconds=shed,
                foreign_seconds=foreign,
            ),
            noise=fit.noise,
            late_factor=late_factor,
            late_seconds=late_seconds,
            fixed_variance=float(fit.covariance[0, 0]),
            kept_variance=float(fit.covariance[1, 1]),
            covariance=float(fit.covariance[0, 1]),
            off=self._off if abs(self._off_spreads) > self.OFF_SPREADS else 0.0,
            dither=self._dither(),
        )

    def _dither(self) -> float:
        last = list(self._samples)[-self.VARIED_BATCHES :]
        kept = np.array([sample.kept for sample in last])
        shedding = all(sample.shed for sample in last)
        return self.DITHER if shedding and kept.std() < self.LITTLE_VARIED * kept.mean() else 0.0
