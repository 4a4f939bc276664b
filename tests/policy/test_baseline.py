"""Keep all, a fixed rate, and just what fits; the numbers are worked out by hand."""

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from penstock.model.errors import InvalidInputError
from penstock.model.load import Cost, Load
from penstock.policy.baseline import KeepAll, Uniform


def load_of(tuples, *, fixed=0.0, kept=1e-4, shed=0.0, available=2.0, headroom=0.9):
    cost = Cost(fixed_seconds=fixed, kept_seconds=kept, shed_seconds=shed)
    return Load(offered_tuples=tuples, cost=cost, available_seconds=available, headroom=headroom)


def test_keep_all_keeps_all_of_a_flood_and_says_that_it_was_asked_to():
    plan = KeepAll().decide(load_of(1_000_000))

    assert (plan.keep, plan.sheds) == (1.0, False)
    assert plan.reason.startswith("keep all, as asked; load 50.00 > headroom 0.90")


@pytest.mark.parametrize(
    ("load", "keep"),
    [
        # 1.8 s to plan with, 1.8 s of work: it just fits.
        (load_of(18_000), 1.0),
        # 1.8 s for 3.6 s of work.
        (load_of(36_000), 0.5),
        # 1.8 s - 0.2 s fixed = 1.6 s for 3.2 s of work.
        (load_of(32_000, fixed=0.2), 0.5),
        # 40,000 to read at 10 µs take 0.4 s; 1.8 s - 0.4 s = 1.4 s buys 1.4 / 90 µs = 15,556 tuples.
        (load_of(40_000, shed=1e-5), 1.4 / (9e-5 * 40_000)),
        # Reading them takes 2 s already: no more than the least.
        (load_of(200_000, shed=1e-5), 0.01),
        # The fixed cost alone takes the time.
        (load_of(1_000, fixed=3.0), 0.01),
    ],
)
def test_uniform_keeps_what_fits(load, keep):
    assert Uniform(min_keep=0.01).decide(load).keep == pytest.approx(keep)


def test_uniform_keeps_all_where_dropping_saves_nothing():
    assert Uniform().decide(load_of(100_000, kept=1e-4, shed=1e-4)).keep == 1.0


def test_uniform_with_a_rate_uses_it_under_overload_only():
    policy = Uniform(keep=0.3)

    assert [policy.decide(load_of(tuples)).keep for tuples in (18_000, 18_001, 1_000_000)] == [1.0, 0.3, 0.3]


def test_uniform_never_falls_below_its_least_rate():
    assert Uniform(min_keep=0.05).decide(load_of(10_000_000)).keep == 0.05
    assert Uniform(keep=0.01, min_keep=0.05).decide(load_of(10_000_000)).keep == 0.05


@given(
    tuples=st.floats(1, 1e9),
    fixed=st.floats(0, 10),
    kept=st.floats(1e-6, 1),
    dropping=st.floats(0, 0.9),
    headroom=st.floats(0.1, 1),
)
def test_what_uniform_keeps_takes_exactly_the_headroom(tuples, fixed, kept, dropping, headroom):
    load = load_of(tuples, fixed=fixed, kept=kept, shed=kept * dropping, headroom=headroom)
    keep = Uniform(min_keep=0).decide(load).keep
    assume(0 < keep < 1)

    taken = load.cost.of(kept=keep * tuples, shed=(1 - keep) * tuples)

    assert taken == pytest.approx(headroom * load.available_seconds)


@pytest.mark.parametrize("options", [{"keep": 1.2}, {"keep": float("nan")}, {"min_keep": -0.1}])
def test_a_rate_that_is_no_fraction_is_refused_by_name(options):
    (name,) = options
    with pytest.raises(InvalidInputError, match=rf"^{name} must be in \[0, 1\], got .*; it is the "):
        Uniform(**options)
