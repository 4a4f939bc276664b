"""The demo's stream over time: quiet, a burst, quiet again, each as a share of what Spark does at that moment."""

from __future__ import annotations

from itertools import accumulate

PHASES = ("before", "burst", "after")
# Shares of the stream's length. It starts slowly: no query knows what a row costs before it has run a few batches.
LEAD_IN, QUIET, IN_BURST, QUIET_AGAIN = 0.08, 0.20, 0.48, 0.24
# Rows that arrive, as shares of what plain Spark does. The quiet load fits a machine that becomes half as fast, and the
# burst is too much for one that becomes twice as fast.
LEAD_IN_LOAD, QUIET_LOAD, BURST_LOAD = 0.1, 0.35, 3.0
STEP_SECONDS = 1.0


def phase_edges(seconds: float) -> list[tuple[float, float]]:
    """Start and end of each of the ``PHASES`` of a stream of this length; the slow start is part of the first.

    >>> phase_edges(50)
    [(0.0, 14.0), (14.0, 38.0), (38.0, 50.0)]
    """
    starts = [0.0, *(round(share * seconds, 3) for share in accumulate((LEAD_IN + QUIET, IN_BURST)))]
    return list(zip(starts, [*starts[1:], float(seconds)], strict=True))


def phase_at(at: float, seconds: float) -> str:
    """Name the phase in which a row arrives; the last row of a phase arrives at its end.

    >>> [phase_at(at, 50) for at in (14, 14.1, 50)]
    ['before', 'burst', 'after']
    """
    return next(name for name, (_, high) in zip(PHASES, phase_edges(seconds), strict=True) if at <= high)


def next_step(at: float, seconds: float, *, rows_per_second: float) -> tuple[float, float]:
    """Lay out the stream from ``at`` on: for how long, and how many rows a second, if Spark does so many.

    >>> next_step(13, 50, rows_per_second=1000), next_step(14, 50, rows_per_second=1000)
    ((1.0, 350), (1.0, 3000))
    """
    loads = {0.0: LEAD_IN_LOAD, round(LEAD_IN * seconds, 3): QUIET_LOAD}
    _, (burst_starts, burst_ends), _ = phase_edges(seconds)
    loads |= {burst_starts: BURST_LOAD, burst_ends: QUIET_LOAD}
    load = [load for start, load in loads.items() if start <= at][-1]
    until = min([at + STEP_SECONDS, *(edge for edge in (*loads, float(seconds)) if edge > at)])
    return round(until - at, 3), round(load * rows_per_second)
