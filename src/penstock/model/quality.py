"""What an answer is worth: by the share of tuples delivered, by their values, and by how late it is ([Aurora03])."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from numbers import Real

from penstock.model.errors import InvalidInputError, require_flag, require_fraction, require_not_negative

Point = tuple[float, float]
ROUNDING = 1e-9


@dataclass(frozen=True, slots=True)
class LossTolerance:
    """Utility of an output by the share of its tuples that is delivered: piece-wise linear, rising and concave.

    Attributes
    ----------
    points
        (delivered share, utility), shares rising from 0 to 1.

    Examples
    --------
    >>> graph = LossTolerance.of((1.0, 1.0), (0.5, 0.7), (0.0, 0.0))
    >>> graph.utility(0.75), graph.slope_below(0.5)
    (0.85, 1.4)
    """

    points: tuple[Point, ...]

    @staticmethod
    def of(*points: Point, hull: bool = False) -> LossTolerance:
        """Make a graph from its corners, in any order; 0 at share 0 is added where it is left out.

        Parameters
        ----------
        hull
            Take the concave hull of a graph that is not concave. It is nowhere below the graph, so losses between its
            corners are then thought smaller than they are.
        """
        require_flag("hull", hull, meaning="whether to take the concave hull of a graph that is not concave")
        corners = sorted(_points_of("a loss-tolerance graph", points))
        if corners and corners[0][0] > 0:
            corners = [(0.0, 0.0), *corners]
        return LossTolerance(concave_hull(corners) if hull else tuple(corners))

    def __post_init__(self) -> None:
        object.__setattr__(self, "points", _points("a loss-tolerance graph", self.points))
        for share, utility in self.points:
            require_fraction("the delivered share of a loss-tolerance graph", share, meaning="on its x axis")
            require_not_negative("the utility of a loss-tolerance graph", utility, meaning="what an answer is worth")
        if len(self.points) < 2 or self.points[0][0] != 0 or self.points[-1][0] != 1:
            raise InvalidInputError(
                f"a loss-tolerance graph must reach from share 0 to share 1, got {self.points}; "
                "say what the whole answer is worth, as in (1.0, 1.0)"
            )
        slopes = _slopes(self.points)
        if any(slope < -ROUNDING for slope in slopes):
            raise InvalidInputError(
                f"a loss-tolerance graph must not fall, got {self.points}; more tuples are no worse"
            )
        if any(after > before + ROUNDING for before, after in pairwise(slopes)):
            raise InvalidInputError(
                f"a loss-tolerance graph must be concave, got {self.points} with slopes {tuple(slopes)}; the road map "
                "drops what costs least first and relies on it. Give other corners, or take the concave hull: "
                "LossTolerance.of(..., hull=True)"
            )

    @property
    def full(self) -> float:
        """Utility of the whole answer."""
        return self.points[-1][1]

    def utility(self, share: float) -> float:
        """Utility when this share is delivered."""
        return _interpolate(self.points, share)

    def slope_below(self, share: float) -> float:
        """Utility lost per share when a little less is delivered."""
        shares = [x for x, _ in self.points]
        piece = min(max(bisect_left(shares, share - ROUNDING) - 1, 0), len(shares) - 2)
        return _slopes(self.points[piece : piece + 2])[0]

    def scaled(self, factor: float) -> LossTolerance:
        """The same graph, worth so many times as much."""
        return LossTolerance(tuple((share, utility * factor) for share, utility in self.points))

    def _repr_svg_(self) -> str:
        from penstock.model.drawing import quality_svg

        return quality_svg("loss tolerance", self.points, x_label="delivered share")


@dataclass(frozen=True, slots=True)
class LatencyGraph:
    """Utility of an output by the seconds that it is late: piece-wise linear, falling and concave.

    Beyond the last corner an answer is worth what it is worth there.

    >>> graph = LatencyGraph.of((2, 1.0), (10, 0.0))
    >>> graph.utility(1), graph.utility(6), graph.utility(20)
    (1.0, 0.5, 0.0)
    """

    points: tuple[Point, ...]

    @staticmethod
    def of(*points: Point) -> LatencyGraph:
        """Make a graph from its corners, in any order."""
        return LatencyGraph(tuple(sorted(_points_of("a latency graph", points))))

    def __post_init__(self) -> None:
        object.__setattr__(self, "points", _points("a latency graph", self.points))
        if not self.points:
            raise InvalidInputError("a latency graph needs corners, as in LatencyGraph.of((2, 1.0), (10, 0.0))")
        for seconds, utility in self.points:
            require_not_negative("the latency of a latency graph", seconds, meaning="in seconds, on its x axis")
            require_fraction("the utility of a latency graph", utility, meaning="the factor that lateness leaves")
        slopes = _slopes(self.points)
        if any(slope > ROUNDING for slope in slopes):
            raise InvalidInputError(f"a latency graph must not rise, got {self.points}; later is no better")
        if any(after > before + ROUNDING for before, after in pairwise(slopes)):
            raise InvalidInputError(
                f"a latency graph must be concave, got {self.points}; its fall may only get steeper, up to the last "
                "corner"
            )

    def utility(self, latency_seconds: float) -> float:
        """Utility of an answer that is so late."""
        return _interpolate(self.points, latency_seconds)

    def _repr_svg_(self) -> str:
        from penstock.model.drawing import quality_svg

        return quality_svg("latency", self.points, x_label="latency, seconds")


@dataclass(frozen=True, slots=True)
class ValueGraph:
    """Utility of a tuple by one of its values: linear pieces ``(low, high, utility at low, utility at high)``.

    A piece may also be given as ``(low, high, utility)``. Values outside of all pieces are worth nothing.

    >>> graph = ValueGraph.of((0, 50, 0.2), (51, 100, 1.0))
    >>> graph.utility(10), graph.utility(75), graph.utility(200)
    (0.2, 1.0, 0.0)
    """

    pieces: tuple[tuple[float, float, float, float], ...]

    @staticmethod
    def of(*pieces: Sequence[float]) -> ValueGraph:
        """Make a graph from pieces of three or four numbers, in any order."""
        wanted = "(low, high, utility) or (low, high, utility at low, utility at high)"
        found = _rows("a piece of a value graph", pieces, lengths=(3, 4), wanted=wanted)
        return ValueGraph(tuple(sorted((p[0], p[1], p[2], p[-1]) for p in found)))

    def __post_init__(self) -> None:
        wanted = "(low, high, utility at low, utility at high)"
        found = _rows("a piece of a value graph", self.pieces, lengths=(4,), wanted=wanted)
        pieces = tuple((a, b, u, v) for a, b, u, v in found)
        object.__setattr__(self, "pieces", pieces)
        if not pieces:
            raise InvalidInputError("a value graph needs pieces, as in ValueGraph.of((0, 50, 0.2), (50, 100, 1.0))")
        for low, high, *utilities in pieces:
            if not (math.isfinite(low) and math.isfinite(high) and low < high):
                raise InvalidInputError(
                    f"a piece of a value graph must be finite and low < high, got [{low}, {high}]; mend its edges"
                )
            for utility in utilities:
                require_not_negative("the utility of a value graph", utility, meaning="what such a tuple is worth")
        for (_, high, *_), (low, *_) in pairwise(pieces):
            if low < high:
                raise InvalidInputError(f"pieces of a value graph overlap at {low}; a value has one utility")

    def utility(self, value: float) -> float:
        """Utility of a tuple with this value."""
        index = bisect_right([low for low, *_ in self.pieces], value) - 1
        if index < 0 or value > self.pieces[index][1]:
            return 0.0
        low, high, at_low, at_high = self.pieces[index]
        return at_low + (at_high - at_low) * (value - low) / (high - low)

    @property
    def edges(self) -> tuple[float, ...]:
        """Where pieces begin and end."""
        return tuple(sorted({edge for low, high, *_ in self.pieces for edge in (low, high)}))

    def _repr_svg_(self) -> str:
        from penstock.model.drawing import quality_svg

        corners = [p for low, high, at_low, at_high in self.pieces for p in ((low, at_low), (high, at_high))]
        return quality_svg("value", tuple(corners), x_label="value")


@dataclass(frozen=True, slots=True)
class Histogram:
    """How a value is spread: bins ``(low, high, share)``, even within each bin; shares are scaled to sum to 1.

    >>> spread = Histogram.of((0, 50, 40), (51, 100, 60))
    >>> spread.share(0, 25), spread.share(25, 200)
    (0.2, 0.8)
    """

    bins: tuple[tuple[float, float, float], ...]

    @staticmethod
    def of(*bins: Sequence[float]) -> Histogram:
        """Make a histogram from bins in any order; counts do as well as shares."""
        found = _rows("a bin of a histogram", bins, lengths=(3,), wanted="(low, high, share)")
        return Histogram(tuple(sorted((low, high, share) for low, high, share in found)))

    @staticmethod
    def uniform(low: float, high: float) -> Histogram:
        """Spread a value evenly."""
        return Histogram(((low, high, 1.0),))

    def __post_init__(self) -> None:
        for low, high, share in self.bins:
            if not (math.isfinite(low) and math.isfinite(high) and low < high):
                raise InvalidInputError(
                    f"a bin of a histogram must be finite and low < high, got [{low}, {high}]; mend its edges"
                )
            require_not_negative("the share of a bin", share, meaning="how many of the values fall into it")
        for (_, high, _), (low, *_) in pairwise(self.bins):
            if low < high:
                raise InvalidInputError(f"bins of a histogram overlap at {low}; a value falls into one bin")
        total = math.fsum(share for *_, share in self.bins)
        if total <= 0:
            raise InvalidInputError(f"a histogram needs a bin with a share above 0, got {self.bins}")
        object.__setattr__(self, "bins", tuple((low, high, share / total) for low, high, share in self.bins))

    def share(self, low: float, high: float) -> float:
        """Share of the values in [low, high)."""
        return math.fsum(
            share * max(0.0, min(high, top) - max(low, bottom)) / (top - bottom) for bottom, top, share in self.bins
        )

    @property
    def edges(self) -> tuple[float, ...]:
        """Where bins begin and end."""
        return tuple(sorted({edge for low, high, _ in self.bins for edge in (low, high)}))


def concave_hull(points: Iterable[Point]) -> tuple[Point, ...]:
    """Lay the least concave graph over these points.

    >>> concave_hull([(0, 0), (0.5, 0.1), (1, 1)])
    ((0, 0), (1, 1))
    """
    hull: list[Point] = []
    for x, y in sorted(points):
        while len(hull) >= 2 and (hull[-1][1] - hull[-2][1]) * (x - hull[-2][0]) <= (y - hull[-2][1]) * (
            hull[-1][0] - hull[-2][0]
        ):
            hull.pop()
        hull.append((x, y))
    return tuple(hull)


def _points(graph: str, points: Iterable[Point]) -> tuple[Point, ...]:
    corners = _points_of(graph, points)
    for (before, _), (after, _) in pairwise(corners):
        if not before < after:
            raise InvalidInputError(f"corners of {graph} must lie at rising x, got {corners}; each x has one utility")
    return corners


def _points_of(graph: str, points: Iterable[Point]) -> tuple[Point, ...]:
    return tuple((x, y) for x, y in _rows(f"a corner of {graph}", points, lengths=(2,), wanted="(x, y)"))


def _rows(what: str, given: Iterable[object], *, lengths: tuple[int, ...], wanted: str) -> list[tuple[float, ...]]:
    """Take rows of numbers, those of NumPy as well; anything else is refused."""
    rows = []
    for row in given:
        found = row if isinstance(row, (tuple, list)) else ()
        if len(found) not in lengths or any(isinstance(each, bool) or not isinstance(each, Real) for each in found):
            raise InvalidInputError(f"{what} must be {wanted}, all of them numbers, got {row!r}; write it so")
        rows.append(tuple(map(float, found)))
    return rows


def _slopes(points: Sequence[Point]) -> list[float]:
    return [(v - u) / (y - x) for (x, u), (y, v) in pairwise(points)]


def _interpolate(points: Sequence[Point], x: float) -> float:
    if x <= points[0][0]:
        return points[0][1]
    for (low, u), (high, v) in pairwise(points):
        if x <= high:
            return u + (v - u) * (x - low) / (high - low)
    return points[-1][1]


LINEAR = LossTolerance(((0.0, 0.0), (1.0, 1.0)))
