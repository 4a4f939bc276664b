"""What to drop, and why."""

import math
import pickle

import pytest

from penstock.model.errors import InvalidInputError
from penstock.model.plan import Plan


def test_a_key_gets_its_own_rate_and_all_others_the_common_one():
    plan = Plan(keep=0.25, key_keep={"vip": 1.0, "": 0.0}, reason="burst")

    assert [plan.keep_of(key) for key in ("vip", "", "other", None)] == [1.0, 0.0, 0.25, 0.25]


@pytest.mark.parametrize(
    ("plan", "sheds"),
    [
        (Plan.keep_all("fits"), False),
        (Plan(keep=1.0, key_keep={"vip": 1.0}, reason="fits"), False),
        (Plan(keep=1.0, key_keep={"bot": 0.9}, reason="bots"), True),
        (Plan(keep=0.999, reason="burst"), True),
    ],
)
def test_a_plan_sheds_when_any_rate_is_below_one(plan, sheds):
    assert plan.sheds is sheds


@pytest.mark.parametrize("plan", [Plan.keep_all("fits"), Plan(keep=0.5, key_keep={"a": 0.1}, reason="burst")])
def test_a_plan_survives_pickling(plan):
    assert pickle.loads(pickle.dumps(plan)) == plan


@pytest.mark.parametrize("keep", [-0.1, 1.1, math.nan, None])
def test_a_rate_that_is_no_fraction_is_refused(keep):
    with pytest.raises(InvalidInputError, match=r"^keep must be in \[0, 1\], got .*; it is the share of tuples that"):
        Plan(keep=keep, reason="burst")
    with pytest.raises(InvalidInputError, match=r"^key_keep\['a'\] must be in \[0, 1\], got .*; it is the share of"):
        Plan(keep=0.5, key_keep={"a": keep}, reason="burst")


@pytest.mark.parametrize("key", [7, None, ("a",), b"a"])
def test_a_key_that_is_not_text_is_refused_with_the_text_to_give(key):
    with pytest.raises(InvalidInputError) as refused:
        Plan(keep=0.5, key_keep={key: 0.5}, reason="burst")

    assert str(refused.value) == (
        f"key_keep has the key {key!r} of type {type(key).__name__}; keys are compared as text, so give str({key!r})"
    )


def test_a_plan_without_a_reason_is_refused():
    with pytest.raises(InvalidInputError, match="reason must not be empty; every decision says why it was made"):
        Plan(keep=0.5, reason="")
