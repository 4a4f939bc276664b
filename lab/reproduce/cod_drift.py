"""Fig. 2 of [CoD18]: how concepts drift, and what happens to the error when one is swapped for another."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import numpy as np

from lab.reproduce.cod_error import group_errors
from lab.reproduce.cod_streams import Stream, routes, scheduling_classes, users
from lab.reproduce.figure import Figure, Series
from penstock.control.concept_memory import SAMPLE_TUPLES, ConceptMemory
from penstock.demo.claim import Claim
from penstock.model.load import Cost, Load
from penstock.policy.baseline import Uniform
from penstock.policy.strata.allocation import allocate
from penstock.policy.strata.concept import ConceptDriven
from penstock.policy.strata.drift import Drift, drift
from penstock.policy.strata.groups import Floats, GroupConcept, Ints
from penstock.policy.strata.selection import WHOLE, batch_thresholds, spread
from penstock.policy.strata.windows import Survivors, shed_window

SEED = 2
TOP = 10
KEEP = 0.02
GROUPS = 100
BATCHES_PER_WINDOW = 10
FORMS = ("Uniform", "CoD, batches so far", "CoD, same batch", "CoD, same window")


def fig2(*, full: bool) -> Figure:
    """Overlap and distance of the concepts of consecutive windows; errors around a swap of the distribution."""
    streams = (users(), scheduling_classes(), routes())
    moved = {stream.name: list(_drifts(stream)) for stream in streams}
    top = list(_top_changes(routes()))
    names = (*moved, f"top {TOP} routes")
    overlaps = (*(_mean(each, "overlap") for each in moved.values()), 1 - float(np.mean(top)))
    distances = (*(_mean(each, "distance") for each in moved.values()), float(np.mean(top)))
    seeds = range(SEED, SEED + (20 if full else 4))
    windows, window_tuples = (24, 100_000) if full else (12, 100_000)
    runs = [swapped(seed=seed, windows=windows, window_tuples=window_tuples) for seed in seeds]
    errors = {form: np.mean([run[form][0] for run in runs], axis=0) for form in FORMS}
    missing = {form: np.max([run[form][1] for run in runs], axis=0) for form in FORMS}
    at = windows // 2
    claims = [
        Claim.at_least(f"mean change of the top {TOP} routes from window to window", float(np.mean(top)), 0.3),
        Claim.at_least(f"the largest change of the top {TOP} routes", float(np.max(top)), 0.5),
    ]
    for form in FORMS[1:]:
        before, after = float(errors[form][:at].mean()), float(errors[form][at + 2 :].mean())
        noise = float(errors[form][:at].std(ddof=1))
        claims += [
            Claim.at_most(
                f"{form}: error {errors[form][at + 1]:.4f} in the second window after the swap, less its level "
                f"before, {before:.4f}, in deviations of windows before",
                (float(errors[form][at + 1]) - before) / noise,
                3.0,
            ),
            Claim.at_most(f"{form}: error after the swap against before", after / before, 1.2),
            Claim.at_most(f"{form}: most groups missing from a window", float(missing[form].max()), 0.0),
        ]
    axes = ("window (frequencies are reversed half-way)", "mean relative error")
    series = [
        Series("overlap", names, overlaps, "concept", "mean over consecutive windows"),
        Series("distance", names, distances, "concept", "mean over consecutive windows"),
        *(
            Series(form, tuple(float(number) for number in range(windows)), tuple(errors[form].tolist()), *axes)
            for form in FORMS
        ),
    ]
    settings = {
        "seeds": list(seeds),
        "real data": all(stream.real for stream in streams),
        "swap": f"{GROUPS} Zipf groups whose frequencies are reversed after window {at - 1}; {window_tuples:,} tuples "
        f"and {BATCHES_PER_WINDOW} batches a window, {KEEP:.0%} processed",
        "volumes": "; ".join(f"{form} {100 * float(np.mean([run[form][2] for run in runs])):.2f} %" for form in FORMS),
        "groups missing in the window of the swap, at most": {form: int(missing[form][at]) for form in FORMS},
    }
    return Figure("cod/fig2", settings, tuple(series), tuple(claims))


def _drifts(stream: Stream) -> Iterator[Drift]:
    for before, after in pairwise(GroupConcept.of(stream.keys[span]) for span in stream.windows()):
        yield drift(before, after)


def _mean(drifts: list[Drift], measure: str) -> float:
    return float(np.mean([getattr(each, measure) for each in drifts]))


def _top_changes(stream: Stream) -> Iterator[float]:
    """Share of the routes with the highest mean fare that are gone in the next window: the query of Fig. 1."""

    def best(span: slice) -> set[int]:
        concept = GroupConcept.of(stream.keys[span], stream.values[span])
        return set(concept.keys[np.argsort(-concept.means, kind="stable")[:TOP]].tolist())

    for before, after in pairwise(map(best, stream.windows())):
        yield 1 - len(before & after) / TOP


def swapped(*, seed: int, windows: int, window_tuples: int) -> dict[str, tuple[Floats, Ints, float]]:
    """Shed a stream whose frequencies are reversed half-way, in every form.

    For each form: error and number of missing groups by window, and the share that was processed.
    """
    random = np.random.default_rng(seed)
    own = random.lognormal(0.0, 1.0, GROUPS)
    popularity = np.cumsum(np.arange(1, GROUPS + 1) ** -1.3)
    memory = ConceptMemory()
    errors: dict[str, list[float]] = {form: [] for form in FORMS}
    missing: dict[str, list[int]] = {form: [] for form in FORMS}
    kept: dict[str, int] = dict.fromkeys(FORMS, 0)
    for window in range(windows):
        ranks = np.searchsorted(popularity / popularity[-1], random.random(window_tuples)).clip(max=GROUPS - 1)
        keys = (ranks if window < windows // 2 else GROUPS - 1 - ranks).astype(np.int64)
        values = own[keys] * random.lognormal(0.0, 0.3, window_tuples)
        hashes = spread(np.arange(window * window_tuples, (window + 1) * window_tuples), seed=seed)
        distinct, codes = np.unique(keys, return_inverse=True)
        concept = GroupConcept.of_codes(distinct, codes, values)
        left = {
            "Uniform": shed_window(Uniform(keep=KEEP), [(codes, hashes)], concept),
            "CoD, same window": shed_window(ConceptDriven(keep=KEEP), [(codes, hashes)], concept),
            "CoD, same batch": _by_batch(keys, hashes, concept, None),
            "CoD, batches so far": _by_batch(keys, hashes, concept, memory),
        }
        for form, survivors in left.items():
            errors[form].append(float(group_errors(values, codes, concept, survivors).mean()))
            missing[form].append(survivors.missing_groups)
            kept[form] += survivors.kept
    total = windows * window_tuples
    return {form: (np.array(errors[form]), np.array(missing[form]), kept[form] / total) for form in FORMS}


def _by_batch(keys: Ints, hashes: Ints, concept: GroupConcept, memory: ConceptMemory | None) -> Survivors:
    """Shed batch by batch, tuple by tuple, as Spark's native path does; with the memory, or counting each batch."""
    rows, weights = [], []
    for low, high in pairwise(np.linspace(0, len(keys), BATCHES_PER_WINDOW + 1).astype(int).tolist()):
        batch, hashed = keys[low:high], hashes[low:high]
        thresholds = _same_batch(batch, hashed) if memory is None else _so_far(batch, memory)
        kept = np.flatnonzero(hashed < thresholds)
        rows.append(kept + low)
        weights.append(WHOLE / thresholds[kept])
    all_rows = np.concatenate(rows)
    left = np.isin(concept.keys, keys[all_rows])
    return Survivors(
        rows=[all_rows],
        weights=[np.concatenate(weights)],
        offered=len(keys),
        kept=len(all_rows),
        groups=concept.groups,
        missing_groups=int((~left).sum()),
        missing_tuples=int(concept.counts[~left].sum()),
    )


def _same_batch(batch: Ints, hashed: Ints) -> Ints:
    distinct, codes = np.unique(batch, return_inverse=True)
    least = np.full(len(distinct), WHOLE)
    np.minimum.at(least, codes, hashed)
    quotas = allocate(GroupConcept.of_codes(distinct, codes), KEEP * len(batch))
    return batch_thresholds(quotas, least)[codes]


def _so_far(batch: Ints, memory: ConceptMemory) -> Ints:
    # Costs such that just the wanted share fits.
    load = Load(
        offered_tuples=len(batch),
        cost=Cost(fixed_seconds=0.0, kept_seconds=1.0),
        available_seconds=KEEP * len(batch),
        headroom=1.0,
        key_tuples={key: share * len(batch) for key, share in memory.shares().items()},
    )
    plan = ConceptDriven().decide(load)
    memory.learn(map(str, batch[:: max(1, len(batch) // SAMPLE_TUPLES)].tolist()))
    thresholds = np.array([round(plan.keep_of(str(key)) * WHOLE) for key in range(GROUPS)])
    chosen: Ints = np.maximum(thresholds, 1)[batch]
    return chosen
