"""Learn what each of several outputs costs and holds, from batches whose drops let different shares through."""

from __future__ import annotations

import math
from collections import deque

import numpy as np
import numpy.typing as npt
from scipy.optimize import nnls

from penstock.control.cost import NOISE
from penstock.control.guidance import fade
from penstock.model.batch import Batch
from penstock.model.branches import Branch, BranchCount, BranchCounts, Branches

# Believed until batches tell otherwise, about as strongly as one batch: every part of the query, the shared one and
# each output, takes an equal share of the time, give or take three times that; a batch without rows takes a tenth of a
# second, give or take twice that; reading and dropping a tuple takes a
# twentieth of what it costs on the whole.
FIXED_SECONDS, FIXED_SPREAD = 0.1, 2.0
PART_SPREAD = 3.0
READ_SHARE, READ_SPREAD = 0.05, 0.2
WARM_UP_BATCHES = 1
ENOUGH_BATCHES = 3
MEMORY, WINDOW = 0.9, 40


class BranchLearner:
    """Follow what the outputs hold, and how the work splits among the shared part and each of them.

    The split is a fit of ``seconds = fixed + read * offered + shared * kept + Σ cost_j * kept_j``. Rates that never
    change tell nothing about single outputs: then the belief decides. Every change of the rates tells more. What a
    tuple costs on the whole is left to :class:`~penstock.control.cost.CostModel`, for which a tuple that passed but
    some of the drops counts as part of a tuple (:meth:`worked`).

    Examples
    --------
    >>> learner = BranchLearner()
    >>> for batch_id, (a, b) in enumerate([(9_000, 900), (9_000, 900), (900, 900), (9_000, 90), (4_000, 400)]):
    ...     counts = BranchCounts(
    ...         first_event_at=batch_id,
    ...         last_event_at=batch_id + 1.0,
    ...         window_seconds=60.0,
    ...         outputs={
    ...             "a": BranchCount(offered=9_000, kept=a, shed=9_000 - a, weight=9_000, total=9_000, squares=9_000),
    ...             "b": BranchCount(offered=900, kept=b, shed=900 - b, weight=900, total=2_700, squares=9_000),
    ...         },
    ...     )
    ...     seconds = 0.1 + 9_000 * 1e-5 + a * 2e-5 + b * 4e-4
    ...     batch = Batch(batch_id=batch_id, offered=9_000, kept=9_000, shed=0, keep=1.0, reason="fits")
    ...     learner.learn(batch, counts, seconds=seconds)
    >>> branches = learner.branches(seconds_per_tuple=7e-5)
    >>> [(branch.name, branch.share, branch.answer_tuples, branch.mean) for branch in branches.outputs]
    [('a', 1.0, 540000.0, 1.0), ('b', 0.1, 54000.0, 3.0)]
    >>> branches.outputs[1].seconds_per_tuple > 5 * branches.outputs[0].seconds_per_tuple
    True
    """

    def __init__(self) -> None:
        self._samples: deque[tuple[float, ...]] = deque(maxlen=WINDOW)
        self._known: dict[str, _Holds] = {}
        self._last_event_at: float | None = None
        self._seen = 0

    def learn(self, batch: Batch, counts: BranchCounts, *, seconds: float) -> None:
        """Take in one finished batch; the outputs are the same in every batch."""
        windows = self._windows(counts)
        for name, counted in counts.outputs.items():
            self._known.setdefault(name, _Holds()).learn(batch, counted, windows)
        self._seen += 1
        if self._seen > WARM_UP_BATCHES and batch.offered and seconds > 0:
            kept = [counted.kept for counted in counts.outputs.values()]
            self._samples.append((seconds, 1.0, batch.offered, batch.kept, *kept))

    def worked(self, batch: Batch, counts: BranchCounts) -> float:
        """Count the tuples of a batch by the work that was done on them: one that passed every drop is a whole one."""
        shared, outputs = self._split()
        done = shared * batch.kept + sum(
            cost * counted.kept for cost, counted in zip(outputs, counts.outputs.values(), strict=True)
        )
        return min(float(batch.offered), done)

    def branches(self, *, seconds_per_tuple: float) -> Branches | None:
        """Give the parts of the query, which add up to this for a tuple that passes every drop; None before a batch."""
        if not self._known:
            return None
        shared, outputs = self._split()
        return Branches(
            shared_seconds=shared * seconds_per_tuple,
            outputs=tuple(
                holds.branch(name, seconds_per_tuple=cost * seconds_per_tuple)
                for (name, holds), cost in zip(self._known.items(), outputs, strict=True)
            ),
        )

    def _split(self) -> tuple[float, list[float]]:
        """Split one tuple's work: what the shared part takes of it, and each output per tuple that reaches it."""
        shares = [max(holds.share, 1e-9) for holds in self._known.values()]
        fitted = self._fit()
        costs = fitted if fitted is not None else [1.0, *(1 / share for share in shares)]
        whole = costs[0] + sum(share * cost for share, cost in zip(shares, costs[1:], strict=True))
        if whole <= 0:
            return 1.0, [0.0] * len(shares)
        return costs[0] / whole, [cost / whole for cost in costs[1:]]

    def _windows(self, counts: BranchCounts) -> float:
        """Count the windows' worth of event time that a batch brought; 0 where that cannot be told."""
        first, last, before = counts.first_event_at, counts.last_event_at, self._last_event_at
        if first is None or last is None:
            return 0.0
        self._last_event_at = last if before is None else max(last, before)
        # Since the batch before, where time went on; else the span of its own tuples, as of a batch of late ones.
        seconds = last - before if before is not None and last > before else last - first
        return seconds / counts.window_seconds

    def _fit(self) -> list[float] | None:
        """Fit the seconds per tuple of the shared part and of each output; None until there are enough batches."""
        if len(self._samples) < ENOUGH_BATCHES:
            return None
        seconds, *columns = np.array(self._samples, dtype=float).T
        counted: npt.NDArray[np.float64] = np.stack(columns, axis=1)
        weights = MEMORY ** np.arange(len(seconds))[::-1]
        typical_seconds = float(np.average(seconds, weights=weights))
        usual = np.maximum(np.average(counted, axis=0, weights=weights), 1.0)
        # Every unknown in units of what it is believed to be, so that no one drowns in another's scale.
        fixed_seconds = min(FIXED_SECONDS, typical_seconds / 2)
        worked_seconds = typical_seconds - fixed_seconds
        parts = worked_seconds / (counted.shape[1] - 2) / usual[2:]
        units = np.array([fixed_seconds, READ_SHARE * worked_seconds / usual[1], *parts])
        spreads = np.array([FIXED_SPREAD, READ_SPREAD / READ_SHARE, *[PART_SPREAD] * (len(units) - 2)])
        beliefs = np.diag(NOISE / spreads)
        expected = seconds
        for _ in range(3):
            off = np.abs(np.log(seconds / expected)) / NOISE
            scale = np.sqrt(weights * 1.5 / np.maximum(off, 1.5)) / expected
            solved = nnls(
                np.concatenate([counted * units * scale[:, None], beliefs]),
                np.concatenate([seconds * scale, NOISE / spreads]),
            )[0]
            expected = np.maximum(counted @ (units * solved), typical_seconds * 1e-3)
        fitted: list[float] = (units * solved).tolist()
        return fitted[2:]


class _Holds:
    """Fading averages of what reaches one output."""

    def __init__(self) -> None:
        self._share: float | None = None
        self._answer_tuples: float | None = None
        self._mean: float | None = None
        self._square: float | None = None

    @property
    def share(self) -> float:
        """Tuples that reach the output per tuple that passes the shared part."""
        return self._share or 0.0

    def learn(self, batch: Batch, counted: BranchCount, windows: float) -> None:
        if batch.kept:
            self._share = fade(self._share, counted.offered / batch.kept)
        if counted.weight > 0:
            self._mean = fade(self._mean, counted.total / counted.weight)
            self._square = fade(self._square, counted.squares / counted.weight)
            if windows > 0:
                answers = windows * max(counted.groups, 1.0)
                self._answer_tuples = fade(self._answer_tuples, counted.weight / answers)

    def branch(self, name: str, *, seconds_per_tuple: float) -> Branch:
        mean = self._mean or 0.0
        return Branch(
            name=name,
            share=self.share,
            seconds_per_tuple=seconds_per_tuple,
            answer_tuples=self._answer_tuples or 0.0,
            mean=mean,
            standard_deviation=math.sqrt(max(0.0, (self._square or 0.0) - mean * mean)),
        )
