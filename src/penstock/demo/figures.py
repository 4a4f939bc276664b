"""Boil two runs of the demo down to the figures of its table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from penstock.demo.run import Outcome
from penstock.demo.timetable import PHASES, phase_edges
from penstock.model.arrivals import Arrivals
from penstock.reproduce.figure import Claim


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseFigures:
    """Latency percentiles and kept share of the tuples that arrived in one phase."""

    phase: str
    p50_seconds: float
    p95_seconds: float
    p99_seconds: float
    kept_share: float


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchFigures:
    """One batch of the shed run, and why it kept what it kept; seconds are those of the stream."""

    batch_id: int
    phase: str
    started_seconds: float
    duration_seconds: float
    offered: int
    kept: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFigures:
    """What one run comes down to."""

    name: str
    phases: tuple[PhaseFigures, ...]
    kept_share: float
    total_error: float
    window_error_mean: float
    window_error_max: float
    group_error_mean: float
    revenue_error_mean: float
    batches: int
    batches_shedding_after_burst: int
    batch_log: tuple[BatchFigures, ...]


def run_figures(outcome: Outcome, arrivals: Arrivals) -> RunFigures:
    """Compute the figures of one run."""
    edges = phase_edges(arrivals)
    log = tuple(_batch_log(outcome, edges))
    phases = tuple(_phase(outcome, log, name, low, high) for name, (low, high) in zip(PHASES, edges, strict=True))
    windows = _errors(outcome, "clicks", ["window_start"])
    groups = _errors(outcome, "clicks", ["window_start", "campaign"])
    revenue = _errors(outcome, "revenue", ["window_start"])
    told, true = outcome.answers["clicks"].sum(), outcome.truth["clicks"].sum()
    _, burst_ends = edges[1]
    after = [batch for batch in log if batch.started_seconds > burst_ends]
    still = [number for number, batch in enumerate(after, start=1) if batch.kept < batch.offered]
    return RunFigures(
        name=outcome.name,
        phases=phases,
        kept_share=_kept_share(log),
        total_error=float(abs(told - true) / true),
        window_error_mean=float(windows.mean()),
        window_error_max=float(windows.max()),
        group_error_mean=float(groups.mean()),
        revenue_error_mean=float(revenue.mean()),
        batches=len(outcome.committed),
        batches_shedding_after_burst=still[-1] if still else 0,
        batch_log=log,
    )


def to_json(runs: list[RunFigures], settings: dict[str, Any], claims: list[Claim]) -> dict[str, Any]:
    """Lay the figures out for ``--json``."""
    return {"settings": settings, "runs": [asdict(run) for run in runs], "claims": [asdict(claim) for claim in claims]}


def claims_of(plain: RunFigures, penstock: RunFigures, *, latency_seconds: float) -> list[Claim]:
    """State what the demo is to show, each with its value, its bound and whether it held."""
    quiet, burst, _ = penstock.phases
    late_seconds = plain.phases[1].p95_seconds
    return [
        Claim.at_most("Penstock's p95 latency during the burst, seconds", burst.p95_seconds, latency_seconds),
        Claim.at_least("plain Spark's p95 latency during the burst, seconds", late_seconds, 3 * latency_seconds),
        Claim.at_least("share that Penstock kept before the burst", quiet.kept_share, 1.0),
        Claim.at_most("batches until shedding ended after the burst", penstock.batches_shedding_after_burst, 5),
        Claim.at_most("largest error of a window's weighted count", penstock.window_error_max, 0.02),
    ]


def _batch_log(outcome: Outcome, edges: list[tuple[float, float]]) -> Iterator[BatchFigures]:
    """List the batches; one belongs to the phase in which its last tuple arrived."""
    tuples = 0
    for batch in outcome.batches:
        tuples += batch.offered
        last = outcome.arrival_seconds[min(tuples, len(outcome.arrival_seconds)) - 1] if tuples else 0.0
        begun = [name for name, (low, _) in zip(PHASES, edges, strict=True) if low <= last]
        # Only a batch that was counted again after a crash has no times, and the demo does not crash.
        yield BatchFigures(
            batch_id=batch.batch_id,
            phase=begun[-1],
            started_seconds=(batch.started_at or 0.0) - outcome.epoch,
            duration_seconds=batch.duration_seconds or 0.0,
            offered=batch.offered,
            kept=batch.kept,
            reason=batch.reason,
        )


def _phase(outcome: Outcome, log: Sequence[BatchFigures], name: str, low: float, high: float) -> PhaseFigures:
    within = (outcome.arrival_seconds >= low) & (outcome.arrival_seconds < high)
    p50, p95, p99 = np.percentile(outcome.latency_seconds[within], [50, 95, 99]).tolist()
    return PhaseFigures(
        phase=name,
        p50_seconds=p50,
        p95_seconds=p95,
        p99_seconds=p99,
        kept_share=_kept_share([batch for batch in log if batch.phase == name]),
    )


def _kept_share(batches: Sequence[BatchFigures]) -> float:
    offered = sum(batch.offered for batch in batches)
    return sum(batch.kept for batch in batches) / offered if offered else 1.0


def _errors(outcome: Outcome, value: str, by: list[str]) -> Any:
    """Relative error of each answer against the truth; a missing answer counts as an error of 1."""
    true = outcome.truth.groupby(by)[value].sum()
    told = outcome.answers.groupby(by)[value].sum().reindex(true.index).fillna(0.0)
    return (told - true).abs() / true
