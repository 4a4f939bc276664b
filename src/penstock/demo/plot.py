"""Draw latency and keep rate over the time of the demo."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from penstock.demo.run import Outcome
from penstock.demo.timetable import phase_edges
from penstock.model.errors import EnvironmentMissingError

COLOURS = ("tab:orange", "tab:blue")


def require_matplotlib() -> None:
    """Refuse to go on without matplotlib, before anything is computed in vain."""
    try:
        import matplotlib as mpl
    except ImportError as cause:
        raise EnvironmentMissingError("plots need an extra package; run: pip install 'penstock[plot]'") from cause
    mpl.use("Agg")


def plot_demo(outcomes: list[Outcome], path: Path, *, latency_seconds: float) -> None:
    """Write a PNG: latency of the rows above, the rows that arrive and those that are kept below."""
    require_matplotlib()
    from matplotlib import pyplot as plt

    figure, (latency, rates) = plt.subplots(
        2, 1, sharex=True, figsize=(9, 6), height_ratios=[3, 2], layout="constrained"
    )
    plain, shed = outcomes
    burst = phase_edges(shed.arrivals.total_seconds)[1]
    for axes in (latency, rates):
        axes.axvspan(*burst, color="0.92", zorder=0)
        axes.spines[["top", "right"]].set_visible(False)
    for outcome, colour in zip(outcomes, COLOURS, strict=True):
        step = max(1, len(outcome.arrival_seconds) // 4000)
        arrived, waited = outcome.arrival_seconds[::step], outcome.waited_seconds[::step]
        answered = np.isfinite(outcome.latency_seconds[::step])
        latency.plot(arrived, np.where(answered, waited, np.nan), color=colour, label=outcome.name, lw=1.5)
        if not answered.all():
            label = f"{outcome.name}: no answer yet when stopped"
            latency.plot(arrived, np.where(answered, np.nan, waited), color=colour, ls=":", label=label, lw=1.5)
    latency.axhline(latency_seconds, color="tab:red", ls="--", lw=1, label=f"target {latency_seconds:g} s")
    latency.set_ylim(bottom=0)
    latency.set_ylabel("latency of a row (s)")
    figure.suptitle("A burst of three times what Spark does: rows by time of arrival", x=0.01, ha="left")
    # Above the axes, where no line is in its way.
    latency.legend(frameon=False, loc="lower left", bbox_to_anchor=(0, 1), ncols=4)
    latency.text(burst[0] + 0.4, 0.97, "burst", transform=latency.get_xaxis_transform(), va="top", color="0.4")

    phases = shed.arrivals.phases
    edges = np.cumsum([0.0, *(phase.seconds for phase in phases)])
    rates.stairs([phase.tuples_per_second for phase in phases], edges, color="0.5", label="arriving")
    for outcome, colour in zip(outcomes, COLOURS, strict=True):
        if not (batches := outcome.batches):
            continue
        ended = [batches[0].started_seconds, *(batch.committed_seconds for batch in batches)]
        rates.stairs([b.kept for b in batches] / np.diff(ended), ended, color=colour, label=f"kept by {outcome.name}")
    rates.set_ylabel("rows a second")
    rates.set_xlabel("seconds since the stream began")
    rates.set_xlim(0, max(shed.arrivals.total_seconds, plain.stopped_seconds))
    rates.legend(frameon=False, loc="upper left")
    figure.savefig(path, dpi=120)
    plt.close(figure)
