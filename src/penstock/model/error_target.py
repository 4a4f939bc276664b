"""How wrong an answer may be, and what happens to one that is worse."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from penstock.model.errors import require_choice, require_positive, require_share

Behaviour = Literal["warn", "null", "stop"]
Method = Literal["normal", "hoeffding"]


@dataclass(frozen=True, slots=True, kw_only=True)
class MaxError:
    """A target for the error of answers: relative to the answer, at a confidence.

    Parameters
    ----------
    relative
        Largest half-width of an answer's interval, as a share of the answer.
    confidence
        Share of answers whose interval is to hold the truth.
    otherwise
        What becomes of an answer that misses the target: ``"warn"`` gives it out as it is, and the run says so;
        ``"null"`` gives null in its place; ``"stop"`` ends the query.
    method
        ``"hoeffding"`` for bounds that hold whatever the values' distribution, ``"normal"`` for narrower ones that
        need enough tuples.

    Examples
    --------
    >>> MaxError(relative=0.05, confidence=0.99).met_by(0.03), MaxError(relative=0.05).met_by(None)
    (True, False)
    """

    relative: float
    confidence: float = 0.95
    otherwise: Behaviour = "warn"
    method: Method = "normal"

    def __post_init__(self) -> None:
        require_positive("relative", self.relative, meaning="the largest relative error to allow, such as 0.05")
        require_confidence(self.confidence)
        require_method(self.method)
        meaning = "what becomes of an answer that misses its target"
        require_choice("otherwise", self.otherwise, get_args(Behaviour), meaning=meaning)

    def met_by(self, relative_error: float | None) -> bool:
        """Whether an answer of this relative error is good enough; one of unknown error is not."""
        return relative_error is not None and relative_error <= self.relative


def require_confidence(confidence: float) -> None:
    """Refuse a confidence outside (0, 1).

    >>> require_confidence(95)
    Traceback (most recent call last):
    ...
    penstock.model.errors.InvalidInputError: confidence must be in (0, 1), got 95; it is the share of intervals that \
hold the truth, such as 0.95
    """
    require_share("confidence", confidence, meaning="the share of intervals that hold the truth, such as 0.95")


def require_method(method: str) -> None:
    """Refuse a method that is not known."""
    meaning = "what an interval rests on: hoeffding holds for any distribution, normal is narrower"
    require_choice("method", method, get_args(Method), meaning=meaning)
