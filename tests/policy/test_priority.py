"""Listed keys first; the numbers are worked out by hand from a load of which 0.45 fits."""

import pytest

from penstock.model.errors import InvalidInputError
from penstock.model.load import Cost, Load
from penstock.policy.priority import Priority


def load_of(tuples=40_000, **measured):
    # 4 s of work, 0.9 * 2 s to plan with: 0.45 of it fits.
    cost = Cost(fixed_seconds=0, kept_seconds=1e-4)
    return Load(offered_tuples=tuples, cost=cost, available_seconds=2.0, headroom=0.9, **measured)


@pytest.mark.parametrize(
    ("listed_share", "listed_keep", "rest"),
    [
        (0.2, 1.0, 0.3125),  # (0.45 - 0.2) / 0.8
        (0.4, 0.5, 0.25 / 0.6),  # (0.45 - 0.2) / 0.6
        (0.5, 0.0, 0.9),  # the listed keys take nothing, so 0.45 / 0.5
        (0.7, 0.1, 1.0),  # (0.45 - 0.07) / 0.3 > 1
        (0.5, 1.0, 0.01),  # the listed keys alone do not fit: the others get the least
        (1.0, 1.0, 1.0),  # there are no others
    ],
)
def test_the_others_share_what_the_listed_keys_leave(listed_share, listed_keep, rest):
    plan = Priority(keep={"vip": 1.0}, min_keep=0.01).decide(
        load_of(listed_share=listed_share, listed_keep=listed_keep)
    )

    assert plan.keep == pytest.approx(rest)
    assert plan.key_keep == {"vip": 1.0}


def test_until_measured_the_listed_keys_count_as_equally_frequent():
    policy = Priority(keep={"vip": 1.0, "bot": 0.1}, listed_share=0.4)

    # (0.45 - 0.4 * 0.55) / 0.6
    assert policy.decide(load_of()).keep == pytest.approx(0.23 / 0.6)
    # What was measured counts more than what was assumed: (0.45 - 0.1 * 0.1) / 0.9
    assert policy.decide(load_of(listed_share=0.1, listed_keep=0.1)).keep == pytest.approx(0.44 / 0.9)


def test_listed_keys_keep_their_rate_while_the_others_shrink():
    policy = Priority(keep={"vip": 0.8}, listed_share=0.1)
    plans = [policy.decide(load_of(tuples)) for tuples in (10_000, 20_000, 40_000, 80_000)]

    assert [plan.keep_of("vip") for plan in plans] == [1.0, 0.8, 0.8, 0.8]
    assert [plan.keep_of("anyone") for plan in plans] == pytest.approx([1.0, 0.82 / 0.9, 0.37 / 0.9, 0.145 / 0.9])


def test_the_reason_counts_the_listed_keys():
    assert Priority(keep={"a": 1, "b": 1}).decide(load_of()).reason == (
        "load 2.00 > headroom 0.90: 40,000 tuples need 4.00 s of 2.00 s; 2 listed keys first"
    )


def test_a_list_without_keys_is_refused_and_points_to_uniform():
    with pytest.raises(InvalidInputError, match=r"keep must list at least one key and its rate; .* use Uniform\(\)"):
        Priority(keep={})


def test_a_key_that_is_not_text_is_refused_with_the_text_to_give():
    with pytest.raises(InvalidInputError, match=r"key_keep has the key 7 of type int; .* give str\(7\)"):
        Priority(keep={7: 1.0})


@pytest.mark.parametrize("options", [{"keep": {"a": 1.5}}, {"listed_share": 2}, {"min_keep": float("nan")}])
def test_a_rate_that_is_no_fraction_is_refused(options):
    with pytest.raises(InvalidInputError, match=r"must be in \[0, 1\], got "):
        Priority(**({"keep": {"a": 1.0}} | options))
