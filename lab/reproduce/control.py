"""How well the controller does on machines that change: against one who knows them, and against plain feedback."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import t as student

from lab.reproduce.figure import Figure, Series
from lab.sim.engine import Engine
from lab.sim.machine import Machine
from lab.sim.pilots import Clairvoyant, Feedback
from penstock.control.cost import CostModel
from penstock.control.governor import Governor
from penstock.demo.claim import Claim
from penstock.model.arrivals import Arrivals
from penstock.model.batch import Batch
from penstock.model.load import Cost

SEED = 1
LATENCY_SECONDS, TRIGGER_SECONDS = 5.0, 1.0
# On Spark a plan is made right after the commit of the batch before, of which it knows nothing yet.
LAG_BATCHES = 1
QUIET_SECONDS, BURST_SECONDS, AFTER_SECONDS = 40.0, 60.0, 40.0
BURST = 3.0  # times what the machine can do
# What waited at the end of the burst is worked off in the first seconds after it.
SETTLING_SECONDS = 10.0
CONFIDENCE = 0.95
PENSTOCK, CLAIRVOYANT, FEEDBACK = "Penstock", "clairvoyant", "feedback"
PILOTS: dict[str, Callable[..., Engine]] = {PENSTOCK: Engine, CLAIRVOYANT: Clairvoyant, FEEDBACK: Feedback}
TRACES = Path(__file__).with_name("traces")

COST = Cost(fixed_seconds=0.2, kept_seconds=1e-4, shed_seconds=2e-6)
DEAR = Cost(fixed_seconds=1.2, kept_seconds=1e-4, shed_seconds=2e-6)


@dataclass(frozen=True, slots=True)
class Case:
    """A machine, what arrives at it, and the least share of the clairvoyant's rows that is claimed to be kept."""

    machine: Callable[[int], Machine]
    arrivals: Arrivals
    burst: tuple[float, float]
    kept: float = 0.88
    trigger_seconds: float = TRIGGER_SECONDS
    latency_seconds: float = LATENCY_SECONDS


def around_a_burst(cost: Cost, *, quiet: float) -> tuple[Arrivals, tuple[float, float]]:
    """Lay out a quiet stream with a burst, both in shares of the rows that the machine can take in."""
    rows_per_second = 1 / cost.kept_seconds
    arrivals = Arrivals.of(
        (QUIET_SECONDS, quiet * rows_per_second),
        (BURST_SECONDS, BURST * rows_per_second),
        (AFTER_SECONDS, quiet * rows_per_second),
    )
    return arrivals, (QUIET_SECONDS, QUIET_SECONDS + BURST_SECONDS)


def made(cost: Cost, *, quiet: float = 0.5, kept: float = 0.88, **machine: Any) -> Case:
    """Make a case from what a machine is like."""
    arrivals, burst = around_a_burst(cost, quiet=quiet)
    return Case(lambda seed: Machine(cost, seed=seed, **machine), arrivals, burst, kept)


def neighbour(seconds: float) -> float:
    """Slow a machine of two cores down while another process keeps one of them busy, in phases of ten seconds."""
    return 1.5 if seconds % 20 < 10 else 1.0


def warm_up(seconds: float) -> float:
    """Let costs fall to a third while Java compiles."""
    return 1 + 2 * math.exp(-seconds / 20)


CASES: dict[str, Case] = {
    "steady": made(COST, noise=0.1),
    "warm-up": made(COST, quiet=0.3, noise=0.1, slowdown=warm_up, start_up_seconds=5.0),
    "neighbour": made(COST, noise=0.1, slowdown=neighbour),
    "dear fixed cost": made(DEAR, quiet=0.3, kept=0.8, noise=0.1),
    "heavy noise, stalls": made(COST, kept=0.8, noise=0.3, stall_share=0.04),
}


def control(*, full: bool, seeds: int = 40) -> Figure:
    """Run every pilot on every machine, with the same arrivals and the same luck."""
    cases = CASES | {f"trace: {name}": case for name, case in recorded().items()}
    found = {
        name: {pilot: _measured(case, pilot, seeds=seeds if full else min(seeds, 10)) for pilot in PILOTS}
        for name, case in cases.items()
    }
    claims = [claim for name, case in cases.items() for claim in _claims(name, case, found[name])]
    against: dict[str, Callable[[dict[str, Measured], str], NDArray[np.float64]]] = {
        "rows kept in the burst, against the clairvoyant": lambda by, pilot: by[pilot].kept / by[CLAIRVOYANT].kept,
        "share of late batches": lambda by, pilot: by[pilot].late,
        "share shed outside the burst": lambda by, pilot: by[pilot].shed_in_quiet,
    }
    series = [
        Series(pilot, tuple(cases), tuple(float(measure(by, pilot).mean()) for by in found.values()), "machine", label)
        for label, measure in against.items()
        for pilot in PILOTS
    ]
    settings = {
        "seeds": f"{SEED} to {SEED + (seeds if full else min(seeds, 10)) - 1}",
        "latency_seconds": LATENCY_SECONDS,
        "trigger_seconds": TRIGGER_SECONDS,
        "burst": f"{BURST:g} times what the machine can do, for {BURST_SECONDS:g} s",
        "guidance_lag_batches": LAG_BATCHES,
        "late": "arrival to commit of a batch's oldest row beyond the target",
        "intervals": f"{CONFIDENCE:.0%} of the mean over seeds, by Student's t",
    }
    return Figure("ours/control", settings, tuple(series), tuple(claims))


@dataclass(frozen=True, slots=True)
class Measured:
    """What a pilot did, by seed: rows kept in the burst, share of late batches, share shed outside the burst."""

    kept: NDArray[np.float64]
    late: NDArray[np.float64]
    shed_in_quiet: NDArray[np.float64]


def _measured(case: Case, pilot: str, *, seeds: int) -> Measured:
    runs = [_run(case, pilot, seed=seed) for seed in range(SEED, SEED + seeds)]
    begin, end = case.burst
    kept, late, shed = [], [], []
    for batches in runs:
        kept.append(sum(batch.kept for batch in batches if begin <= _start(batch) < end))
        late.append(np.mean([(batch.latency_seconds or 0.0) > case.latency_seconds for batch in batches]))
        quiet = [b for b in batches if _start(b) < begin or _start(b) >= end + SETTLING_SECONDS]
        shed.append(sum(batch.shed for batch in quiet) / max(1, sum(batch.offered for batch in quiet)))
    return Measured(np.array(kept, dtype=float), np.array(late, dtype=float), np.array(shed, dtype=float))


def _run(case: Case, pilot: str, *, seed: int) -> list[Batch]:
    engine = PILOTS[pilot](
        case.arrivals,
        Governor(latency_seconds=case.latency_seconds),
        case.machine(seed),
        trigger_seconds=case.trigger_seconds,
        guidance_lag_batches=LAG_BATCHES,
    )
    return engine.run()


def _start(batch: Batch) -> float:
    return batch.started_at or 0.0


def _claims(name: str, case: Case, by: dict[str, Measured]) -> list[Claim]:
    ours, best = by[PENSTOCK], by[CLAIRVOYANT]
    share, share_off = _mean(ours.kept / best.kept)
    late, late_off = _mean(ours.late)
    extra, extra_off = _mean(ours.shed_in_quiet - best.shed_in_quiet)
    return [
        Claim.at_least(f"{name}: rows kept against the clairvoyant's (± {share_off:.3f})", share, case.kept),
        Claim.at_most(
            f"{name}: share of late batches (± {late_off:.3f}), against 5 % or the clairvoyant's own",
            late,
            max(0.05, round(float(best.late.mean()), 4)),
        ),
        Claim.at_most(f"{name}: share shed in quiet beyond the clairvoyant's (± {extra_off:.3f})", extra, 0.02),
    ]


def _mean(values: NDArray[np.float64]) -> tuple[float, float]:
    """Mean, and half of the interval around it."""
    spread = float(values.std(ddof=1)) / math.sqrt(values.size)
    return float(values.mean()), float(student.ppf((1 + CONFIDENCE) / 2, values.size - 1)) * spread


# --- traces ---------------------------------------------------------------------------------------


def recorded(folder: Path = TRACES) -> dict[str, Case]:
    """Read the traces of real runs, as ``python -m benchmarks.traces`` records them.

    A trace tells how many times as long each batch took as one like it takes on the machine as it was at the end. A
    batch of the simulation takes so many times as long as the one that ran at that second. What arrives is what
    arrived: a batch takes in all that came since the one before was put together.
    """
    return {path.stem: _case(json.loads(path.read_text(encoding="utf-8"))) for path in sorted(folder.glob("*.json"))}


def _case(trace: dict[str, Any]) -> Case:
    started, offered, kept, seconds, overhead = np.array(trace["batches"], dtype=float).T
    model = CostModel()
    for position in range(started.size):
        model.learn(
            kept=kept[position],
            shed=offered[position] - kept[position],
            seconds=seconds[position],
            overhead_seconds=overhead[position],
        )
    forecast = model.forecast()
    assert forecast is not None  # noqa: S101 - a trace has enough batches
    cost = forecast.cost
    factors = seconds / np.array([cost.of(kept=k, shed=o - k) for o, k in zip(offered, kept, strict=True)])
    overhead_share = float(np.median(overhead)) / cost.fixed_seconds

    def machine(seed: int) -> Machine:
        # Another seed meets the same machine a little earlier or later.
        shift = float(np.random.default_rng(seed).uniform(-2.0, 2.0))
        return Machine(
            cost,
            slowdown=lambda at: float(factors[_at(started, at + shift)]),
            overhead_share=min(1.0, overhead_share),
            seed=seed,
        )

    gaps = np.diff(started, prepend=0.0)
    arrivals = Arrivals.of(*((float(gap), rows / gap) for gap, rows in zip(gaps, offered, strict=True) if gap > 0))
    begin, end = trace["burst_seconds"]
    return Case(machine, arrivals, (begin, end), 0.88, trace["trigger_seconds"], trace["latency_seconds"])


def _at(started: NDArray[np.float64], seconds: float) -> int:
    return max(0, min(int(np.searchsorted(started, seconds, side="right")) - 1, started.size - 1))
