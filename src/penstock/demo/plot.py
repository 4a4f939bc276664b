"""Draw latency and keep rate over the time of the demo."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from penstock.demo.run import Outcome
from penstock.demo.timetable import phase_edges
from penstock.model.arrivals import Arrivals
from penstock.reproduce.plot import require_matplotlib


def plot_demo(outcomes: list[Outcome], arrivals: Arrivals, path: Path, *, latency_seconds: float) -> None:
    """Write a PNG: latency of the clicks above, offered load and kept share below."""
    require_matplotlib()
    from matplotlib import pyplot as plt

    figure, (latency, keep) = plt.subplots(
        2, 1, sharex=True, figsize=(9, 6), height_ratios=[3, 2], layout="constrained"
    )
    burst = phase_edges(arrivals)[1]
    for axes in (latency, keep):
        axes.axvspan(*burst, color="0.92", zorder=0)
        axes.spines[["top", "right"]].set_visible(False)
    for outcome, colour in zip(outcomes, ("tab:orange", "tab:blue"), strict=True):
        step = max(1, len(outcome.arrival_seconds) // 4000)
        latency.plot(
            outcome.arrival_seconds[::step], outcome.latency_seconds[::step], color=colour, label=outcome.name, lw=1.5
        )
    latency.axhline(latency_seconds, color="tab:red", ls="--", lw=1, label=f"target {latency_seconds:g} s")
    latency.set_yscale("log")
    latency.set_ylabel("latency of a click (s, log)")
    latency.set_title("A burst of five times the load: clicks by time of arrival", loc="left")
    latency.legend(frameon=False, loc="upper left")

    shed_run = outcomes[-1]
    ends = np.array([batch.end for batch in shed_run.committed])
    shares = {batch.batch_id: batch.kept_share for batch in shed_run.batches if batch.offered}
    arrived = shed_run.arrival_seconds[np.minimum(ends, len(shed_run.arrival_seconds)) - 1]
    keep.step(arrived, list(shares.values())[: len(arrived)], where="pre", color="tab:blue", lw=1.5)
    keep.set_ylim(0, 1.05)
    keep.set_ylabel("share kept by Penstock")
    keep.set_xlabel("arrival, seconds since the stream began")
    latency.text(sum(burst) / 2, latency.get_ylim()[0] * 1.2, "burst", ha="center", color="0.4")
    figure.savefig(path, dpi=120)
    plt.close(figure)
