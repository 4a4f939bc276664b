"""Whether the intervals hold the truth as often as they say, on values of real streams."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

import numpy as np

from lab.reproduce.figure import Figure, Series
from lab.reproduce.skewed import Values, column_values
from penstock.demo.claim import Claim
from penstock.estimate.answer import intervals
from penstock.estimate.interval import Aggregate, Within
from penstock.estimate.moments import Moments

SEED = 95
CONFIDENCES = (0.8, 0.9, 0.95, 0.99)
KEEPS = (0.1, 0.3, 0.7)
WINDOW_TUPLES = (1_500, 6_000)
COLUMNS = {"fare_amount": "tlc_green", "cpu_request": "google_task_events", "passenger_count": "tlc_green"}
METHOD_NAMES = ("normal", "hoeffding")


@dataclass(frozen=True, slots=True)
class Case:
    """Answers of one kind over one column."""

    aggregate: Aggregate
    column: str
    within: Within = None

    @property
    def name(self) -> str:
        """What to call it."""
        return f"{self.aggregate} {self.column}"


# The variance has bounds only where the range of the values is known.
CASES = (
    Case("count", "fare_amount"),
    Case("sum", "fare_amount"),
    Case("avg", "fare_amount"),
    Case("sum", "cpu_request"),
    Case("avg", "cpu_request"),
    Case("variance", "passenger_count", (0, 9)),
)


def coverage(*, full: bool, windows: int | None = None, samples: int | None = None) -> Figure:
    """Sample windows of the streams many times, and count how often the stated intervals hold the truth."""
    windows, samples = windows or (200 if full else 24), samples or (200 if full else 40)
    columns = {column: column_values(name, column, seed=SEED) for column, name in COLUMNS.items()}
    observed: dict[tuple[Case, str], Counted] = {}
    for column, (values, _) in columns.items():
        observed |= _observe([case for case in CASES if case.column == column], values, windows, samples)
    claims = []
    for case in CASES:
        at_95, reliable = observed[case, "normal"].at(0.95)
        share = f"{reliable:.0%} of the answers reliable"
        claims.append(Claim.equal(f"{case.name}: normal at 95 %, {share}", at_95, 0.95, tolerance=0.015))
    margin = min(
        covered - confidence
        for (_, method), counted in observed.items()
        if method == "hoeffding"
        for confidence, covered in counted.curve()
    )
    claims.append(Claim.at_least("Hoeffding: observed less stated coverage, least of all cases", margin, 0.0))
    series = []
    for method in METHOD_NAMES:
        labels = ("stated coverage", f"observed coverage, {method}")
        series.append(Series("as stated", CONFIDENCES, CONFIDENCES, *labels))
        for case in CASES:
            curve = observed[case, method].curve()
            stated, found = tuple(pair[0] for pair in curve), tuple(pair[1] for pair in curve)
            if curve:
                series.append(Series(case.name, stated, found, *labels))
    settings = {
        "values": "; ".join(source for _, source in columns.values()),
        "window_tuples": ", ".join(map(str, WINDOW_TUPLES)),
        "keep": ", ".join(map(str, KEEPS)),
        "windows_of_each_size": windows,
        "samples_of_each_window_and_rate": samples,
        "seed": SEED,
    }
    return Figure("sampling/coverage", settings, tuple(series), tuple(claims))


@dataclass(frozen=True, slots=True)
class Counted:
    """By confidence: answers that claimed to be reliable, those of them that held the truth, and all."""

    counts: dict[float, tuple[int, int, int]]

    def at(self, confidence: float) -> tuple[float, float]:
        """Coverage among the reliable answers, and their share."""
        reliable, covered, answers = self.counts[confidence]
        return covered / max(reliable, 1), reliable / answers

    def curve(self) -> list[tuple[float, float]]:
        """Pairs of stated and observed coverage."""
        return [
            (confidence, covered / reliable) for confidence, (reliable, covered, _) in self.counts.items() if reliable
        ]


def _observe(cases: list[Case], values: Values, windows: int, samples: int) -> dict[tuple[Case, str], Counted]:
    """Ask every sample for every case, by both methods and at every confidence."""
    asked = list(product(cases, METHOD_NAMES))
    counts = {of: {confidence: np.zeros(3, dtype=int) for confidence in CONFIDENCES} for of in asked}
    for window, moments in _sampled(values, windows, samples):
        for case, method in asked:
            truth = _truth(window, case.aggregate)
            for confidence in CONFIDENCES:
                answers = intervals(moments, case.aggregate, confidence=confidence, method=method, within=case.within)
                covered = (answers.lower <= truth) & (truth <= answers.upper)
                seen = (answers.reliable.sum(), covered[answers.reliable].sum(), samples)
                counts[case, method][confidence] += seen
    return {
        of: Counted({confidence: tuple(counted.tolist()) for confidence, counted in by_confidence.items()})
        for of, by_confidence in counts.items()
    }


def _sampled(values: Values, windows: int, samples: int) -> Iterator[tuple[Values, Moments]]:
    """Cut windows out of the stream, and sample each at every keep rate."""
    random = np.random.default_rng(SEED)
    for size in WINDOW_TUPLES:
        for start in random.integers(0, len(values) - size, size=windows):
            window = values[start : start + size]
            for keep in KEEPS:
                kept = random.random((samples, size)) < keep
                weights = np.broadcast_to(1 / keep, kept.shape)
                yield window, Moments.of(np.broadcast_to(window, kept.shape), weights=weights, kept=kept)


def _truth(window: Values, aggregate: Aggregate) -> float:
    return {
        "count": float(len(window)),
        "sum": float(window.sum()),
        "avg": float(window.mean()),
        "variance": float(window.var()),
    }[aggregate]
