"""Work against the time there is for it."""

import math
from dataclasses import replace

import pytest

from penstock.model.errors import InvalidInputError
from penstock.model.load import Cost, Load

COST = Cost(fixed_seconds=0.2, kept_seconds=1e-4, shed_seconds=1e-5)
LOAD = Load(offered_tuples=20_000, cost=COST, available_seconds=2.0, headroom=0.8)


def test_a_batch_costs_its_start_and_its_tuples():
    assert COST.of(kept=0, shed=0) == 0.2
    assert COST.of(kept=10_000, shed=30_000) == pytest.approx(0.2 + 1.0 + 0.3)


def test_load_is_work_against_available_time():
    assert LOAD.work_seconds == pytest.approx(2.2)
    assert LOAD.utilization == pytest.approx(1.1)
    assert LOAD.overloaded
    # 1.6 s - 0.2 s - 20,000 * 10 µs = 1.2 s for tuples at 90 µs more each
    assert LOAD.fitting_keep() == pytest.approx(1.2 / 1.8)


@pytest.mark.parametrize(("tuples", "overloaded"), [(13_999, False), (14_001, True)])
def test_overload_begins_above_the_headroom(tuples, overloaded):
    assert replace(LOAD, offered_tuples=tuples).overloaded is overloaded


@pytest.mark.parametrize(
    ("load", "keep"),
    [
        (replace(LOAD, offered_tuples=0), 1.0),
        (replace(LOAD, offered_tuples=10_000), 1.0),
        # An empty batch that is too slow by itself: there is nothing to drop.
        (replace(LOAD, offered_tuples=0, cost=Cost(fixed_seconds=9, kept_seconds=1e-4)), 1.0),
        (replace(LOAD, cost=Cost(fixed_seconds=9, kept_seconds=1e-4)), 0.0),
        (replace(LOAD, cost=Cost(fixed_seconds=9, kept_seconds=0)), 1.0),
        (replace(LOAD, cost=Cost(fixed_seconds=0, kept_seconds=1e-3, shed_seconds=1e-3)), 1.0),
    ],
)
def test_edges_of_what_fits(load, keep):
    assert load.fitting_keep() == keep


def test_the_explanation_has_both_sides_and_the_units():
    assert LOAD.explain() == "load 1.10 > headroom 0.80: 20,000 tuples need 2.20 s of 2.00 s"
    assert replace(LOAD, offered_tuples=1_000).explain() == (
        "load 0.15 <= headroom 0.80: 1,000 tuples need 0.30 s of 2.00 s"
    )


@pytest.mark.parametrize("name", ["fixed_seconds", "kept_seconds", "shed_seconds"])
@pytest.mark.parametrize("value", [-1e-6, math.nan, math.inf])
def test_a_cost_below_zero_is_refused_by_name(name, value):
    with pytest.raises(InvalidInputError, match=f"{name} must be finite and at least 0, got {value!r}; it is the cost"):
        replace(COST, **{name: value})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"offered_tuples": -1}, "offered_tuples must be finite and at least 0, got -1; it is the size of the next"),
        ({"offered_tuples": math.nan}, "offered_tuples must be finite and at least 0, got nan"),
        ({"available_seconds": 0}, "available_seconds must be finite and above 0, got 0; it is the time the batch may"),
        ({"headroom": 0}, r"headroom must be in \(0, 1\], got 0; it is the share of the available time"),
        ({"headroom": 1.4}, r"headroom must be in \(0, 1\], got 1.4"),
        ({"headroom": math.nan}, r"headroom must be in \(0, 1\], got nan"),
        ({"listed_share": 1.01}, r"listed_share must be in \[0, 1\], got 1.01"),
        ({"listed_keep": math.nan}, r"listed_keep must be in \[0, 1\], got nan"),
    ],
)
def test_a_load_that_makes_no_sense_is_refused(options, message):
    with pytest.raises(InvalidInputError, match=message):
        replace(LOAD, **options)
