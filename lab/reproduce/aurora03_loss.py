"""Figures 9 and 10 of [Aurora03]: utility lost by each policy as the input rates rise."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from lab.reproduce.aurora03_trials import BOUNDARY, POLICIES, at_excess, trial
from lab.reproduce.figure import Figure, Series
from lab.sim.workload import Workload, random_network
from penstock.demo.claim import Claim
from penstock.model.network import Network

# From +22 % to +307 % of the capacity, as in the paper.
EXCESSES = (0.22, 0.6, 1.0, 2.0, 3.07)
LOWEST_RATE = 0.1  # tuples per unit of time at the lowest excess: an inter-arrival time of 10

Losses = dict[str, np.ndarray]


def fig9(*, full: bool) -> Figure:
    """Tuple utility: what the loss-tolerance graphs say."""
    losses, busy, settings = _losses("tuple_loss", full=full)
    semantic, random, uniform = losses["Semantic-LS"], losses["Random-LS"], losses["Input-Uniform"]
    cost_uniform, cost_top, drawn = losses["Input-Cost-Uniform"], losses["Input-Cost-Top"], losses["Input-Random"]
    admitting = np.array([uniform, cost_uniform, cost_top, drawn])
    even = _even_losses(full=full)
    claims = (
        _below("Semantic-LS loses less than Random-LS at every rate", semantic - random),
        _below("Random-LS loses less than all four kinds of admission control at every rate", random - admitting),
        _below("Input-Uniform loses less than Input-Cost-Top at the highest rate", uniform[-1:] - cost_top[-1:]),
        _below("Input-Uniform loses less than Input-Random at the highest rate", uniform[-1:] - drawn[-1:]),
        # Where inputs differ in the work behind them, dropping the dear ones first loses few tuples for much work.
        _below(
            "where every input has the same work behind it, Input-Uniform loses less than Input-Cost-Top",
            np.array([even["Input-Uniform"] - even["Input-Cost-Top"]]),
        ),
        _below(
            "where every input has the same work behind it, Input-Uniform loses less than Input-Random",
            np.array([even["Input-Uniform"] - even["Input-Random"]]),
        ),
        Claim.at_most(
            "Input-Cost-Uniform is as good as Input-Uniform at the lowest rate: points apart",
            float(abs(cost_uniform[0] - uniform[0])),
            2.0,
        ),
        _below(
            "Input-Uniform is closer to Random-LS at the lowest rate than at the highest: change of the distance",
            np.array([(uniform[0] - random[0]) - (uniform[-1] - random[-1])]),
        ),
        Claim.at_most("the machine was never asked for more than it has: largest part of it used", busy, 1.01),
    )
    return _figure("aurora/fig9", "tuple utility lost, %", losses, claims, settings)


def fig10(*, full: bool) -> Figure:
    """Value utility: what the values delivered are worth."""
    losses, busy, settings = _losses("value_loss", full=full)
    others = np.array([loss for name, loss in losses.items() if name != "Semantic-LS"])
    claims = (
        _below("Semantic-LS loses less than every other policy at every rate", losses["Semantic-LS"] - others),
        Claim.at_most(
            "clearly: its loss against the next best, at worst",
            float(np.max(losses["Semantic-LS"] / others.min(axis=0))),
            0.8,
        ),
        Claim.at_most("the machine was never asked for more than it has: largest part of it used", busy, 1.01),
    )
    return _figure("aurora/fig10", "value utility lost, %", losses, claims, settings)


def _even_losses(*, full: bool) -> dict[str, float]:
    """Losses at the highest rate in networks without unions: five chains of nine filters, one input each."""
    lost: dict[str, list[float]] = {"Input-Uniform": [], "Input-Cost-Top": [], "Input-Random": []}
    for seed in _seeds(full=full):
        workload = Workload(unions=0, filters=45, tightest=0.05, boundary=BOUNDARY)
        network = random_network(workload, seed=seed, tuples_per_second=LOWEST_RATE)
        capacity = network.load() / (1 + EXCESSES[0])
        offered = at_excess(network, capacity=capacity, excess=EXCESSES[-1])
        for name, found in lost.items():
            found.append(trial(offered, name, capacity=capacity, seed=seed, periods=8).tuple_loss)
    return {name: float(np.mean(found)) for name, found in lost.items()}


def _seeds(*, full: bool) -> tuple[int, ...]:
    return tuple(range(2003, 2003 + (10 if full else 4)))


def _losses(metric: Literal["tuple_loss", "value_loss"], *, full: bool) -> tuple[Losses, float, dict[str, Any]]:
    seeds = _seeds(full=full)
    periods = 24 if full else 8
    found: dict[str, list[list[float]]] = {name: [] for name in POLICIES}
    busy = 0.0
    for seed in seeds:
        network, capacity = main_network(seed)
        rows: dict[str, list[float]] = {name: [] for name in POLICIES}
        for excess in EXCESSES:
            offered = at_excess(network, capacity=capacity, excess=excess)
            for name in POLICIES:
                run = trial(offered, name, capacity=capacity, seed=seed, periods=periods)
                rows[name].append(getattr(run, metric))
                busy = max(busy, run.busy)
        for name, row in rows.items():
            found[name].append(row)
    settings = {
        "seeds": list(seeds),
        "networks": f"{len(seeds)}: 5 queries of equal size, 34 filters, 13 unions, 18 inputs, no sharing",
        "excess load": ", ".join(f"+{excess:.0%}" for excess in EXCESSES),
        "periods of the monitor": f"{periods} of 500 units, 2 of them warm-up",
        "value intervals": f"[0, {BOUNDARY - 1:g}] worth 0.1 to 1 (uniform), [{BOUNDARY:g}, 100] worth 1",
        "cost of an operator": "1 unit; the paper does not say",
    }
    return {name: np.mean(rows, axis=0) for name, rows in found.items()}, busy, settings


def main_network(seed: int, *, skew: float = 0.0) -> tuple[Network, float]:
    """Draw the network of sections 6.1 to 6.3, and the capacity that its lowest rate exceeds by 22 %."""
    network = random_network(Workload(skew=skew, boundary=BOUNDARY), seed=seed, tuples_per_second=LOWEST_RATE)
    return network, network.load() / (1 + EXCESSES[0])


def _below(text: str, differences: np.ndarray) -> Claim:
    worst = float(np.max(differences))
    return Claim(f"{text}; points, at worst", worst, "< 0", worst < 0)


def _figure(name: str, label: str, losses: Losses, claims: tuple[Claim, ...], settings: dict[str, Any]) -> Figure:
    rates = tuple(LOWEST_RATE * (1 + excess) / (1 + EXCESSES[0]) for excess in EXCESSES)
    series = tuple(
        Series(policy, rates, tuple(float(y) for y in row), "mean rate, tuples per unit of time and input", label)
        for policy, row in losses.items()
    )
    return Figure(figure=name, settings=settings, series=series, claims=claims)
