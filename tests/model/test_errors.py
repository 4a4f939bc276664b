"""Values that cannot be worked with are refused: what, why, and what it should be."""

import math

import pytest

from penstock.model.errors import (
    InvalidInputError,
    PenstockError,
    require_fraction,
    require_not_negative,
    require_positive,
)

NOT_NUMBERS = [None, "0.5", True, [0.5]]


@pytest.mark.parametrize("value", [-0.1, 1.1, math.nan, math.inf, -math.inf, *NOT_NUMBERS])
def test_a_fraction_outside_its_range_is_refused(value):
    with pytest.raises(InvalidInputError) as refused:
        require_fraction("keep", value, meaning="the share that survives")

    assert str(refused.value) == f"keep must be in [0, 1], got {value!r}; it is the share that survives"


@pytest.mark.parametrize("value", [0, -1, math.nan, math.inf, *NOT_NUMBERS])
def test_what_must_be_positive_is_refused_otherwise(value):
    with pytest.raises(InvalidInputError) as refused:
        require_positive("span_seconds", value, meaning="how long it lasts")

    assert str(refused.value) == f"span_seconds must be finite and above 0, got {value!r}; it is how long it lasts"


@pytest.mark.parametrize("value", [-1e-9, math.nan, math.inf, *NOT_NUMBERS])
def test_what_must_not_be_negative_is_refused_otherwise(value):
    with pytest.raises(InvalidInputError) as refused:
        require_not_negative("offered", value, meaning="a count")

    assert str(refused.value) == f"offered must be finite and at least 0, got {value!r}; it is a count"


@pytest.mark.parametrize(
    ("require", "values"),
    [(require_fraction, [0, 0.5, 1]), (require_positive, [1e-9, 5]), (require_not_negative, [0, 0.0, 7])],
)
def test_the_edges_are_accepted(require, values):
    for value in values:
        require("value", value, meaning="anything")


def test_a_refusal_can_be_caught_as_a_value_error_and_as_ours():
    assert issubclass(InvalidInputError, ValueError)
    assert issubclass(InvalidInputError, PenstockError)
