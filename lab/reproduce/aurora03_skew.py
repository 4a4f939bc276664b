"""Figures 11 and 12 of [Aurora03]: what skewed utilities and sharing do to the advantage of the road map."""

from __future__ import annotations

import numpy as np

from lab.reproduce.aurora03_loss import main_network
from lab.reproduce.aurora03_trials import at_excess, trial
from lab.reproduce.figure import Figure, Series
from lab.sim.workload import shared_network
from penstock.demo.claim import Claim

SKEWS = (0.0, 0.5, 1.0, 1.5, 2.0)
EXCESSES = (0.6, 1.0, 2.0, 3.07)
SHARED_SKEWS = (0.0, 0.5, 1.0)
SHARED_EXCESSES = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0)


def seeds_of(*, full: bool) -> tuple[int, ...]:
    """Seeds of the networks: more of them at the paper's size."""
    return tuple(range(2003, 2003 + (10 if full else 4)))


def fig11(*, full: bool) -> Figure:
    """Value utility lost by Random-LS against Semantic-LS, by skew of the utilities and by rate."""
    seeds = seeds_of(full=full)
    periods = 24 if full else 8
    ratios = np.empty((len(EXCESSES), len(SKEWS)))
    for column, skew in enumerate(SKEWS):
        lost = np.zeros((len(EXCESSES), 2))
        for seed in seeds:
            network, capacity = main_network(seed, skew=skew)
            for row, excess in enumerate(EXCESSES):
                offered = at_excess(network, capacity=capacity, excess=excess)
                for which, policy in enumerate(("Random-LS", "Semantic-LS")):
                    run = trial(offered, policy, capacity=capacity, seed=seed, periods=periods)
                    lost[row, which] += run.value_loss
        ratios[:, column] = lost[:, 0] / lost[:, 1]
    claims = (
        *(
            Claim.at_least(
                f"the ratio grows with the skew at +{excess:.0%}: at θ = {SKEWS[-1]:g} against θ = 0",
                float(row[-1] / row[0]),
                1.0,
            )
            for excess, row in zip(EXCESSES, ratios, strict=True)
        ),
        Claim.at_most(
            "the ratio shrinks with the rate at every skew: at the highest rate against the lowest, at worst",
            float(np.max(ratios[-1] / ratios[0])),
            1.0,
        ),
    )
    series = tuple(
        Series(f"+{excess:.0%} load", SKEWS, tuple(row.tolist()), "skew θ of the utilities", "Random-LS / Semantic-LS")
        for excess, row in zip(EXCESSES, ratios, strict=True)
    )
    settings = {
        "seeds": list(seeds),
        "ratio": "of the value utility lost, summed over the seeds",
        "networks": f"{len(seeds)} for each skew, as in figure 9",
        "periods of the monitor": f"{periods} of 500 units, 2 of them warm-up",
    }
    return Figure(figure="aurora/fig11", settings=settings, series=series, claims=claims)


def fig12(*, full: bool) -> Figure:
    """Tuple utility lost by Input-Uniform against Random-LS, for 20 queries behind one operator."""
    seeds = seeds_of(full=full)
    periods = 24 if full else 8
    ratios = np.empty((len(SHARED_SKEWS), len(SHARED_EXCESSES)))
    for row, skew in enumerate(SHARED_SKEWS):
        lost = np.zeros((len(SHARED_EXCESSES), 2))
        for seed in seeds:
            network = shared_network(skew=skew, seed=seed, tuples_per_second=0.1)
            capacity = network.load()
            for column, excess in enumerate(SHARED_EXCESSES):
                offered = at_excess(network, capacity=capacity, excess=excess)
                for which, policy in enumerate(("Input-Uniform", "Random-LS")):
                    run = trial(offered, policy, capacity=capacity, seed=seed, periods=periods)
                    lost[column, which] += run.tuple_loss
        ratios[row] = lost[:, 0] / lost[:, 1]
    peak = ratios.max(axis=1)
    claims = (
        *(
            Claim.at_least(
                f"the ratio grows with the skew at +{excess:.0%}: θ = {SHARED_SKEWS[-1]:g} against θ = 0",
                float(ratios[-1, column] / ratios[0, column]),
                1.0,
            )
            for column, excess in enumerate(SHARED_EXCESSES[:-1])
        ),
        Claim.at_least("Random-LS never loses more than Input-Uniform: least ratio", float(ratios.min()), 1.0),
        Claim.at_most(
            "the ratio shrinks at extreme excess, at every skew: at the highest against the largest, at worst",
            float(np.max(ratios[:, -1] / peak)),
            0.99,
        ),
    )
    names = tuple(f"+{excess:.0%}" for excess in SHARED_EXCESSES)
    series = tuple(
        Series(f"θ = {skew:g}", names, tuple(row.tolist()), "excess load", "Input-Uniform / Random-LS")
        for skew, row in zip(SHARED_SKEWS, ratios, strict=True)
    )
    settings = {
        "seeds": list(seeds),
        "ratio": "of the tuple utility lost, summed over the seeds",
        "network": "one input, one common operator, 20 queries of two filters that pass all",
        "value intervals": "[0, 75] Zipf(θ) over 0.1, 0.2, ... 1.0, low ones likelier; [76, 100] worth 1",
        "periods of the monitor": f"{periods} of 500 units, 2 of them warm-up",
    }
    return Figure(figure="aurora/fig12", settings=settings, series=series, claims=claims)
