"""Figs. 7 and 8 of [CoD18]: how long a window takes without shedding, with Uniform, and with the concept."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from lab.reproduce.cod_replay import Replayed, bootstrapped_mean, replay, weighted_median, write_panes
from lab.reproduce.cod_streams import Stream, routes, scalar, users
from lab.reproduce.figure import Figure, Series
from penstock.demo.claim import Claim
from penstock.policy.baseline import KeepAll, Uniform
from penstock.policy.contract import Policy
from penstock.policy.strata.concept import ConceptDriven
from penstock.spark.session import local_session

FIG7_KEEP = 0.02
FIG8_KEEP = 0.03
FASTER = 2.25
# Streams three times as fast as the real ones: their windows hold some hundred thousand tuples.
COPIES = 3
OVERHEAD = 1.1


def fig7(*, full: bool) -> Figure:
    """Latency of a heavy scalar aggregate on one and on two cores; cores stand for the paper's nodes."""
    windows = 24 if full else 5
    stream = scalar()
    found: dict[int, Mapping[str, Replayed]] = {}
    for cores in (1, 2):
        spark = _session(cores)
        try:
            found[cores] = _policies_on(
                spark,
                stream,
                FIG7_KEEP,
                windows=windows,
                function=bootstrapped_mean,
                panes_per_batch=1 if full else 4,
            )
        finally:
            spark.stop()
    names = tuple(f"{cores} core{'s' if cores > 1 else ''}" for cores in found)
    claims = [
        Claim.at_least(
            f"{name}: p95 latency without shedding against CoD's",
            each["none"].p95 / each["CoD"].p95,
            FASTER,
        )
        for name, each in zip(names, found.values(), strict=True)
    ]
    claims.append(
        Claim.at_most(
            "CoD on one core against none on two: mean latency", found[1]["CoD"].mean / found[2]["none"].mean, 1.0
        )
    )
    series = [
        Series(policy, names, tuple(getattr(found[cores][policy], measure) for cores in found), "machine", label)
        for measure, label in (("mean", "mean window latency, s"), ("p95", "p95 window latency, s"))
        for policy in ("none", "Uniform", "CoD")
    ]
    settings = {"stream": f"{stream.name}: bootstrapped mean", "real data": stream.real, "windows": windows} | {
        f"{name}, {policy}": _told(run)
        for name, each in zip(names, found.values(), strict=True)
        for policy, run in each.items()
    }
    return Figure("cod/fig7", settings | {"hash seed": 0}, tuple(series), tuple(claims))


def fig8(*, full: bool) -> Figure:
    """Latency by stream on two cores, 97 % shed; a weighted median by key."""
    windows = 24 if full else 5
    spark = _session(2)
    found: dict[str, Mapping[str, Replayed]] = {}
    try:
        for stream in (users(), routes(), scalar()) if full else (users(), routes()):
            found[stream.name] = _policies_on(
                spark,
                stream,
                FIG8_KEEP,
                windows=windows,
                function=weighted_median,
                copies=COPIES,
                panes_per_batch=1 if full else 4,
            )
    finally:
        spark.stop()
    claims = []
    for name, each in found.items():
        if name.endswith("scalar"):
            # As in the paper, a scalar aggregate gains little: most of its time goes into preparing the window.
            continue
        # The p95 of five windows would be the slowest of them.
        measure = "p95" if full else "mean"
        without, by_concept = (getattr(each[policy], measure) for policy in ("none", "CoD"))
        claims.append(
            Claim.at_least(
                f"{name}: {measure} latency without shedding ({without:.3f} s) against CoD's ({by_concept:.3f} s)",
                without / by_concept,
                FASTER,
            )
        )
        if full:
            # A few batches are too few to tell a tenth from noise.
            claims.append(
                Claim.at_most(
                    f"{name}: time of all batches with CoD against Uniform",
                    float(each["CoD"].batch_seconds[2:].sum() / each["Uniform"].batch_seconds[2:].sum()),
                    OVERHEAD,
                )
            )
    names = tuple(found)
    series = [
        Series(policy, names, tuple(getattr(found[name][policy], measure) for name in names), "stream", label)
        for measure, label in (("mean", "mean window latency, s"), ("p95", "p95 window latency, s"))
        for policy in ("none", "Uniform", "CoD")
    ]
    settings = {"windows": windows, "copies of each tuple": COPIES, "hash seed": 0} | {
        f"{name}, {policy}": _told(run) for name, each in found.items() for policy, run in each.items()
    }
    return Figure("cod/fig8", settings, tuple(series), tuple(claims))


def _policies_on(
    spark: Any,
    stream: Stream,
    keep: float,
    *,
    windows: int,
    function: Callable[[pd.DataFrame], pd.DataFrame],
    copies: int = 1,
    panes_per_batch: int = 1,
) -> dict[str, Replayed]:
    policies: dict[str, Policy] = {
        "none": KeepAll(),
        "Uniform": Uniform(keep=keep, min_keep=0.0),
        "CoD": ConceptDriven(keep=keep),
    }
    with tempfile.TemporaryDirectory() as folder:
        write_panes(stream, Path(folder), windows=windows + 1, copies=copies)
        return {
            name: replay(spark, stream, Path(folder), policy, function=function, panes_per_batch=panes_per_batch)
            for name, policy in policies.items()
        }


def _session(cores: int) -> Any:
    log = Path(tempfile.gettempdir()) / "penstock-reproduce-spark.log"
    return local_session(cores=cores, settings={"spark.sql.streaming.numRecentProgressUpdates": "1000"}, log_path=log)


def _told(run: Replayed) -> str:
    return (
        f"mean {run.mean * 1e3:.0f} ms, p95 {run.p95 * 1e3:.0f} ms over {len(run.window_seconds)} windows; "
        f"{100 * run.kept_share:.2f} % processed"
    )
