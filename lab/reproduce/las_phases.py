"""Figure 9 of [LAS20]: seven phases in which load, items and costs change abruptly, on a simulated clock."""

from __future__ import annotations

import numpy as np

from lab.reproduce.figure import Figure, Series
from lab.reproduce.las_runs import DENSITY, DROPPED, FULL_KNOWLEDGE, FULL_RUNS, LAS, SEED, STRAW_MAN, spread
from lab.sim.tuple_queue import simulate
from lab.sim.tuple_stream import PHASE_TUPLES, PHASES, seven_phases
from penstock.demo.claim import Claim
from penstock.policy.rows.constraint import AverageLatency
from penstock.policy.rows.density import Density
from penstock.policy.rows.load_aware import FullKnowledge, Learning, LoadAware, StrawMan
from penstock.policy.rows.sequence import TuplePolicy

QUICK_RUNS = 60
SERIES_TAU_SECONDS = 0.064
SERIES_WINDOW = 4_000


def fig9(*, full: bool) -> Figure:
    """Follow seven phases of 20,000 tuples with tau = 64 ms, in jumping windows of 4,000."""
    runs = FULL_RUNS if full else QUICK_RUNS
    jobs = [(seed,) for seed in range(SEED, SEED + runs)]
    every = spread(_seven_phases, jobs, serial=runs <= 10)
    means = {name: np.mean([one[name] for one in every], axis=0) for name in every[0]}
    per_phase = PHASE_TUPLES // SERIES_WINDOW
    tau = SERIES_TAU_SECONDS

    def phase(name: str, letter: str) -> np.ndarray:
        first = PHASES.index(letter) * per_phase
        waited: np.ndarray = means[name][0, first : first + per_phase]
        return waited

    in_b = slice(per_phase, 2 * per_phase)
    overall = {name: float((found[0] * (1 - found[1])).sum() / (1 - found[1]).sum()) for name, found in means.items()}
    claims = [
        Claim.at_most("phase F: LAS at its end against its worst window",
                      phase(LAS, "F")[-1] / phase(LAS, "F").max(), 0.2),
        Claim.at_least("phase F: Straw-Man at its end against its worst window",
                       phase(STRAW_MAN, "F")[-1] / phase(STRAW_MAN, "F").max(), 1.0),
        Claim.at_least("phase F: Straw-Man at its end against LAS",
                       phase(STRAW_MAN, "F")[-1] / phase(LAS, "F")[-1], 10),
        Claim.at_most("phase G: LAS at its end against tau", phase(LAS, "G")[-1] / tau, 1.2),
        Claim.at_least("phase G: Straw-Man at its end against tau", phase(STRAW_MAN, "G")[-1] / tau, 100),
        Claim.at_most("phases B, C, D: worst window of LAS after the first of each, against tau",
                      max(phase(LAS, letter)[1:].max() for letter in "BCD") / tau, 1.2),
        Claim.at_most("density: mean over the whole stream against tau", overall[DENSITY] / tau, 1.0),
        Claim.at_most("phase F: density's worst window against LAS's",
                      phase(DENSITY, "F").max() / phase(LAS, "F").max(), 0.2),
        Claim.at_most("phase B: density drops against Full Knowledge",
                      means[DENSITY][1, in_b].mean() / means[FULL_KNOWLEDGE][1, in_b].mean(), 0.85),
    ]  # fmt: skip
    at = tuple((np.arange(len(PHASES) * per_phase) + 1.0) * SERIES_WINDOW / 1e3)
    shown = f"thousands of tuples; phases {PHASES[0]} to {PHASES[-1]} of {PHASE_TUPLES // 1000} each"
    series = [
        Series(name, at, tuple(np.log10(np.maximum(found[0] * 1e3, 0.1))), shown, "log10 of queuing latency in ms")
        for name, found in means.items()
    ]
    series += [Series(name, at, tuple(found[1]), shown, DROPPED) for name, found in means.items()]
    settings = {
        "runs": runs, "seed": SEED, "tau_ms": tau * 1e3, "tuples": PHASE_TUPLES * len(PHASES),
        "counted": "all tuples, the learning phase included (it lies in phase A)", "window_tuples": SERIES_WINDOW,
    }  # fmt: skip
    return Figure("las/fig9", settings, tuple(series), tuple(claims))


LAS_PUBLISHED = "LAS, as published"


def _seven_phases(job: tuple[int]) -> dict[str, np.ndarray]:
    (seed,) = job
    stream = seven_phases(seed=seed)
    constraint = AverageLatency(seconds=SERIES_TAU_SECONDS)
    policies: dict[str, TuplePolicy] = {
        STRAW_MAN: StrawMan(mean_seconds=float(stream.costs_seconds[:PHASE_TUPLES].mean())),
        FULL_KNOWLEDGE: FullKnowledge(),
        LAS: LoadAware(learning=Learning(seed=seed)),
        LAS_PUBLISHED: LoadAware(learning=Learning(seed=seed, sync_every_tuples=0)),
        DENSITY: Density(learning=Learning(seed=seed, eager=True, sync_every_tuples=8)),
    }
    return {
        name: np.array(simulate(policy, stream, constraint, seed=seed).windows(SERIES_WINDOW))
        for name, policy in policies.items()
    }
