"""How much of a backlog to read at all, when reading it would break the target even if every tuple were dropped."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.control.governor import CATCH_UP, Governor
from penstock.control.guidance import Guidance
from penstock.model.errors import require_fraction

# Reading may take this share of the time that a batch is planned for; the rest is for the tuples that are kept.
READING_SHARE = 0.5
# Before costs are known: this many times what the first batches may keep.
PROBE_READ = 25


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """The share of the waiting tuples that is read, and why."""

    keep: float
    reason: str

    def __post_init__(self) -> None:
        require_fraction("keep", self.keep, meaning="the share of the waiting tuples that is read")


def decide_reading(governor: Governor, guidance: Guidance | None, *, waiting_tuples: float, now: float) -> Reading:
    """Decide what share of the waiting tuples the next batch reads.

    A tuple that is read and dropped costs ``shed_seconds``. While dropping all of them would leave half of the batch's
    time, everything is read: a sample drawn tuple by tuple is better than one drawn in blocks.

    Examples
    --------
    >>> from penstock.model.forecast import Forecast
    >>> from penstock.model.load import Cost
    >>> cost = Cost(fixed_seconds=0.2, kept_seconds=1e-4, shed_seconds=1e-6)
    >>> learned = Guidance(published_at=0.0, forecast=Forecast(cost=cost, noise=0.1, late_factor=1.25))
    >>> governor = Governor(latency_seconds=5.0)
    >>> decide_reading(governor, learned, waiting_tuples=500_000, now=0.0).keep
    1.0
    >>> flood = decide_reading(governor, learned, waiting_tuples=20_000_000, now=0.0)
    >>> flood.keep, flood.reason
    (0.045, 'reading 20,000,000 tuples alone would take 20.0 s of 2.5 s: reading 4.50 %')
    """
    if guidance is not None and guidance.catch_up:
        return Reading(keep=1.0, reason=CATCH_UP)
    if guidance is not None and now - guidance.published_at > governor.grace_seconds:
        return Reading(keep=1.0, reason="the controller is silent: reading all")
    if guidance is None or guidance.forecast is None:
        most = PROBE_READ * ((guidance.probe_rows if guidance else None) or governor.probe_tuples)
        if waiting_tuples <= most:
            return Reading(keep=1.0, reason="few enough to read before costs are known")
        return Reading(
            keep=most / waiting_tuples,
            reason=f"cold start: costs not learned yet, reading {most:,.0f} of {waiting_tuples:,.0f} tuples",
        )
    cost = guidance.forecast.cost
    planned_seconds = governor.batch_seconds / guidance.forecast.late_factor
    # A fixed cost beyond the plan must not stop the reading for ever.
    allowed_seconds = READING_SHARE * max(planned_seconds - cost.fixed_seconds, 0.1 * planned_seconds)
    needed_seconds = cost.shed_seconds * waiting_tuples
    if needed_seconds <= allowed_seconds:
        return Reading(keep=1.0, reason=f"reading takes {needed_seconds:.1f} s of {governor.batch_seconds:.1f} s")
    keep = allowed_seconds / needed_seconds
    return Reading(
        keep=keep,
        reason=(
            f"reading {waiting_tuples:,.0f} tuples alone would take {needed_seconds:.1f} s of "
            f"{governor.batch_seconds:.1f} s: reading {keep:.2%}".replace("%", " %")
        ),
    )
