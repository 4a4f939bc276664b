"""From weighted moments to a value, its lower and upper bound, and whether they can be relied on.

Every tuple i of the input was kept on its own with probability p_i, and survivors weigh w_i = 1 / p_i. All four
aggregates are, or are close to, a sum ``Σ w_i z_i`` over the survivors, where z is a polynomial of the tuple's value y:

| aggregate | answer | z |
|---|---|---|
| count | Σw | 1 |
| sum | Σwy | y |
| avg | R = Σwy / Σw | (y - R) / Σw |
| variance | V = Σw(y - R)² / Σw | ((y - R)² - V) / Σw |

For avg and variance z is the linearised error (Taylor), so the sum is not the answer but its error.

Normal: the variance of such a sum is ``Σ (w_i - 1) z_i²`` over the whole input: what is kept for certain (w = 1) adds
nothing, which is the finite-population correction of Bernoulli sampling. The survivors estimate it without bias by
``Σ w_i (w_i - 1) z_i²``.

Hoeffding: each term lies between 0 and w_i z_i, so the sum is further than ``sqrt(ln(2/δ) / 2 * Σ w_i² z_i²)`` from its
mean with probability δ at most, whatever the distribution; the survivors estimate that sum by ``Σ w_i³ z_i²``. With
equal weights this is Equation 2 of [Sampling03], solved for the error.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any, Literal, Protocol, get_args

from penstock.estimate.algebra import Algebra, Number
from penstock.model.error_target import require_confidence, require_method
from penstock.model.errors import InvalidInputError, require_choice

Aggregate = Literal["count", "sum", "avg", "variance"]
# Values known to lie in this range: the least and the largest that can occur.
Within = tuple[float, float] | None


class Sums(Protocol):
    """What :class:`~penstock.estimate.moments.Moments` has: of arrays, or of Spark columns."""

    @property
    def rows(self) -> Number: ...  # noqa: D102
    @property
    def row_weight(self) -> Number: ...  # noqa: D102
    @property
    def tuples(self) -> Number: ...  # noqa: D102
    @property
    def weighted(self) -> Any: ...  # noqa: D102 - by power of the value
    @property
    def spread(self) -> Mapping[str, Any]: ...  # noqa: D102 - by method, then by power of the value
    @property
    def peak(self) -> Mapping[str, Any]: ...  # noqa: D102 - by method, then by power of the value
    @property
    def low(self) -> Number: ...  # noqa: D102
    @property
    def high(self) -> Number: ...  # noqa: D102
    @property
    def heaviest(self) -> Number: ...  # noqa: D102
    def any_value(self, aggregate: Aggregate) -> Number: ...  # noqa: D102


@dataclass(frozen=True, slots=True)
class Rule:
    """How one method weighs tuples, how wide its intervals are, and what they need to be relied on.

    Attributes
    ----------
    factor
        What a survivor of weight w > 1 adds to the spread, beside z².
    tuples
        Least number of survivors, by aggregate.
    equals
        Least number of contributions as large as the largest that would make up the spread. Fewer means that a few
        tuples decide the answer.
    """

    factor: Callable[[Number], Number]
    tuples: Mapping[str, int]
    equals: float


# Found by simulation (`penstock reproduce sampling/coverage`): below these, 95 % intervals on skewed values cover less
# than 93.5 %. A limit on `equals` far above 4 would make it worse: it picks the samples that happened to miss the large
# values, whose intervals are too short.
METHODS: dict[str, Rule] = {
    "normal": Rule(lambda w: w * (w - 1), {"count": 100, "sum": 100, "avg": 300, "variance": 300}, 4.0),
    "hoeffding": Rule(lambda w: w * w * w, {"count": 30, "sum": 30, "avg": 30, "variance": 30}, 2.0),
}
# A t-like widening for the spread being estimated: a few large contributions leave it uncertain. Found the same way.
FREEDOM_PER_EQUAL = 2.5
# Where z² is a power of the value, its largest contribution to the spread is kept as it comes by.
PEAKS: dict[str, int] = {"count": 0, "sum": 2}


def needed(aggregate: Aggregate, *, within: Within) -> frozenset[tuple[str, int]]:
    """List the sums that an answer takes, by field and power of the value, for those who pay for each of them.

    A sum rests on rows, and shares their number and weight with whatever else is asked of the same rows.
    """
    weighted = {"count": (0,), "sum": (1,), "avg": (0, 1), "variance": (0, 1, 2)}[aggregate]
    spread = {"count": (0,), "sum": (2,), "avg": (0, 1, 2), "variance": (0, 1, 2, 3, 4)}[aggregate]
    sums = {("weighted", power) for power in weighted} | {("spread", power) for power in spread}
    sums |= {("rows", 0), ("row_weight", 0)} if aggregate == "sum" else {("tuples", 0)}
    if aggregate in PEAKS:
        sums.add(("peak", PEAKS[aggregate]))
    else:
        sums |= {("low", 0), ("high", 0), ("heaviest", 0)}
    if within is not None:
        sums |= {("heaviest", 0), ("spread", 0), ("weighted", 0)}
    return frozenset(sums)


def interval(
    sums: Sums, aggregate: Aggregate, algebra: Algebra, *, confidence: float, method: str, within: Within = None
) -> Any:
    """Answer one aggregate from its sums.

    The variance of values is at the mercy of the largest, and a sample does not show those that it missed. So it has no
    bounds unless ``within`` says between which values all lie.
    """
    require(aggregate, confidence=confidence, method=method, within=within)
    rule = METHODS[method]
    # A row without a value adds nothing to a sum, as one with the value 0: what a sum rests on are rows.
    tuples, weight = (sums.rows, sums.row_weight) if aggregate == "sum" else (sums.tuples, sums.weighted[0])
    some = sums.any_value(aggregate)
    # No weight is below 1, so the weights add up to the number of tuples only if all are 1.
    exact = some & (weight <= tuples)

    def measure(answer: Number, *z: Number) -> Any:
        spread = _dot(_square(z), sums.spread[method])
        if method == "hoeffding" and within is not None:
            # The range is known, so nothing need be assumed of the tuples that were dropped.
            spread = _bounded_spread(sums, z, within, algebra, confidence)
        if aggregate in PEAKS:
            seen = sums.peak[method][PEAKS[aggregate]]
        else:
            seen = rule.factor(sums.heaviest) * _largest_square(z, sums.low, sums.high, algebra)
        if within is not None:
            possible = rule.factor(sums.heaviest) * _largest_square(z, *within, algebra)
            return algebra.let([answer, spread, seen, possible], judge)
        if aggregate in PEAKS:
            return judge(answer, spread, seen, seen)  # sums as they are: nothing to be computed once
        return algebra.let([answer, spread, seen], lambda answer, spread, seen: judge(answer, spread, seen, seen))

    def judge(answer: Number, spread: Number, seen: Number, possible: Number) -> Any:
        half = _quantile(method, confidence) * algebra.sqrt(algebra.larger(spread, 0.0))
        if method == "normal":
            half = half * _widening(confidence, algebra.ratio(seen, spread))
        enough = (spread > 0) & (spread >= rule.equals * possible) & (tuples >= rule.tuples[aggregate])
        if aggregate == "variance" and within is None:
            enough = exact
        judged = [algebra.where(exact, 0.0, half), algebra.where(exact | enough, True, False)]
        return algebra.let(judged, lambda half, reliable: state(answer, half, reliable))

    def state(answer: Number, half: Number, reliable: Number) -> Any:
        lower, upper = _clamped(sums, aggregate, algebra, (answer - half, answer + half), within)
        distance = half if within is None else algebra.larger(upper - answer, answer - lower)
        error = algebra.ratio(distance, algebra.larger(answer, -answer))
        return algebra.answer(
            value=answer if aggregate == "count" else algebra.known(some, answer),
            lower=algebra.known(reliable, lower),
            upper=algebra.known(reliable, upper),
            relative_error=algebra.where(exact, 0.0, algebra.known(reliable, error)),
            share=algebra.ratio(tuples, weight),
            reliable=reliable,
        )

    return _linearised(sums, aggregate, algebra, measure)


def require(aggregate: str, *, confidence: float, method: str, within: Within) -> None:
    """Refuse what no interval can be made for."""
    require_confidence(confidence)
    require_method(method)
    meaning = "what is answered with bounds, and a weighted sample has none for others"
    require_choice("aggregate", aggregate, get_args(Aggregate), meaning=meaning)
    if within is not None and not _is_range(within):
        raise InvalidInputError(
            f"within must be two finite numbers, the smaller one first, got {within!r}; all values lie between them"
        )


def _is_range(within: object) -> bool:
    if not isinstance(within, (tuple, list)) or len(within) != 2 or any(isinstance(end, bool) for end in within):
        return False
    low, high = within
    numbers = isinstance(low, (int, float)) and isinstance(high, (int, float))
    return numbers and math.isfinite(low) and math.isfinite(high) and bool(low < high)


def _linearised(sums: Sums, aggregate: Aggregate, algebra: Algebra, then: Callable[..., Any]) -> Any:
    """Hand on the answer, and the coefficients of the polynomial z in the value."""
    weight = sums.weighted[0]
    if aggregate == "count":
        return then(weight, 1.0)
    if aggregate == "sum":
        return then(sums.weighted[1], 0.0, 1.0)
    each, mean = algebra.ratio(1.0, weight), algebra.ratio(sums.weighted[1], weight)
    if aggregate == "avg":
        return algebra.let([mean, each], lambda mean, each: then(mean, -mean * each, each))
    square = algebra.ratio(sums.weighted[2], weight)

    def spread_out(mean: Number, each: Number, variance: Number) -> Any:
        return then(variance, (mean * mean - variance) * each, -2.0 * mean * each, each)

    return algebra.let([mean, each, algebra.larger(square - mean * mean, 0.0)], spread_out)


def _widening(confidence: float, part: Number) -> Number:
    """Widen as Student's t does (its expansion), with degrees of freedom in proportion to the equal contributions.

    ``part`` of the spread is due to the largest contribution alone.
    """
    quantile = _quantile("normal", confidence)
    return 1.0 + (quantile**2 + 1) / (4 * FREEDOM_PER_EQUAL) * part


def _bounded_spread(
    sums: Sums, z: Sequence[Number], within: tuple[float, float], algebra: Algebra, confidence: float
) -> Number:
    # Σw³ over the survivors estimates Σw² over the input; as a count of at most `heaviest` squared tuples each, it is
    # itself no further off than Hoeffding's bound of the count.
    pieces = sums.spread["hoeffding"][0]
    slack = algebra.ratio(_quantile("hoeffding", confidence) * algebra.sqrt(pieces), sums.weighted[0])
    return pieces * (1.0 + slack) * _largest_square(z, *within, algebra)


def _quantile(method: str, confidence: float) -> float:
    if method == "normal":
        return NormalDist().inv_cdf((1 + confidence) / 2)
    return math.sqrt(math.log(2 / (1 - confidence)) / 2)


def _square(z: Sequence[Number]) -> list[Number]:
    """Multiply a polynomial with itself."""
    square: list[Number] = [0.0] * (2 * len(z) - 1)
    for i, one in enumerate(z):
        for j, other in enumerate(z[i:], start=i):
            if not (_is(0.0, one) or _is(0.0, other)):
                term = one * other if i == j else 2.0 * one * other
                square[i + j] = term if _is(0.0, square[i + j]) else square[i + j] + term
    return square


def _dot(polynomial: list[Number], moments: Any) -> Number:
    """Sum coefficients times moments; moments that a coefficient of zero makes needless are not even asked for."""
    terms = [
        moments[power] if _is(1.0, coefficient) else coefficient * moments[power]
        for power, coefficient in enumerate(polynomial)
        if not _is(0.0, coefficient)
    ]
    total = terms[0]
    for term in terms[1:]:
        total = total + term
    return total


def _is(number: float, coefficient: Number) -> bool:
    """Whether it is just this number, which a formula can do without; an array or a column never is."""
    return isinstance(coefficient, float) and coefficient == number


def _largest_square(z: Sequence[Number], low: Number, high: Number, algebra: Algebra) -> Number:
    """Bound z² over the values between low and high: at either end, or where a parabola turns."""
    ends = [_at(z, low), _at(z, high)]
    if len(z) == 3:
        ends.append(z[0] - algebra.ratio(z[1] * z[1], 4 * z[2]))
    squares = [end * end for end in ends]
    largest = squares[0]
    for square in squares[1:]:
        largest = algebra.larger(largest, square)
    return largest


def _at(z: Sequence[Number], value: Number) -> Number:
    total = z[-1]
    for coefficient in reversed(z[:-1]):
        total = total * value + coefficient
    return total


def _clamped(
    sums: Sums, aggregate: Aggregate, algebra: Algebra, bounds: tuple[Number, Number], within: Within
) -> tuple[Number, Number]:
    """Keep the bounds to what is possible."""
    lower, upper = bounds
    if aggregate == "count":
        # So many were seen.
        lower = algebra.larger(lower, sums.tuples)
    elif aggregate == "variance":
        lower = algebra.larger(lower, 0.0)
    elif aggregate == "avg" and within is not None:
        lower, upper = algebra.larger(lower, within[0]), algebra.smaller(upper, within[1])
    return lower, upper
