"""Figs. 9 and 10 of [CoD18]: the error of Concept-Driven shedding against Uniform, at the same processed volume."""

from __future__ import annotations

import numpy as np

from lab.reproduce.cod_error import Errors, errors_of
from lab.reproduce.cod_join import JoinErrors, join_errors
from lab.reproduce.cod_streams import Stream, routes, scalar, scheduling_classes, users
from lab.reproduce.figure import Figure, Series
from penstock.demo.claim import Claim
from penstock.policy.baseline import Uniform
from penstock.policy.contract import Policy
from penstock.policy.strata.concept import ConceptDriven
from penstock.policy.strata.scalar import ScalarConcept
from penstock.sketch.reservoir import Reservoir

SEED = 18
# Shares processed in Fig. 10: the paper sheds 98, 90, 75 and 50 %.
VOLUMES = (0.02, 0.1, 0.25, 0.5)
JOIN_KEEP = 0.02
ERROR_WANTED = 0.1


def fig9(*, full: bool) -> Figure:
    """Mean and 95th percentile of the error by stream, and of a join."""
    seeds, most = range(SEED, SEED + (10 if full else 3)), 1_000 if full else 12
    claims: list[Claim] = []
    series: list[Series] = []
    means: dict[str, list[float]] = {}
    p95s: dict[str, list[float]] = {}
    names: list[str] = []
    settings: dict[str, object] = {"seeds": list(seeds)}
    bounds = {"user": 0.1, "class": 1 / 3, "route": 0.1}
    for stream in (users(), routes(), scheduling_classes(), scalar()):
        found = errors_of(stream, _policies(stream.keep), seeds=seeds, most_windows=most)
        names.append(stream.name.split()[-1])
        settings[stream.name] = _told(stream, found)
        for policy, errors in found.items():
            means.setdefault(policy, []).append(errors.mean)
            p95s.setdefault(policy, []).append(errors.p95)
        claims += _stream_claims(stream, found, bounds.get(stream.name.split()[-1]))
    for label, measured in (("mean relative error, %", means), ("95th percentile of the error, %", p95s)):
        series += [
            Series(policy, tuple(names), tuple(100 * error for error in each), "stream", label)
            for policy, each in measured.items()
        ]
    joined = join_errors(keep=JOIN_KEEP, seeds=seeds, most_windows=most)
    settings["join"] = joined.told(JOIN_KEEP)
    series += _join_series(joined)
    claims += [
        Claim.at_most("join's size: error against Uniform's", joined.ratio("size"), 1 / 3),
        Claim.at_most("sum over the join: error against Uniform's", joined.ratio("sum"), 1 / 3),
        _scalar_rate(scalar(), full=full),
    ]
    return Figure("cod/fig9", settings, tuple(series), tuple(claims))


def fig10(*, full: bool) -> Figure:
    """Error against the share of the stream that is processed, by route."""
    stream = routes()
    seeds, most = range(SEED, SEED + (5 if full else 2)), 1_000 if full else 12
    found = {volume: errors_of(stream, _policies(volume), seeds=seeds, most_windows=most) for volume in VOLUMES}
    policies = list(found[VOLUMES[0]])
    series = []
    for policy in policies:
        processed = tuple(100 * found[volume][policy].processed for volume in VOLUMES)
        errors = tuple(found[volume][policy].mean for volume in VOLUMES)
        series.append(Series(policy, processed, errors, "processed share of a window, %", "mean relative error"))
    missing = [
        Series(
            policy,
            tuple(100 * found[volume][policy].processed for volume in VOLUMES),
            tuple(float(found[volume][policy].missing.mean()) for volume in VOLUMES),
            "processed share of a window, %",
            "missing groups",
        )
        for policy in policies
    ]
    concept = {volume: found[volume]["CoD, equal"] for volume in VOLUMES}
    uniform = {volume: found[volume]["Uniform"] for volume in VOLUMES}
    claims = (
        Claim.at_most(
            f"{stream.name}: CoD's error with 25 % processed against Uniform's with 50 %",
            concept[0.25].mean / uniform[0.5].mean,
            1.0,
        ),
        Claim.at_most(
            f"{stream.name}: CoD's error with 10 % processed against Uniform's with 50 %",
            concept[0.1].mean / uniform[0.5].mean,
            1.0,
        ),
        Claim.at_most(
            "the largest of CoD's errors against Uniform's, over all volumes",
            max(concept[volume].mean / uniform[volume].mean for volume in VOLUMES),
            1.0,
        ),
        Claim.at_most(
            "groups missing from CoD where the budget has a tuple for each (25 % and 50 %)",
            float(concept[0.25].missing.max() + concept[0.5].missing.max()),
            0.0,
        ),
        Claim.at_most(
            "volume that CoD processed, against the budget, at most",
            max(float((concept[volume].volume / volume).max()) for volume in VOLUMES),
            1.0,
        ),
    )
    settings = {"stream": f"{stream.name}: {stream.question}", "seeds": list(seeds), "real data": stream.real} | {
        f"processed {volume:.0%}": _told(stream, found[volume]) for volume in VOLUMES
    }
    return Figure("cod/fig10", settings, (*series, *missing), claims)


def _policies(keep: float) -> dict[str, Policy]:
    return {
        "Uniform": Uniform(keep=keep, min_keep=0.0),
        "CoD, equal": ConceptDriven(keep=keep),
        "CoD, Neyman": ConceptDriven(keep=keep, rule="neyman"),
    }


def _stream_claims(stream: Stream, found: dict[str, Errors], bound: float | None) -> list[Claim]:
    uniform, equal, neyman = found["Uniform"], found["CoD, equal"], found["CoD, Neyman"]
    at = f"{stream.name} at {100 * equal.processed:.2f} % (Uniform {100 * uniform.processed:.2f} %)"
    if bound is None:
        return [
            Claim.equal(f"{at}: CoD's error against Uniform's", equal.mean / uniform.mean, 1.0, tolerance=0.1),
        ]
    worse = neyman.error - equal.error
    noise = float(worse.std(ddof=1) / np.sqrt(len(worse))) if len(worse) > 1 else 0.0
    return [
        Claim.at_most(
            f"{at}: CoD's error {equal.mean:.4f} against Uniform's {uniform.mean:.4f}", equal.mean / uniform.mean, bound
        ),
        Claim.at_most(f"{at}: groups missing from CoD", float(equal.missing.max()), 0.0),
        Claim.at_most(
            f"{at}: Neyman's error {neyman.mean:.4f} over equal allocation's, in standard errors",
            float(worse.mean()) / noise if noise else 0.0,
            2.0,
        ),
    ]


def _scalar_rate(stream: Stream, *, full: bool) -> Claim:
    """Take each window's rate from a reservoir that filled with it; see how many answers are as precise as asked."""
    met = []
    for number, span in enumerate(stream.windows()):
        if not full and number % 3:
            continue
        values = stream.values[span]
        reservoir = Reservoir(1_000, seed=SEED + number)
        reservoir.update(values)
        keep = ScalarConcept.of_sample(reservoir).keep_for(relative_error=ERROR_WANTED)
        kept = values[np.random.default_rng(SEED + number).random(len(values)) < keep]
        met.append(abs(kept.sum() / keep / values.sum() - 1) <= ERROR_WANTED)
    return Claim.at_least(
        "scalar: windows whose sum is within 10 % at the rate that the concept in a reservoir of 1,000 asks for",
        float(np.mean(met)),
        0.95,
    )


def _join_series(joined: JoinErrors) -> list[Series]:
    names = ("size", "sum over it")
    return [
        Series(
            policy,
            names,
            tuple(round(100 * float(errors[answer].mean()), 6) for answer in ("size", "sum")),
            "join",
            "mean relative error, %",
        )
        for policy, errors in (("Uniform", joined.uniform), ("CoD", joined.concept))
    ]


def _told(stream: Stream, found: dict[str, Errors]) -> str:
    each = "; ".join(
        f"{policy}: error {errors.mean:.4f} at {100 * errors.processed:.2f} % processed, "
        f"{errors.missing.mean():.1f} groups missing"
        for policy, errors in found.items()
    )
    return f"{'real' if stream.real else 'generated'} stream, {stream.question}; {each}"
