"""Where to sample, and how much, so that the worst relative error of all window aggregates is least ([Sampling03]).

| here | in the paper |
|---|---|
| `seconds_per_tuple`, `selectivity` of an operator | t, s |
| `tuples_per_second` of a source | r |
| `mean`, `standard_deviation`, `window_tuples` of a query | μ, σ, N |
| keep rate of an edge | p |
| effective keep rate of a query: the product along its path | P |
| `relative_error` that every query meets | ε_max |
| `miss_probability`: chance that an answer is further off | δ |
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from fractions import Fraction

from penstock.model.errors import InvalidInputError, require_not_negative, require_positive

Edge = tuple[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """A SUM over windows that hold so many tuples while nothing is shed; by default a COUNT, the sum of ones."""

    name: str
    window_tuples: float
    mean: float = 1.0
    standard_deviation: float = 0.0

    def __post_init__(self) -> None:
        of = f"of query {self.name!r}"
        require_positive(f"window_tuples {of}", self.window_tuples, meaning="the tuples that an answer rests on")
        require_not_negative(
            f"standard_deviation {of}", self.standard_deviation, meaning="the spread of the values; 0 for COUNT"
        )
        mean = _number(self.mean)
        if mean == 0 or not math.isfinite(mean) or not math.isfinite(self.standard_deviation / mean):
            raise InvalidInputError(
                f"mean {of} must be finite and not 0, got {self.mean!r}; around 0 a sum has no relative error: "
                "sum positive and negative values in queries of their own"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Operator:
    """A step that tuples pass on their way to one or more queries; its selectivity may exceed 1."""

    name: str
    seconds_per_tuple: float
    selectivity: float = 1.0
    children: tuple[Operator | Query, ...]

    def __post_init__(self) -> None:
        of = f"of operator {self.name!r}"
        require_not_negative(f"seconds_per_tuple {of}", self.seconds_per_tuple, meaning="the work that a tuple takes")
        require_not_negative(f"selectivity {of}", self.selectivity, meaning="the tuples put out per tuple taken in")
        _require_children(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A stream, and what reads it."""

    name: str
    tuples_per_second: float
    children: tuple[Operator | Query, ...]

    def __post_init__(self) -> None:
        of = f"of source {self.name!r}"
        require_not_negative(
            f"tuples_per_second {of}", self.tuples_per_second, meaning="the arrival rate; 0 is a pause"
        )
        _require_children(self)


@dataclass(frozen=True, slots=True)
class Diagram:
    """The data flow of all queries on one machine: a tree below each source, with the queries at the leaves.

    Example 1 of the paper: two queries share operator A, and want different rates:

    >>> b = Operator(name="B", seconds_per_tuple=1e-3, children=(Query(name="q1", window_tuples=100),))
    >>> c = Operator(name="C", seconds_per_tuple=1e-3, children=(Query(name="q2", window_tuples=100),))
    >>> a = Operator(name="A", seconds_per_tuple=1e-3, children=(b, c))
    >>> diagram = Diagram((Source(name="S", tuples_per_second=1000, children=(a,)),))
    >>> placed = place(diagram, {"q1": 0.5, "q2": 0.8})
    >>> {edge: keep for edge, keep in placed.items() if keep < 1}
    {('S', 'A'): 0.8, ('A', 'B'): 0.625}
    >>> round(diagram.load(), 9), round(diagram.load(placed), 9)
    (3.0, 2.1)
    """

    sources: tuple[Source, ...]
    # Every edge after the one above it: (parent, child, tuples that flow along it each second while nothing is shed).
    _edges: tuple[tuple[str, Operator | Query, float], ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "sources", tuple(self.sources))
        object.__setattr__(self, "_edges", tuple(self._walk()))
        require_not_negative("load of the diagram", self.load(), meaning="rates times costs; mend the one out of range")

    @property
    def edges(self) -> tuple[Edge, ...]:
        """Parent and child of every edge, each after the one above it."""
        return tuple((parent, child.name) for parent, child, _ in self._edges)

    @property
    def queries(self) -> tuple[Query, ...]:
        """All leaves."""
        return tuple(child for _, child, _ in self._edges if isinstance(child, Query))

    def load(self, edge_keep: Mapping[Edge, float] | None = None) -> float:
        """Seconds of work per second under these keep rates: the left side of the load equation (Equation 1)."""
        passed = self.passed(edge_keep or {})
        return math.fsum(passed[name] * work for name, work in self.operator_loads().items())

    def passed(self, edge_keep: Mapping[Edge, float]) -> dict[str, float]:
        """Share of tuples that no sampling dropped on the way to each node: at a query, its effective keep rate."""
        shares = {source.name: 1.0 for source in self.sources}
        for parent, child in self.edges:
            shares[child] = shares[parent] * edge_keep.get((parent, child), 1.0)
        return shares

    def operator_loads(self) -> dict[str, float]:
        """Seconds of work per second of each operator while nothing is shed."""
        return {
            child.name: flow * child.seconds_per_tuple for _, child, flow in self._edges if isinstance(child, Operator)
        }

    def largest_below(self, of_query: Mapping[str, float]) -> dict[str, float]:
        """Largest of the queries' numbers in the subtree of each node."""
        largest = dict(of_query)
        for parent, child in reversed(self.edges):
            largest[parent] = max(largest.get(parent, -math.inf), largest[child])
        return largest

    def _walk(self) -> Iterator[tuple[str, Operator | Query, float]]:
        seen: set[str] = set()
        for source in self.sources:
            _see(source.name, seen)
            below = [(source.name, child, source.tuples_per_second) for child in reversed(source.children)]
            while below:
                parent, node, flow = below.pop()
                _see(node.name, seen)
                yield parent, node, flow
                if isinstance(node, Operator):
                    below.extend((node.name, child, flow * node.selectivity) for child in reversed(node.children))


def effective_keep(query: Query, *, relative_error: float, miss_probability: float) -> float:
    """Share of tuples that the query needs for this error (Equation 2, by Hoeffding's bound).

    >>> effective_keep(Query(name="count", window_tuples=10_000), relative_error=0.05, miss_probability=0.01)
    0.3255...
    """
    require_not_negative("relative_error", relative_error, meaning="the error to allow; 0 asks for exact answers")
    scale = _error_scale(query, miss_probability)
    return 1.0 if relative_error <= scale else scale / relative_error


def least_relative_error(diagram: Diagram, *, miss_probability: float, capacity: float = 1.0) -> float:
    """Solve the load equation for the least error that all queries can meet; 0 when everything fits.

    Parameters
    ----------
    miss_probability
        Chance that an answer is further off than the error, such as 0.01.
    capacity
        Seconds of work that the machine does in a second: 1 for one core without headroom.
    """
    require_positive("capacity", capacity, meaning="the seconds of work that the machine does in a second")
    scales = diagram.largest_below({query.name: _error_scale(query, miss_probability) for query in diagram.queries})
    if diagram.load() <= capacity:
        return 0.0
    # An operator passes min(1, scale / error) of its tuples. So with the operators of the largest scales kept whole,
    # the load is whole + sampled / error, and error = sampled / (capacity - whole) holds if it reaches the scales of
    # all others. In exact fractions, as rounding could let that step slip by.
    steps = [(Fraction(scales[name]), Fraction(work)) for name, work in diagram.operator_loads().items()]
    left, sampled = Fraction(capacity), sum((scale * work for scale, work in steps), Fraction(0))
    for scale, work in sorted(steps, reverse=True):
        if sampled >= scale * left:
            break
        left, sampled = left - work, sampled - scale * work
    return float(sampled / left)


def place(diagram: Diagram, query_keep: Mapping[str, float]) -> dict[Edge, float]:
    """Reach the wanted effective keep rates with the least work; returns the keep rate of every edge.

    This is SetSamplingRate (Algorithm 1), optimal by Theorem 1. Chains need not be collapsed into one edge first:
    within a chain the largest rate below does not change, so only its first edge sheds.
    """
    _require_rates(diagram, query_keep)
    reached = diagram.largest_below(query_keep) | {source.name: 1.0 for source in diagram.sources}
    return {(parent, child): reached[child] / reached[parent] for parent, child in diagram.edges}


def _error_scale(query: Query, miss_probability: float) -> float:
    """Return the error at which the query needs every tuple; it needs scale / error of them for a larger one."""
    if not 0 < _number(miss_probability) < 1:
        raise InvalidInputError(
            f"miss_probability must be in (0, 1), got {miss_probability!r}; it is the chance that an answer is further "
            "off than its error, such as 0.01"
        )
    # sqrt((σ² + μ²) / μ²) is the hypotenuse over 1 and σ/μ, and does not overflow.
    return math.hypot(1, query.standard_deviation / query.mean) * math.sqrt(
        (math.log(2) - math.log(miss_probability)) / (2 * query.window_tuples)
    )


def _number(value: object) -> float:
    """Read what is no number as NaN, which no range admits."""
    return value if isinstance(value, (int, float)) and not isinstance(value, bool) else math.nan


def _require_children(node: Operator | Source) -> None:
    object.__setattr__(node, "children", tuple(node.children))
    if not node.children:
        raise InvalidInputError(
            f"children of {node.name!r} must not be empty; no query would use its tuples: end every path in a Query"
        )


def _see(name: str, seen: set[str]) -> None:
    if name in seen:
        raise InvalidInputError(
            f"node {name!r} is reached twice; placement is for trees: give every node one parent and a name of its own"
        )
    seen.add(name)


def _require_rates(diagram: Diagram, query_keep: Mapping[str, float]) -> None:
    names = {query.name for query in diagram.queries}
    if query_keep.keys() != names:
        raise InvalidInputError(
            f"query_keep must have one rate for each of {sorted(names)}, got {sorted(query_keep)}; "
            "give 1.0 to a query that is to be exact"
        )
    for name, keep in query_keep.items():
        if not 0 < _number(keep) <= 1:
            raise InvalidInputError(
                f"query_keep[{name!r}] must be in (0, 1], got {keep!r}; "
                "it is the share that reaches the query: leave out a query that is to get nothing"
            )
