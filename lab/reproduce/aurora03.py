"""The worked examples of [Aurora03]: Table 1, Figure 8, the predicates of section 4.3.4, the drop rules of 4.3.3."""

from __future__ import annotations

import math

from lab.reproduce.figure import Figure, Series
from penstock.demo.claim import Claim
from penstock.model.network import Network, Operator, Output, Source
from penstock.model.quality import Histogram, LossTolerance, ValueGraph
from penstock.policy.network.roadmap import RoadMap
from penstock.policy.network.semantic import derived_loss_tolerance, dropped_ranges, intervals, predicate

GRAPH = ValueGraph.of((0, 50, 0.2), (51, 100, 1.0))
SPREAD = Histogram.of((0, 50, 0.4), (51, 100, 0.6))
ROUNDING = 1e-9
STEP = 0.1


def fig8(*, full: bool) -> Figure:
    """Derive loss tolerance and predicates from the value graph of the paper, and adjust drops as it says."""
    table = intervals(GRAPH, SPREAD)
    loss = derived_loss_tolerance(table)
    corner = loss.points[1]
    below, above, left = _adjusted()
    claims = (
        Claim.equal("normalized utility of [0, 50]", table[0].normalized, 2 / 17, tolerance=ROUNDING),
        Claim.equal("the same, as the paper rounds it", table[0].normalized, 0.12, tolerance=0.005),
        Claim.equal("delivered share at the inflection point", corner[0], 0.6, tolerance=ROUNDING),
        Claim.equal("utility at the inflection point, as the paper rounds it", corner[1], 0.88, tolerance=0.005),
        Claim.equal(f"least value kept without 20 %: {_predicate(0.2)}", _least_kept(0.2), 25, tolerance=0),
        Claim.equal(f"least value kept without 70 %: {_predicate(0.7)}", _least_kept(0.7), 76, tolerance=0),
        Claim.equal(
            f"a drop of l = {below:g} below a new one of k = {above:g} becomes 1 - (1-l)/(1-k)",
            left, 1 - (1 - below) / (1 - above), tolerance=ROUNDING,
        ),
        Claim.equal(
            "p = 1 - (x - 100 STEP_SIZE) / x for a cursor at 80 %",
            _next_drop(), 1 - (80 - 100 * STEP) / 80, tolerance=ROUNDING,
        ),
    )  # fmt: skip
    shares = tuple(share for share, _ in loss.points)
    values = [edge for low, high, *_ in GRAPH.pieces for edge in (low, high)]
    return Figure(
        figure="aurora/fig8",
        settings={"value graph": str(GRAPH.pieces), "histogram": str(SPREAD.bins), "step": STEP},
        series=(
            Series("(a) histogram", ("[0, 50]", "[51, 100]"), (0.4, 0.6), "value", "share of tuples"),
            Series(
                "(b) value graph", tuple(values), tuple(GRAPH.utility(v) for v in values), "output value", "utility"
            ),
            Series(
                "(c) derived loss tolerance", shares, tuple(u for _, u in loss.points), "delivered share", "utility"
            ),
        ),
        claims=claims,
    )


def _predicate(dropped: float) -> str:
    return predicate(dropped_ranges(intervals(GRAPH, SPREAD), dropped), lowest=0, whole=True)


def _least_kept(dropped: float) -> float:
    return math.ceil(dropped_ranges(intervals(GRAPH, SPREAD), dropped)[-1][1])


def _network() -> Network:
    """Figure 6 without its third query: operator 1 feeds two queries, the second of which tolerates loss better."""
    steps = [("1", "I"), ("2", "1"), ("3", "1")]
    return Network(
        (
            Source(name="I", tuples_per_second=10),
            *(Operator(name=n, kind="filter", inputs=(above,), seconds_per_tuple=1.0) for n, above in steps),
            Output(name="O1", input="2", loss=LossTolerance.of((1, 1), (0.6, 0.9))),
            Output(name="O2", input="3", loss=LossTolerance.of((1, 1), (0.4, 0.95))),
        )
    )


def _adjusted() -> tuple[float, float, float]:
    """Find the row where a drop was pushed above the split while a larger one stood below it."""
    road_map = RoadMap.build(_network(), step=STEP)
    for index in range(len(road_map)):
        row = road_map.row(index)
        above = 1 - row.plan.keep(("", "I"))
        if above > 0 and row.plan.keep(("1", "3")) < 1:
            return 1 - row.cursors["O2"], above, 1 - row.plan.keep(("1", "3"))
    return math.nan, math.nan, math.nan


def _next_drop() -> float:
    """The drop that takes the cursor of a query of its own from 80 % one step down."""
    network = Network(
        (
            Source(name="I", tuples_per_second=10),
            Operator(name="1", kind="filter", inputs=("I",), seconds_per_tuple=1.0),
            Output(name="O", input="1"),
        )
    )
    road_map = RoadMap.build(network, step=STEP)
    at = next(n for n in range(len(road_map)) if abs(road_map.cursors(n)["O"] - 0.8) < 1e-6)
    return 1 - road_map.cursors(at + 1)["O"] / road_map.cursors(at)["O"]
