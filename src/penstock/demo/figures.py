"""Boil two runs of the demo down to figures, and say which of them are promises."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy.stats import binom

from penstock.demo.batches import DemoBatch
from penstock.demo.claim import Claim
from penstock.demo.clicks import AGGREGATES
from penstock.demo.run import Outcome, ShedOutcome
from penstock.demo.timetable import PHASES, phase_edges

CONFIDENCE = 0.95
# Each of the two aggregates is tested at one in 10,000. Bounds of answers that rest on little more than 100 rows hold
# the truth 94 times in 100, and all in all a healthy run should fail no more than once in 1,000.
FALSE_ALARM = 1e-4
JUDGED_SHARE = 0.9
# Sums of prices are added up in another order than the truth.
ROUNDING = 1e-9
FloatArray = npt.NDArray[np.float64]

LEAST_OF_PLAIN, MOST_BATCHES_AFTER = 0.75, 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Percentile:
    """A percentile of latency; ``exact`` unless it falls on rows that were not answered: then it is at least that."""

    seconds: float
    exact: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseFigures:
    """Latency percentiles of the rows that arrived in one phase, how many got no answer, and the share kept."""

    phase: str
    rows: int
    p50: Percentile
    p95: Percentile
    p99: Percentile
    unanswered: int
    kept_share: float


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerFigures:
    """What the answers of one aggregate are worth.

    Attributes
    ----------
    whole, whole_wrong
        Answers of whose rows nothing was shed, and how many of them are not the truth.
    bounded, outside
        Answers of which a tenth and more was shed, with bounds; in how many the truth is not inside them.
    median_bound
        Half of the width of their bounds, as a share of the answer: the median; None where there are none.
    without_bounds
        The same without bounds, as too few rows are left; or without an answer, as none is.
    barely_shed
        The others. Where only a few rows were open to shedding, often none is left to tell of those that are gone.
    """

    aggregate: str
    whole: int
    whole_wrong: int
    bounded: int
    outside: int
    median_bound: float | None
    without_bounds: int
    barely_shed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """Whether every row of the shed run is accounted for, and what its answers are worth.

    What was kept is counted twice: by the ledger, and by the query itself, as the rows that its answers rest on.
    """

    uncounted: int
    kept_in_ledger: int
    kept_in_answers: int
    answers: tuple[AnswerFigures, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFigures:
    """What one run comes down to."""

    name: str
    phases: tuple[PhaseFigures, ...]
    stopped_seconds: float
    burst_rows_per_second: float
    shed_before_burst: int
    batches_shedding_after_burst: int
    batches: tuple[DemoBatch, ...]


def run_figures(outcome: Outcome) -> RunFigures:
    """Compute the figures of one run."""
    edges = phase_edges(outcome.arrivals.total_seconds)
    batches = outcome.batches
    _, burst_ends = edges[1]
    after = [batch for batch in batches if batch.started_seconds > burst_ends]
    still = [number for number, batch in enumerate(after, start=1) if batch.kept < batch.offered]
    return RunFigures(
        name=outcome.name,
        phases=tuple(_phase(outcome, name, *edge) for name, edge in zip(PHASES, edges, strict=True)),
        stopped_seconds=outcome.stopped_seconds,
        burst_rows_per_second=_rows_per_second(batches, *edges[1]),
        shed_before_burst=sum(batch.offered - batch.kept for batch in batches if batch.phase == PHASES[0]),
        batches_shedding_after_burst=still[-1] if still else 0,
        batches=tuple(batches),
    )


def account_of(outcome: ShedOutcome) -> Account:
    """Hold ledger, answers and truth of the shed run against each other."""
    return Account(
        uncounted=_uncounted(outcome),
        kept_in_ledger=int(outcome.ledger["kept"].sum()),
        kept_in_answers=int(outcome.answers["rows"].sum()),
        answers=tuple(_answers(outcome, aggregate) for aggregate in AGGREGATES),
    )


def promises(plain: RunFigures, penstock: RunFigures, account: Account) -> list[Claim]:
    """State what must hold on any machine, in any mood."""
    kept_apart = abs(account.kept_in_ledger - account.kept_in_answers)
    of_answers = [
        claim
        for told in account.answers
        for claim in (
            Claim.at_most(
                f"answers ({told.aggregate}) that are not exact though nothing was shed", told.whole_wrong, 0
            ),
            Claim.at_most(
                f"answers ({told.aggregate}) with the truth outside their bounds, of {told.bounded}",
                told.outside,
                binom.ppf(1 - FALSE_ALARM, told.bounded, 1 - CONFIDENCE) if told.bounded else 0,
            ),
        )
    ]
    return [
        Claim.at_most("rows that are not in the ledger exactly once", account.uncounted, 0),
        Claim.at_most("rows kept by the ledger, more or less than the answers rest on", kept_apart, 0),
        *of_answers,
        Claim.at_most(
            "p95 latency in the burst, seconds, against plain Spark's",
            penstock.phases[1].p95.seconds,
            plain.phases[1].p95.seconds,
        ),
    ]


def moods(plain: RunFigures, penstock: RunFigures, *, latency_seconds: float) -> list[Claim]:
    """State what should hold, and hangs on how fast the machine is from second to second."""
    return [
        Claim.at_most("p95 latency in the burst, seconds", penstock.phases[1].p95.seconds, latency_seconds),
        Claim.at_most("rows shed before the burst", penstock.shed_before_burst, 0),
        Claim.at_least(
            f"rows kept per second in the burst, against {LEAST_OF_PLAIN:g} of plain Spark's",
            penstock.burst_rows_per_second,
            LEAST_OF_PLAIN * plain.burst_rows_per_second,
        ),
        Claim.at_most(
            "batches until shedding ended after the burst", penstock.batches_shedding_after_burst, MOST_BATCHES_AFTER
        ),
    ]


def to_json(
    runs: Sequence[RunFigures],
    account: Account,
    settings: dict[str, Any],
    *,
    claims: list[Claim],
    shown: list[Claim],
) -> dict[str, Any]:
    """Lay the figures out for ``--json``: ``claims`` are judged, what is ``shown`` is not."""
    return {
        "settings": settings,
        "runs": [asdict(run) for run in runs],
        "account": asdict(account),
        "claims": [asdict(claim) for claim in claims],
        "shown": [asdict(claim) for claim in shown],
    }


def _phase(outcome: Outcome, name: str, low: float, high: float) -> PhaseFigures:
    # The first row of a phase arrives a moment after its start, the last one at its end.
    within = (outcome.arrival_seconds > low) & (outcome.arrival_seconds <= high)
    waited, latency = outcome.waited_seconds[within], outcome.latency_seconds[within]
    batches = [batch for batch in outcome.batches if batch.phase == name]
    offered = sum(batch.offered for batch in batches)
    return PhaseFigures(
        phase=name,
        rows=int(within.sum()),
        p50=_percentile(waited, latency, 50),
        p95=_percentile(waited, latency, 95),
        p99=_percentile(waited, latency, 99),
        unanswered=int(np.isinf(latency).sum()),
        kept_share=sum(batch.kept for batch in batches) / offered if offered else 1.0,
    )


def _percentile(waited: FloatArray, latency: FloatArray, percent: float) -> Percentile:
    # No row is answered before it has stopped waiting, so a percentile of waiting is a lower bound of that of latency.
    known = float(np.percentile(latency, percent, method="inverted_cdf"))
    if np.isfinite(known):
        return Percentile(seconds=known, exact=True)
    return Percentile(seconds=float(np.percentile(waited, percent, method="inverted_cdf")), exact=False)


def _rows_per_second(batches: Sequence[DemoBatch], low: float, high: float) -> float:
    """Rate of rows kept by the batches that were triggered in a phase, from the first trigger to the last commit."""
    within = [batch for batch in batches if low <= batch.started_seconds < high]
    if not within:
        return 0.0
    return sum(batch.kept for batch in within) / (within[-1].committed_seconds - within[0].started_seconds)


def _uncounted(outcome: ShedOutcome) -> int:
    """Count the rows of the timetable that the ledger holds never or twice, by what Spark says of each batch."""
    entered = outcome.ledger.groupby("batch_id")["offered"].sum()
    committed = pd.Series({batch.batch_id: batch.offered for batch in outcome.batches}, dtype="int64")
    apart = entered.sub(committed, fill_value=0).abs().sum()
    return int(apart + outcome.arrivals.total_tuples - committed.sum())


def _answers(outcome: ShedOutcome, aggregate: str) -> AnswerFigures:
    told = outcome.truth.merge(outcome.answers, on=["window_start", "campaign"], how="left")
    true, kept_share = told[aggregate], told["kept_share"]
    value, lower, upper = (told[f"{aggregate}_{field}"] for field in ("value", "lower", "upper"))
    whole, shed = kept_share == 1, kept_share <= JUDGED_SHARE
    right = (value - true).abs() <= ROUNDING * true
    bounded = shed & lower.notna()
    widths = ((upper - lower) / 2 / value)[bounded]
    return AnswerFigures(
        aggregate=aggregate,
        whole=int(whole.sum()),
        whole_wrong=int((whole & ~right).sum()),
        bounded=int(bounded.sum()),
        outside=int((bounded & ~true.between(lower, upper)).sum()),
        median_bound=float(widths.median()) if bounded.any() else None,
        without_bounds=int((shed & lower.isna()).sum()),
        barely_shed=int((~whole & ~shed).sum()),
    )
