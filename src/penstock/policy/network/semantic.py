"""Semantic drops: which values go first, what that costs, and the predicate that keeps the rest ([Aurora03] 4.3.4)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from penstock.model.errors import InvalidInputError, require_fraction, require_positive
from penstock.model.quality import Histogram, LossTolerance, ValueGraph

Range = tuple[float, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """A row of Table 1 in the paper.

    Attributes
    ----------
    low, high
        The values, high excluded.
    utility
        Of each tuple in it: u. For a chunk of a sloped piece, the mean.
    share
        Of all tuples: f.
    normalized
        Utility lost when the whole interval is dropped: n = u f over the sum of u f.
    """

    low: float
    high: float
    utility: float
    share: float
    normalized: float


def intervals(graph: ValueGraph, spread: Histogram, *, chunk_size: float | None = None) -> tuple[Interval, ...]:
    """Table the value intervals by utility, lowest first: the order in which they are dropped.

    Parameters
    ----------
    chunk_size
        Width of the chunks that sloped pieces are cut into; by default a tenth of the piece.

    Examples
    --------
    >>> table = intervals(ValueGraph.of((0, 50, 0.2), (51, 100, 1.0)), Histogram.of((0, 50, 0.4), (51, 100, 0.6)))
    >>> [(row.low, row.high, row.utility, round(row.normalized, 4)) for row in table]
    [(0.0, 50.0, 0.2, 0.1176), (51.0, 100.0, 1.0, 0.8824)]
    """
    edges = value_edges([graph], [spread], chunk_size=chunk_size)
    found = []
    for low, high in pairwise(edges):
        share = spread.share(low, high)
        if share > 0:
            found.append((mean_utility(graph, low, high), low, high, share))
    worth = math.fsum(utility * share for utility, _, _, share in found)
    if worth <= 0:
        raise InvalidInputError(
            "no value that occurs is worth anything, so there is nothing to lose; give the value graph a piece above 0 "
            f"where values lie: {spread.bins}"
        )
    return tuple(
        Interval(low=low, high=high, utility=utility, share=share, normalized=utility * share / worth)
        for utility, low, high, share in sorted(found)
    )


def derived_loss_tolerance(table: Sequence[Interval]) -> LossTolerance:
    """Turn value intervals into utility by delivered share: the cheapest tuples are the first to go (Figure 8).

    >>> table = intervals(ValueGraph.of((0, 50, 0.2), (51, 100, 1.0)), Histogram.of((0, 50, 0.4), (51, 100, 0.6)))
    >>> [(round(share, 2), round(utility, 2)) for share, utility in derived_loss_tolerance(table).points]
    [(0.0, 0.0), (0.6, 0.88), (1.0, 1.0)]
    """
    slopes: list[tuple[float, float]] = []  # (share, utility) of each run of equal slope
    for row in table:
        steep = row.normalized / row.share
        if slopes and math.isclose(slopes[-1][1] / slopes[-1][0], steep, rel_tol=1e-9, abs_tol=1e-12):
            slopes[-1] = (slopes[-1][0] + row.share, slopes[-1][1] + row.normalized)
        else:
            slopes.append((row.share, row.normalized))
    corners = [(1.0, 1.0)]
    for share, utility in slopes[:-1]:
        corners.append((corners[-1][0] - share, max(0.0, corners[-1][1] - utility)))
    return LossTolerance.of(*corners, (0.0, 0.0))


def dropped_ranges(table: Sequence[Interval], dropped: float) -> tuple[Range, ...]:
    """Values to drop so that this share of the tuples goes, the least useful first, in as few ranges as it takes.

    Half of an interval is its lower half: drop predicates are ranges.
    """
    require_fraction("dropped", dropped, meaning="the share of tuples to drop")
    left = dropped
    ranges = []
    for row in table:
        if left <= 1e-12:
            break
        part = min(1.0, left / row.share)
        ranges.append((row.low, row.low + part * (row.high - row.low)))
        left -= row.share
    return merged(ranges)


def predicate(ranges: Iterable[Range], *, name: str = "value", lowest: float = -math.inf, whole: bool = False) -> str:
    """Say in words what survives; with ``whole`` for integers, as in the paper.

    >>> table = intervals(ValueGraph.of((0, 50, 0.2), (51, 100, 1.0)), Histogram.of((0, 50, 0.4), (51, 100, 0.6)))
    >>> predicate(dropped_ranges(table, 0.2), lowest=0, whole=True)
    'value >= 25'
    >>> predicate(dropped_ranges(table, 0.7), lowest=0, whole=True)
    'value > 75'
    """
    said = []
    for low, high in merged(ranges, gap=1.0 if whole else 0.0):
        cut = f"{name} > {math.floor(high)}" if whole and high != math.floor(high) else f"{name} >= {high:g}"
        said.append(cut if low <= lowest else f"({name} < {low:g} or {cut})")
    return " and ".join(said) or "true"


def merged(ranges: Iterable[Range], *, gap: float = 0.0) -> tuple[Range, ...]:
    """Join ranges that touch.

    >>> merged([(50, 60), (0, 25), (25, 50), (70, 80)])
    ((0, 60), (70, 80))
    """
    joined: list[Range] = []
    for low, high in sorted(ranges):
        if joined and low <= joined[-1][1] + gap + 1e-12:
            joined[-1] = (joined[-1][0], max(joined[-1][1], high))
        else:
            joined.append((low, high))
    return tuple(joined)


def value_edges(
    graphs: Iterable[ValueGraph], spreads: Iterable[Histogram], *, chunk_size: float | None = None
) -> list[float]:
    """Cut the values where a graph or a spread has a corner, and sloped pieces into chunks."""
    if chunk_size is not None:
        require_positive("chunk_size", chunk_size, meaning="the width of the chunks of a sloped piece")
    edges: set[float] = set()
    for spread in spreads:
        edges.update(spread.edges)
    for graph in graphs:
        edges.update(graph.edges)
        for low, high, at_low, at_high in graph.pieces:
            if at_low != at_high:
                count = 10 if chunk_size is None else max(1, math.ceil((high - low) / chunk_size - 1e-9))
                edges.update(low + (high - low) * n / count for n in range(count))
    return sorted(edges)


def mean_utility(graph: ValueGraph, low: float, high: float) -> float:
    """Mean utility of evenly spread values in a range that no piece begins or ends in."""
    # Inside the range: at the edges another piece may begin.
    inside = (high - low) * 1e-6
    return (graph.utility(low + inside) + graph.utility(high - inside)) / 2
