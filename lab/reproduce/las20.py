"""Figures 4 to 8 of [LAS20]: load-aware shedding on a simulated clock, with our density policy beside the paper's four.

Which tuples count: [LAS20] does not say how the time before the first sketch enters its means. Here 4,096 calm tuples
at 90 % load come first, and every mean is over the 32,768 tuples after them; what was shed or waited for during the
calm is shown apart. Averages of the constraint start with the counted tuples, for every policy alike.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from lab.reproduce.figure import Figure, Series
from lab.reproduce.las_runs import (
    BASE_LINE,
    DENSITY,
    DENSITY_LARGE,
    DENSITY_TRUE,
    DROPPED,
    EVERY,
    FULL_KNOWLEDGE,
    FULL_RUNS,
    LAS,
    SEED,
    STRAW_MAN,
    TAU_SECONDS,
    Point,
    Runs,
    run_points,
)
from lab.sim.tuple_stream import CALM_LOAD, CALM_TUPLES, TUPLES
from penstock.demo.claim import Claim

QUICK_RUNS = 60
COUNTED = f"the {TUPLES:,} tuples after a calm learning phase of {CALM_TUPLES:,} at {CALM_LOAD:.0%} load"
LATENCY = "mean queuing latency, ms"
RATIO = "drops against Base Line, λ"
LAS_ALIKE = "LAS, cells alike"


def fig4(*, full: bool) -> Figure:
    """Vary the under-provisioning from 10 % room to spare to 90 %."""
    shares = [-0.1, 0.0, 0.1, 0.25, 0.5, 0.75, 0.9]
    runs = _runs(full)
    # The same with the overload from the first tuple on, to show what learning costs then.
    at_once = Point(calm=0, tuples=TUPLES)
    results = run_points([*(Point(under_provisioned=u) for u in shares), at_once], runs=runs, seed=SEED)
    by_share = dict(zip(shares, results, strict=False))
    default = by_share[0.25]
    tau = TAU_SECONDS * 1e3
    claims = [
        Claim.equal(f"LAS: mean latency at {u:.0%}, ms", _ms(by_share[u], LAS), tau, tolerance=round(0.2 * tau, 6))
        for u in (0.1, 0.25, 0.5, 0.75)
    ]
    claims += [
        Claim.at_least(f"{name}: latency against tau at 25 %", _ms(default, name) / tau, 5)
        for name in (STRAW_MAN, BASE_LINE)
    ]
    claims += [
        Claim.at_most("LAS: drops against Full Knowledge at 25 %", _drops(default, LAS), 1.2),
        Claim.at_most("10 % room to spare: most that any policy drops",
                      max(by_share[-0.1].mean(name, "dropped") for name in EVERY), 0.01),
        Claim.at_most("10 % room to spare: highest latency of any policy, ms",
                      max(_ms(by_share[-0.1], name) for name in EVERY), tau),
        *_density_claims(default),
    ]  # fmt: skip
    learners = (FULL_KNOWLEDGE, LAS, DENSITY)
    moments = {
        "counted": [default.mean(name, "waited_seconds") for name in learners],
        "calm before": [default.mean(name, "learning_waited_seconds") for name in learners],
        "without calm": [results[-1].mean(name, "waited_seconds") for name in learners],
    }
    series = [
        *_curves(by_share, shares, EVERY, "under-provisioning"),
        *(
            Series(name, tuple(moments), tuple(of[number] * 1e3 for of in moments.values()), "at 25 %", LATENCY)
            for number, name in enumerate(learners)
        ),
    ]
    return Figure("las/fig4", _settings(runs), tuple(series), tuple(claims))


def fig5(*, full: bool) -> Figure:
    """Vary the threshold tau."""
    thresholds = [0.4, 0.8, 1.6, 3.2, 6.4, 12.8, 25.6]
    runs = _runs(full)
    points = [Point(tau_seconds=tau / 1e3) for tau in thresholds]
    by_tau = dict(zip(thresholds, run_points(points, runs=runs, seed=SEED), strict=True))
    claims = [
        Claim.at_most("Full Knowledge: worst latency against its tau",
                      max(_ms(by_tau[tau], FULL_KNOWLEDGE) / tau for tau in thresholds), 1.001),
        Claim.at_most("LAS: latency against its tau at 25.6 ms", _ms(by_tau[25.6], LAS) / 25.6, 1.0),
        Claim.at_least("Straw-Man against LAS in latency, at any tau of 0.8 ms and more",
                       min(_ms(by_tau[tau], STRAW_MAN) / _ms(by_tau[tau], LAS) for tau in thresholds[1:]), 2),
        Claim.at_most("density: worst latency against its tau, where tau is at least one highest cost",
                      max(_ms(by_tau[tau], DENSITY) / tau for tau in thresholds if tau >= 6.4), 1.0),
        Claim.at_most("density: drops against Full Knowledge, worst tau of 1.6 ms (half a mean cost) and more",
                      max(_drops(by_tau[tau], DENSITY) for tau in thresholds if tau >= 1.6), 1.0),
    ]  # fmt: skip
    shown = "log2 of tau in ms"
    at = tuple(np.log2(thresholds))
    by_log = dict(zip(at, by_tau.values(), strict=True))
    series = [
        *_curves(by_log, at, EVERY, shown, drops=False),
        Series("tau", at, tuple(np.log10(thresholds)), shown, "log10 of " + LATENCY),
        *_shedding_ratios(by_log, at, shown),
    ]
    return Figure("las/fig5", _settings(runs), tuple(series), tuple(claims))


def fig6(*, full: bool) -> Figure:
    """Vary the highest cost, with tau equal to it."""
    highest = [0.1, 0.4, 1.6, 6.4, 25.6, 51.2]
    runs = _runs(full)
    points = [Point(highest_seconds=cost / 1e3, tau_seconds=cost / 1e3) for cost in highest]
    by_cost = dict(zip(highest, run_points(points, runs=runs, seed=SEED), strict=True))
    relative = [_ms(by_cost[cost], LAS) / cost for cost in highest]
    claims = [
        Claim.at_most("LAS: largest latency against tau", max(relative), 1.2),
        Claim.at_least("LAS: smallest latency against tau", min(relative), 0.8),
        Claim.at_least("LAS: least shedding ratio (the paper: always positive)",
                       min(_ratio(by_cost[cost], LAS) for cost in highest), 0.0),
        Claim.at_most("density: drops against Full Knowledge, worst case",
                      max(_drops(by_cost[cost], DENSITY) for cost in highest), 0.8),
    ]  # fmt: skip
    shown = "highest cost = tau, ms"
    relative_latency = [
        Series(name, tuple(np.log2(highest)), tuple(_ms(by_cost[cost], name) / cost for cost in highest),
               f"log2 of {shown}", "mean queuing latency / tau")
        for name in (FULL_KNOWLEDGE, LAS, DENSITY, DENSITY_LARGE, DENSITY_TRUE)
    ]  # fmt: skip
    series = [*relative_latency, *_shedding_ratios(by_cost, highest, f"log2 of {shown}", scale=np.log2)]
    return Figure("las/fig6", _settings(runs), tuple(series), tuple(claims))


def fig7(*, full: bool) -> Figure:
    """Vary the distribution of items, from uniform to Zipf-3."""
    skews = [0.0, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0]
    runs = _runs(full)
    points = [Point(skew=skew) for skew in skews]
    by_skew = dict(zip(skews, run_points(points, runs=runs, seed=SEED), strict=True))
    alike = [Point(skew=skew, by_traffic=False) for skew in skews]
    by_skew_alike = dict(zip(skews, run_points(alike, runs=runs, policies=(LAS,), seed=SEED), strict=True))
    tau = TAU_SECONDS * 1e3
    claims = [
        Claim.at_least("Straw-Man: least latency against tau up to Zipf-1.5",
                       min(_ms(by_skew[skew], STRAW_MAN) / tau for skew in skews[:4]), 5),
        Claim.at_most("LAS: shedding ratio at Zipf-2 against the one without skew (the paper: it falls)",
                      _ratio(by_skew[2.0], LAS) / _ratio(by_skew[0.0], LAS), 1.0),
        Claim.at_most("LAS: worst latency against tau, Zipf-1 and beyond",
                      max(_ms(by_skew[skew], LAS) / tau for skew in skews if skew >= 1), 1.2),
        Claim.at_most("LAS: latency without skew against tau (the paper: its worst case)",
                      _ms(by_skew[0.0], LAS) / tau, 2.0),
        Claim.at_most("density: worst latency against tau, Zipf-1 and beyond",
                      max(_ms(by_skew[skew], DENSITY) / tau for skew in skews if skew >= 1), 1.0),
        Claim.at_most("density: drops against Full Knowledge, Zipf-1 and beyond",
                      max(_drops(by_skew[skew], DENSITY) for skew in skews if skew >= 1), 1.0),
    ]  # fmt: skip
    models = [
        Series(name, tuple(skews), tuple(by_skew[skew].mean(name, "first_model_tuples") for skew in skews),
               "Zipf exponent", "tuples before the first model")
        for name in (LAS, DENSITY)
    ]  # fmt: skip
    models.append(
        Series(LAS_ALIKE, tuple(skews), tuple(by_skew_alike[skew].mean(LAS, "first_model_tuples") for skew in skews),
               "Zipf exponent", "tuples before the first model")
    )  # fmt: skip
    latency = [
        Series(LAS_ALIKE, tuple(skews), tuple(np.log10(_ms(by_skew_alike[skew], LAS)) for skew in skews),
               "Zipf exponent", "log10 of " + LATENCY)
    ]  # fmt: skip
    series = [
        *_curves(by_skew, skews, EVERY, "Zipf exponent", drops=False),
        *latency,
        *_shedding_ratios(by_skew, skews, "Zipf exponent"),
        *models,
    ]
    return Figure("las/fig7", _settings(runs), tuple(series), tuple(claims))


def fig8(*, full: bool) -> Figure:
    """Vary the precision eps, and so the size of the sketches."""
    precisions = [1.0, 0.5, 0.2, 0.1, 0.05, 0.02, 0.01, 0.005, 0.001]
    runs = _runs(full)
    names = (FULL_KNOWLEDGE, LAS, DENSITY)
    results = run_points([Point(eps=eps) for eps in precisions], runs=runs, policies=names, seed=SEED)
    alike = run_points([Point(eps=eps, by_traffic=False) for eps in precisions], runs=runs, policies=(LAS,), seed=SEED)
    by_eps = dict(zip(precisions, results, strict=True))
    by_eps_alike = dict(zip(precisions, alike, strict=True))
    tau = TAU_SECONDS * 1e3
    learned_after = [found[0.005].mean(LAS, "first_model_tuples") for found in (by_eps, by_eps_alike)]
    claims = [
        Claim.at_most("LAS: latency at eps 1 (the paper: close to 0), ms", _ms(by_eps[1.0], LAS), 1.0),
        Claim.at_least("LAS: drops at eps 1 against eps 0.05",
                       by_eps[1.0].mean(LAS, "dropped") / by_eps[0.05].mean(LAS, "dropped"), 1.1),
        Claim.at_most("LAS: latency against tau at eps 0.05", _ms(by_eps[0.05], LAS) / tau, 1.2),
        Claim.at_most("cells weighed by traffic: tuples before the first model, eps 0.005, against cells alike",
                      learned_after[0] / learned_after[1], 1.0),
        Claim.at_most("density: tuples before its first model, whatever eps",
                      max(by_eps[eps].mean(DENSITY, "first_model_tuples") for eps in precisions), 1_100),
        Claim.at_most("density: worst latency against tau, eps 0.1 and finer",
                      max(_ms(by_eps[eps], DENSITY) / tau for eps in precisions if eps <= 0.1), 1.0),
    ]  # fmt: skip
    shown = "log10 of 1 / eps"
    at = tuple(-np.log10(precisions))
    curves = [
        Series(name, at, tuple(found[eps].mean(policy, measure) * factor for eps in precisions), shown, label)
        for label, measure, factor in (
            (LATENCY, "waited_seconds", 1e3),
            (DROPPED, "dropped", 1.0),
            ("tuples before the first model", "first_model_tuples", 1.0),
        )
        for name, policy, found in (
            (FULL_KNOWLEDGE, FULL_KNOWLEDGE, by_eps),
            (LAS, LAS, by_eps),
            (LAS_ALIKE, LAS, by_eps_alike),
            (DENSITY.split(",")[0], DENSITY, by_eps),
        )
        if not (measure == "first_model_tuples" and policy == FULL_KNOWLEDGE)
    ]
    return Figure("las/fig8", _settings(runs), tuple(curves), tuple(claims))


def _runs(full: bool) -> int:
    return FULL_RUNS if full else QUICK_RUNS


def _settings(runs: int) -> dict[str, object]:
    return {"runs": runs, "seed": SEED, "tau_ms": TAU_SECONDS * 1e3, "under_provisioned": 0.25, "counted": COUNTED}


def _ms(runs: Runs, policy: str) -> float:
    return runs.mean(policy, "waited_seconds") * 1e3


def _drops(runs: Runs, policy: str) -> float:
    """Drops of a policy against those of Full Knowledge."""
    return runs.mean(policy, "dropped") / runs.mean(FULL_KNOWLEDGE, "dropped")


def _ratio(runs: Runs, policy: str) -> float:
    """The paper's shedding ratio lambda: drops beyond those of Base Line, against them."""
    return runs.mean(policy, "dropped") / runs.mean(BASE_LINE, "dropped") - 1


def _density_claims(default: Runs) -> list[Claim]:
    tau = TAU_SECONDS * 1e3
    bounds = ((DENSITY_TRUE, 0.65), (DENSITY_LARGE, 0.75), (DENSITY, 0.80))
    claims = [
        Claim.at_most(f"{name}: drops against Full Knowledge", _drops(default, name), bound) for name, bound in bounds
    ]
    return claims + [Claim.at_most(f"{name}: latency, ms", _ms(default, name), tau) for name, _ in bounds]


def _curves(
    found: dict[float, Runs], at: Sequence[float], policies: Sequence[str], shown: str, *, drops: bool = True
) -> list[Series]:
    """Latency of all policies on a logarithmic scale of tens, and the share dropped."""
    curves = [
        Series(
            name, tuple(at), tuple(np.log10(max(_ms(found[x], name), 1e-3)) for x in at), shown, "log10 of " + LATENCY
        )
        for name in policies
    ]
    if drops:
        curves += [
            Series(name, tuple(at), tuple(found[x].mean(name, "dropped") for x in at), shown, DROPPED)
            for name in policies
        ]
    return curves


def _shedding_ratios(
    found: dict[float, Runs], at: Sequence[float], shown: str, *, scale: Callable[..., object] = np.asarray
) -> list[Series]:
    names = [name for name in EVERY if name != BASE_LINE]
    return [
        Series(name, tuple(np.asarray(scale(at), dtype=float)), tuple(_ratio(found[x], name) for x in at), shown, RATIO)
        for name in names
    ]
