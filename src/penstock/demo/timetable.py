"""The demo's stream over time: quiet, a burst, quiet again."""

from __future__ import annotations

import numpy as np

from penstock.model.arrivals import Arrivals

PHASES = ("before", "during", "after")
BURST = 5
# Shares of the stream's length. It starts slowly: no query knows what a tuple costs before it has run a few batches.
LEAD_IN, QUIET, IN_BURST, QUIET_AGAIN = 0.08, 0.20, 0.48, 0.24
LEAD_IN_LOAD = 0.25


def timetable(*, seconds: float, quiet_tuples_per_second: float) -> Arrivals:
    """Lay out a stream of this length.

    >>> [round(low) for low, _ in phase_edges(timetable(seconds=50, quiet_tuples_per_second=1000))]
    [0, 14, 38]
    """
    return Arrivals.of(
        (LEAD_IN * seconds, LEAD_IN_LOAD * quiet_tuples_per_second),
        (QUIET * seconds, quiet_tuples_per_second),
        (IN_BURST * seconds, BURST * quiet_tuples_per_second),
        (QUIET_AGAIN * seconds, quiet_tuples_per_second),
    )


def phase_edges(arrivals: Arrivals) -> list[tuple[float, float]]:
    """Start and end of each of the ``PHASES``, in seconds of the stream; the slow start is part of the first."""
    _, *edges = np.cumsum([phase.seconds for phase in arrivals.phases]).tolist()
    return list(zip([0.0, *edges[:-1]], edges, strict=True))
