"""Let latency graphs choose the latency target ([Aurora03] leaves them for later).

A longer target means longer batches, and of those less goes into starting them: more tuples survive, and all of them
are later. So the target is the one at which what is delivered, discounted for its lateness, is worth most.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from penstock.model.forecast import Forecast
from penstock.model.quality import LatencyGraph
from penstock.policy.network.plan_table import PlanTable, TableRow

CANDIDATES = 24


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A latency target, the row of the table that it comes to, and what that is worth."""

    latency_seconds: float
    row: TableRow
    utility: float


def best_target(
    table: PlanTable,
    latency: Mapping[str, LatencyGraph],
    *,
    forecast: Forecast,
    tuples_per_second: float,
    least_seconds: float = 0.5,
) -> Target:
    """Choose the target, among those between the first and the last corner of the graphs.

    Parameters
    ----------
    latency
        Graphs by output; an output without one does not mind waiting.
    forecast
        Of what a batch and its tuples cost, as learned.
    tuples_per_second
        Arrival rate.

    Examples
    --------
    Batches that cost half a second to start: waiting pays until answers lose their worth.

    >>> from penstock.model.load import Cost
    >>> from penstock.model.network_plan import NetworkPlan
    >>> rows = tuple(
    ...     TableRow(index=n, work_share=1 - n / 10, plan=NetworkPlan(reason="r"), utilities={"O": 1 - n / 10})
    ...     for n in range(11)
    ... )
    >>> graph = LatencyGraph.of((2, 1.0), (12, 0.0))
    >>> forecast = Forecast(cost=Cost(fixed_seconds=0.5, kept_seconds=1e-4), noise=0.2, late_factor=1.25)
    >>> chosen = best_target(PlanTable(rows=rows), {"O": graph}, forecast=forecast, tuples_per_second=20_000)
    >>> 2 <= chosen.latency_seconds <= 6
    True
    """
    corners = [seconds for graph in latency.values() for seconds, _ in graph.points]
    low, high = max(least_seconds, min(corners, default=least_seconds)), max(corners, default=least_seconds)
    best: Target | None = None
    for seconds in _candidates(low, max(low, high)):
        # A tuple waits for one batch and then for its own.
        batch_seconds = seconds / 2
        offered = tuples_per_second * batch_seconds
        kept = forecast.most_kept(offered=offered, seconds=batch_seconds, expected_seconds=batch_seconds)
        share = kept / offered if offered else 1.0
        row = table.row_for(share)
        worth = sum(
            utility * (latency[name].utility(seconds) if name in latency else 1.0)
            for name, utility in row.utilities.items()
        )
        # Of equally good ones the shortest.
        if best is None or worth > best.utility * (1 + 1e-9):
            best = Target(latency_seconds=seconds, row=row, utility=worth)
    assert best is not None  # noqa: S101 - there is at least one candidate
    return best


def _candidates(low: float, high: float) -> list[float]:
    if high <= low:
        return [low]
    return [low * (high / low) ** (n / (CANDIDATES - 1)) for n in range(CANDIDATES)]
