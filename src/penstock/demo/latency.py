"""Exact latency of every tuple: its arrival is known from the timetable, its commit from Spark's progress."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from penstock.model.arrivals import Arrivals
from penstock.spark.measure import read_progress


@dataclass(frozen=True, slots=True)
class Committed:
    """One committed batch: its tuples by number, and when it was triggered and committed."""

    start: int
    end: int
    started_at: float
    committed_at: float


def committed_batches(reports: Iterable[Any]) -> list[Committed]:
    """Read which tuples each batch committed, and when."""
    found = {}
    tuples = 0
    for report in reports:
        progress = read_progress(report)
        if progress is None or progress.batch_id in found or not progress.offset_units:
            continue
        end = tuples + int(progress.offset_units)
        found[progress.batch_id] = Committed(tuples, end, progress.started_at, progress.committed_at)
        tuples = end
    return list(found.values())


def tuple_latencies(
    batches: Iterable[Committed], arrivals: Arrivals, *, epoch: float
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Arrival (seconds since the epoch of the stream) and latency of every tuple."""
    times, latencies = [], []
    for batch in batches:
        arrived = arrivals.arrival_seconds(np.arange(batch.start, batch.end))
        times.append(arrived)
        latencies.append(batch.committed_at - epoch - arrived)
    return np.concatenate(times or [np.empty(0)]), np.concatenate(latencies or [np.empty(0)])
