"""Many simulated runs per point of a figure, on all cores, and their means."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context

import numpy as np
from numpy.typing import NDArray

from lab.sim.tuple_queue import simulate
from lab.sim.tuple_stream import CALM_TUPLES, HIGHEST_SECONDS, TUPLES, TupleStream
from penstock.policy.rows.constraint import AverageLatency
from penstock.policy.rows.density import Density
from penstock.policy.rows.load_aware import BaseLine, FullKnowledge, Learning, LoadAware, StrawMan
from penstock.policy.rows.sequence import TuplePolicy

SEED = 2020
DROPPED = "share of tuples dropped"
TAU_SECONDS = 6.4e-3
FULL_RUNS = 5_000
PROGRESS_FROM_JOBS = 100
# Sketches of 64 KB: 4 x 1,024 cells of two doubles.
LARGE_EPS = 0.002655

BASE_LINE, STRAW_MAN, FULL_KNOWLEDGE, LAS = "Base Line", "Straw-Man", "Full Knowledge", "LAS"
DENSITY, DENSITY_LARGE, DENSITY_TRUE = "density (ours), 4 x 55", "density (ours), 64 KB", "density (ours), true costs"
EVERY = (BASE_LINE, STRAW_MAN, FULL_KNOWLEDGE, LAS, DENSITY, DENSITY_LARGE, DENSITY_TRUE)
MEASURES = ("waited_seconds", "dropped", "learning_waited_seconds", "first_model_tuples")


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One setting of the simulation; the defaults are the paper's."""

    under_provisioned: float = 0.25
    tau_seconds: float = TAU_SECONDS
    highest_seconds: float = HIGHEST_SECONDS
    skew: float = 1.0
    eps: float = 0.05
    by_traffic: bool = True
    tuples: int = TUPLES
    calm: int = CALM_TUPLES

    def policies(self, stream: TupleStream, seed: int) -> dict[str, TuplePolicy]:
        """Make every policy for a stream, with hash functions of its own."""
        learning = Learning(eps=self.eps, by_traffic=self.by_traffic, seed=seed)
        eager = Learning(eps=self.eps, seed=seed, eager=True, sync_every_tuples=8)
        large = Learning(eps=min(self.eps, LARGE_EPS), seed=seed, eager=True, sync_every_tuples=8)
        return {
            BASE_LINE: BaseLine(keep=1 - max(0.0, self.under_provisioned)),
            STRAW_MAN: StrawMan(mean_seconds=stream.mean_seconds),
            FULL_KNOWLEDGE: FullKnowledge(),
            LAS: LoadAware(learning=learning),
            DENSITY: Density(learning=eager),
            DENSITY_LARGE: Density(learning=large),
            DENSITY_TRUE: Density(true_costs=True),
        }


@dataclass(frozen=True, slots=True)
class Runs:
    """Outcomes of all runs at one point: policy to an array of runs by :data:`MEASURES`."""

    outcomes: Mapping[str, NDArray[np.float64]]

    def mean(self, policy: str, measure: str) -> float:
        """Mean over the runs."""
        return float(np.nanmean(self._of(policy, measure)))

    def extremes(self, policy: str, measure: str) -> tuple[float, float]:
        """Least and largest value of a single run."""
        values = self._of(policy, measure)
        return float(np.nanmin(values)), float(np.nanmax(values))

    def _of(self, policy: str, measure: str) -> NDArray[np.float64]:
        return self.outcomes[policy][:, MEASURES.index(measure)]


def run_points(points: Sequence[Point], *, runs: int, policies: Sequence[str] = EVERY, seed: int) -> list[Runs]:
    """Run all policies on ``runs`` streams at each point, side by side on all cores where that pays."""
    share = max(1, min(50, runs // 4))
    starts = range(0, runs, share)
    jobs = [(point, tuple(policies), seed + start, min(share, runs - start)) for point in points for start in starts]
    results = spread(_run_share, jobs, serial=runs * len(points) <= 40)
    gathered = []
    for number in range(len(points)):
        shares = results[number * len(starts) : (number + 1) * len(starts)]
        gathered.append(Runs({name: np.concatenate([part[name] for part in shares]) for name in policies}))
    return gathered


def spread(work: Callable[..., object], jobs: Sequence[tuple[object, ...]], *, serial: bool) -> list:  # type: ignore[type-arg]
    """Do the jobs in order, on all cores unless there are too few of them."""
    cores = os.cpu_count() or 1
    if serial or cores == 1:
        return [work(job) for job in jobs]
    with ProcessPoolExecutor(cores, mp_context=get_context("spawn")) as pool:
        done = []
        for result in pool.map(work, jobs):
            done.append(result)
            if len(jobs) >= PROGRESS_FROM_JOBS and len(done) % (len(jobs) // 20) == 0:
                print(f"{len(done) / len(jobs):.0%} of {len(jobs):,} parts", file=sys.stderr, flush=True)
        return done


def _run_share(job: tuple[Point, tuple[str, ...], int, int]) -> dict[str, NDArray[np.float64]]:
    point, policies, first_seed, runs = job
    found: dict[str, list[tuple[float, ...]]] = {name: [] for name in policies}
    constraint = AverageLatency(seconds=point.tau_seconds)
    for seed in range(first_seed, first_seed + runs):
        stream = TupleStream.draw(
            seed=seed,
            under_provisioned=point.under_provisioned,
            skew=point.skew,
            highest_seconds=point.highest_seconds,
            tuples=point.tuples,
            calm=point.calm,
        )
        every = point.policies(stream, seed)
        for name in policies:
            outcome = simulate(every[name], stream, constraint, seed=seed)
            learning = outcome.waited_seconds[: point.calm]
            waited_learning = float(np.nanmean(learning)) if (~np.isnan(learning)).any() else np.nan
            model = np.nan if outcome.first_model is None else float(outcome.first_model)
            found[name].append((outcome.mean_waited_seconds, outcome.dropped, waited_learning, model))
    return {name: np.array(values) for name, values in found.items()}
