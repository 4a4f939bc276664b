"""Example 1 of [Sampling03]: the whole of what the paper works out in numbers."""

from __future__ import annotations

import numpy as np

from lab.reproduce.figure import Figure, Series
from penstock.demo.claim import Claim
from penstock.policy.sampling import Diagram, Operator, Query, Source, place

WANTED = {"q1": 0.5, "q2": 0.8}
SEED = 2003
# The paper gives the example no costs.
TUPLES_PER_SECOND = 1000.0
SECONDS_PER_TUPLE = 1e-3
ROUNDING = 1e-12


def example1(*, full: bool) -> Figure:
    """Place the sampling of two queries below operator A, and compare with every other way to the same rates."""
    draws = 5_000 if full else 200
    diagram = _diagram((SECONDS_PER_TUPLE,) * 3, (1.0,) * 3)
    placed = place(diagram, WANTED)
    reached = diagram.passed(placed)
    # Whatever is kept before A, the edges behind it make up for: from the most that q2 allows to be shed, to nothing.
    before_a = np.linspace(max(WANTED.values()), 1.0, 21).tolist()
    at_source = diagram.load({("S", "A"): max(WANTED.values())})
    claims = (
        Claim.equal("keep rate before A", placed["S", "A"], 0.8, tolerance=ROUNDING),
        Claim.equal("keep rate before B", placed["A", "B"], 0.625, tolerance=ROUNDING),
        Claim.equal("keep rate before C: none is shed", placed["A", "C"], 1.0, tolerance=0),
        Claim.equal("effective keep rate of q1", reached["q1"], WANTED["q1"], tolerance=ROUNDING),
        Claim.equal("effective keep rate of q2", reached["q2"], WANTED["q2"], tolerance=ROUNDING),
        Claim.at_most(
            "load against sampling at the source only, at the least rate that serves both queries",
            diagram.load(placed) / at_source,
            1.0,
        ),
        Claim.at_most(
            f"load against the best other placement with the same effective rates, worst of {draws} draws of costs "
            "and selectivities (Theorem 1)",
            _worst_against_others(draws, before_a[1:]),
            1.0,
        ),
    )
    load = ("keep rate before A", "load (seconds of work per second)")
    series = (
        Series("effective keep rate", tuple(WANTED), tuple(reached[q] for q in WANTED), "query", "keep rate"),
        Series(
            "keep rate placed on each edge",
            tuple(f"{parent}→{child}" for parent, child in placed),
            tuple(placed.values()),
            "edge",
            "keep rate",
        ),
        Series("same effective rates", tuple(before_a), tuple(diagram.load(_other(keep)) for keep in before_a), *load),
        Series("SetSamplingRate", (placed["S", "A"],), (diagram.load(placed),), *load),
    )
    settings = {
        "wanted_keep_q1": WANTED["q1"],
        "wanted_keep_q2": WANTED["q2"],
        "tuples_per_second": TUPLES_PER_SECOND,
        "seconds_per_tuple": SECONDS_PER_TUPLE,
        "selectivity": 1.0,
        "cost_draws": draws,
        "seed": SEED,
    }
    return Figure("sampling/example1", settings, series, claims)


def _diagram(seconds_per_tuple: tuple[float, ...], selectivity: tuple[float, ...]) -> Diagram:
    costs = dict(zip("ABC", zip(seconds_per_tuple, selectivity, strict=True), strict=True))

    def operator(name: str, *children: Operator | Query) -> Operator:
        seconds, passes = costs[name]
        return Operator(name=name, seconds_per_tuple=seconds, selectivity=passes, children=children)

    b = operator("B", Query(name="q1", window_tuples=1))
    c = operator("C", Query(name="q2", window_tuples=1))
    source = Source(name="S", tuples_per_second=TUPLES_PER_SECOND, children=(operator("A", b, c),))
    return Diagram((source,))


def _other(before_a: float) -> dict[tuple[str, str], float]:
    """Reach the wanted rates with this keep rate before A."""
    return {("S", "A"): before_a, ("A", "B"): WANTED["q1"] / before_a, ("A", "C"): WANTED["q2"] / before_a}


def _worst_against_others(draws: int, before_a: list[float]) -> float:
    """Draw costs over four powers of ten, and selectivities; return the highest load as a share of the best other."""
    random = np.random.default_rng(SEED)
    worst = 0.0
    for _ in range(draws):
        costs = 10 ** random.uniform(-6, -2, size=3)
        diagram = _diagram(tuple(costs.tolist()), tuple(random.uniform(0.05, 1, size=3).tolist()))
        best_other = min(diagram.load(_other(keep)) for keep in before_a)
        worst = max(worst, diagram.load(place(diagram, WANTED)) / best_other)
    return worst
