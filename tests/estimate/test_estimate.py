"""Answers from weighted moments: by hand, on average, and at the edges."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.estimate.answer import Estimate, estimate, estimate_groups, intervals
from penstock.estimate.interval import METHODS
from penstock.estimate.moments import Moments
from penstock.estimate.stratified import Stratum, estimate_stratified
from penstock.model.error_target import MaxError
from penstock.model.errors import InvalidInputError

AGGREGATES = ("count", "sum", "avg", "variance")
METHOD_NAMES = tuple(METHODS)
values = st.lists(st.floats(-1e3, 1e3), min_size=1, max_size=30)


def truth_of(y, aggregate):
    return {"count": len(y), "sum": np.sum(y), "avg": np.mean(y), "variance": np.var(y)}[aggregate]


def sampled(y, keep, *, seeds, seed=0):
    """One sample per seed: survivors with their weights."""
    kept = np.random.default_rng(seed).random((seeds, len(y))) < keep
    return Moments.of(
        np.broadcast_to(y, kept.shape), weights=np.broadcast_to(1 / np.asarray(keep), kept.shape), kept=kept
    )


# --- By hand ---


def test_a_sum_and_its_normal_interval_by_hand():
    # 400 tuples of 2 at keep 0.2: variance 400 * 5 * 4 * 4 = 32,000; all alike, so 400 equal contributions.
    total = estimate(Moments.of([2.0] * 400, weights=[5.0] * 400), "sum")

    quantile = 1.959964 + (1.959964**3 + 1.959964) / (4 * 2.5 * 400)
    assert total.value == 4000
    assert total.upper - total.value == pytest.approx(quantile * math.sqrt(32_000))
    assert total.relative_error == pytest.approx((total.upper - total.value) / 4000)


def test_a_count_and_its_hoeffding_interval_agree_with_the_papers_equation():
    from penstock.policy.sampling import Query, effective_keep

    counted = estimate(Moments.of([1.0] * 2000, weights=[5.0] * 2000), "count", confidence=0.99, method="hoeffding")

    # Equation 2 with N = 10,000 and the error just found gives back the rate that was used.
    query = Query(name="q", window_tuples=10_000)
    assert effective_keep(query, relative_error=counted.relative_error, miss_probability=0.01) == pytest.approx(0.2)


@pytest.mark.parametrize("aggregate", AGGREGATES)
@pytest.mark.parametrize("method", METHOD_NAMES)
@given(y=values)
def test_the_answer_is_exact_when_nothing_was_shed(aggregate, method, y):
    answer = estimate(Moments.of(y), aggregate, method=method)

    assert answer.exact
    assert answer.relative_error == 0
    assert answer.share == 1
    assert answer.value == pytest.approx(truth_of(y, aggregate), rel=1e-6, abs=1e-5)


@given(first=values, second=values, weight=st.floats(1, 100))
def test_moments_of_parts_add_to_those_of_the_whole(first, second, weight):
    parts = Moments.of(first, weights=[weight] * len(first)) + Moments.of(second, weights=[weight] * len(second))
    whole = Moments.of(first + second, weights=[weight] * (len(first) + len(second)))

    assert parts.weighted == pytest.approx(whole.weighted, rel=1e-9, abs=1e-6)
    assert parts.spread["normal"] == pytest.approx(whole.spread["normal"], rel=1e-9, abs=1e-3)
    assert (parts.tuples, parts.low, parts.high) == (whole.tuples, whole.low, whole.high)


def test_tuples_that_were_sure_to_be_kept_widen_no_interval():
    sure = Moments.of(np.full(5_000, 100.0))
    drawn = Moments.of(np.full(400, 2.0), weights=np.full(400, 5.0))

    both, alone = estimate(sure + drawn, "sum"), estimate(drawn, "sum")

    # The widening for a few large contributions sees the largest value of all, so the two differ by that at most.
    assert both.value == alone.value + 500_000
    assert drawn.spread["normal"][2] == (sure + drawn).spread["normal"][2]


# --- On average ---


@pytest.mark.parametrize("aggregate", ["count", "sum"])
def test_sums_and_counts_are_unbiased_by_group_and_behind_two_drops(aggregate):
    random = np.random.default_rng(11)
    y, group = random.lognormal(size=400), random.integers(0, 3, size=400)
    # Keep rates that differ by tuple, the product of two drops in series.
    first, second = random.uniform(0.3, 1, size=400), random.uniform(0.2, 0.9, size=400)
    kept = (random.random((2000, 400)) < first) & (random.random((2000, 400)) < second)
    for number in range(3):
        of_group = kept & (group == number)
        weights = np.broadcast_to(1 / (first * second), kept.shape)
        answers = intervals(
            Moments.of(np.broadcast_to(y, of_group.shape), weights=weights, kept=of_group), aggregate
        ).value
        standard_error = answers.std(ddof=1) / math.sqrt(len(answers))
        assert abs(answers.mean() - truth_of(y[group == number], aggregate)) < 3 * standard_error


@pytest.mark.parametrize("aggregate", ["count", "sum"])
def test_sums_and_counts_are_unbiased_after_a_join_of_two_shed_streams(aggregate):
    random = np.random.default_rng(12)
    left, right = random.integers(0, 20, size=60), random.integers(0, 20, size=40)
    pairs = np.argwhere(left[:, None] == right[None, :])
    y = random.exponential(size=60)[pairs[:, 0]] * random.exponential(size=40)[pairs[:, 1]]
    # Pairs that share a tuple share its fate, so answers scatter widely: ten times the 2,000 seeds of the other test.
    kept = (random.random((20_000, 60)) < 0.5)[:, pairs[:, 0]] & (random.random((20_000, 40)) < 0.7)[:, pairs[:, 1]]
    weights = np.full(kept.shape, 1 / (0.5 * 0.7))
    answers = intervals(Moments.of(np.broadcast_to(y, kept.shape), weights=weights, kept=kept), aggregate).value

    standard_error = answers.std(ddof=1) / math.sqrt(len(answers))
    assert abs(answers.mean() - truth_of(y, aggregate)) < 3 * standard_error


@pytest.mark.parametrize(("aggregate", "within"), [("count", None), ("sum", None), ("avg", None), ("variance", (0, 8))])
@pytest.mark.parametrize("keep", [0.1, 0.5])
def test_normal_intervals_cover_at_their_stated_rate(aggregate, within, keep):
    y = np.minimum(np.random.default_rng(13).gamma(2.0, size=int(1000 / keep)), 8)
    answers = intervals(sampled(y, keep, seeds=1000), aggregate, within=within)
    covered = (answers.lower <= truth_of(y, aggregate)) & (truth_of(y, aggregate) <= answers.upper)

    assert answers.reliable.mean() > 0.9
    # 1000 seeds: three standard errors are 2 %.
    assert 0.93 <= covered[answers.reliable].mean() <= 0.97


@pytest.mark.parametrize("aggregate", ["count", "sum", "avg"])
@pytest.mark.parametrize("keep", [0.1, 0.5, 0.9])
@pytest.mark.parametrize("within", [None, (0, 20)])
def test_hoeffding_intervals_cover_at_least_as_stated(aggregate, keep, within):
    y = np.random.default_rng(14).gamma(2.0, size=int(100 / keep))
    answers = intervals(sampled(y, keep, seeds=1000), aggregate, method="hoeffding", confidence=0.9, within=within)
    covered = (answers.lower <= truth_of(y, aggregate)) & (truth_of(y, aggregate) <= answers.upper)

    assert answers.reliable.mean() > 0.9
    assert covered[answers.reliable].mean() >= 0.9


# --- Stratified ---


def strata_of(y, sizes, seed):
    random = np.random.default_rng(seed)
    return [
        Stratum.of(random.choice(part, n, replace=False), population=len(part))
        for part, n in zip(y, sizes, strict=True)
    ]


@pytest.mark.parametrize(("aggregate", "within"), [("sum", None), ("avg", None), ("variance", (0, 40))])
@pytest.mark.parametrize("method", METHOD_NAMES)
def test_stratified_answers_are_unbiased_and_cover_at_their_stated_rate(aggregate, within, method):
    random = np.random.default_rng(15)
    y = [random.normal(mean, 1.5, size=size).clip(0, 40) for mean, size in ((2, 3000), (10, 500), (30, 20))]
    answers = [
        estimate_stratified(strata_of(y, (100, 60, 20), seed), aggregate, method=method, within=within)
        for seed in range(600)
    ]
    truth = truth_of(np.concatenate(y), aggregate)
    found = np.array([answer.value for answer in answers])
    covered = np.mean([answer.covers(truth) for answer in answers])

    # A variance is a square: its bias is that of the mean, squared.
    assert abs(found.mean() - truth) < 4 * found.std() / math.sqrt(len(found))
    assert all(answer.reliable for answer in answers)
    assert covered >= 0.95 if method == "hoeffding" else 0.925 <= covered <= 0.975


def test_a_stratum_that_is_whole_is_exact_and_one_without_tuples_leaves_the_sum_unknown():
    whole, unseen = Stratum.of([1.0, 2.0], population=2), Stratum.of([], population=5)

    assert estimate_stratified([whole], "sum").exact
    assert estimate_stratified([whole, unseen], "count").value == 7
    assert estimate_stratified([whole, unseen], "sum") == Estimate(value=None, share=2 / 7)
    assert estimate_stratified([], "avg") == Estimate(value=None)
    assert estimate_stratified([], "count").exact


def test_a_stratum_cannot_hold_fewer_tuples_than_were_drawn():
    with pytest.raises(InvalidInputError, match="population must be at least the 3 tuples drawn, got 2"):
        Stratum.of([1.0, 2.0, 3.0], population=2)
    with pytest.raises(InvalidInputError, match="values of a stratum must be finite"):
        Stratum.of([1.0, math.nan], population=2)


# --- Edges ---


@pytest.mark.parametrize("method", METHOD_NAMES)
@pytest.mark.parametrize("aggregate", AGGREGATES)
def test_nothing_at_all_gives_a_count_of_0_that_nobody_should_rely_on(aggregate, method):
    answer = estimate(Moments.of([]), aggregate, method=method)

    assert answer == Estimate(value=0.0 if aggregate == "count" else None)


@pytest.mark.parametrize("method", METHOD_NAMES)
@pytest.mark.parametrize("aggregate", AGGREGATES)
def test_a_group_of_one_survivor_has_a_value_and_no_bounds(aggregate, method):
    answer = estimate_groups(Moments.by_group(["a"], [7.0], weights=[4.0]), aggregate, method=method)["a"]

    value = {"count": 4.0, "sum": 28.0, "avg": 7.0, "variance": 0.0}[aggregate]
    assert answer == Estimate(value=value, share=0.25)


@pytest.mark.parametrize("aggregate", AGGREGATES)
def test_missing_and_infinite_values_are_left_out(aggregate):
    with_gaps = estimate(Moments.of([1.0, math.nan, 2.0, math.inf, -math.inf]), aggregate)

    assert with_gaps == estimate(Moments.of([1.0, 2.0]), aggregate)


@pytest.mark.parametrize("valued", [0.5, 0.05])
def test_a_sum_over_rows_of_which_most_have_no_value_covers_at_its_stated_rate(valued):
    random = np.random.default_rng(17)
    y = np.where(random.random(4000) < valued, random.gamma(2, 3, 4000), math.nan)
    draws = random.random((4000, len(y))) < 0.25
    weights = np.full(len(y), 4.0)
    answers = [estimate(Moments.of(y[kept], weights=weights[kept]), "sum") for kept in draws]

    reliable = [answer for answer in answers if answer.reliable]
    assert len(reliable) > 0.95 * len(answers)
    assert 0.935 <= np.mean([answer.covers(np.nansum(y)) for answer in reliable]) <= 0.965


def test_a_sum_rests_on_rows_and_is_unknown_where_none_has_a_value():
    gaps = estimate(Moments.of([3.0, math.nan], weights=[2.0, 4.0]), "sum")
    nothing = estimate(Moments.of([math.nan] * 2, weights=[4.0] * 2), "sum")

    assert (gaps.value, gaps.share) == (6.0, 2 / 6)
    assert (nothing.value, nothing.share, nothing.reliable) == (None, 0.25, False)


def test_a_sum_of_zero_has_bounds_and_no_relative_error():
    answer = estimate(Moments.of([1.0, -1.0] * 200, weights=[2.0] * 400), "sum")

    assert answer.value == 0
    assert answer.lower < 0 < answer.upper
    assert answer.relative_error is None
    assert not MaxError(relative=0.5).met_by(answer.relative_error)


def test_values_all_alike_do_not_make_a_sampled_average_certain():
    assert not estimate(Moments.of([3.0] * 1000, weights=[2.0] * 1000), "avg").reliable


def test_one_tuple_that_outweighs_all_others_is_not_relied_on():
    assert not estimate(Moments.of([1.0] * 999 + [1e6], weights=[2.0] * 1000), "sum").reliable


def test_the_variance_has_bounds_only_within_a_known_range():
    moments = Moments.of(np.random.default_rng(0).random(2000), weights=np.full(2000, 2.0))

    assert not estimate(moments, "variance").reliable
    assert estimate(moments, "variance", within=(0.0, 1.0)).reliable


def test_a_count_is_never_said_to_be_below_what_was_seen():
    counted = estimate(Moments.of([1.0] * 100, weights=[1.02] * 100), "count", method="hoeffding", confidence=0.999)

    assert counted.lower == 100


@pytest.mark.parametrize("confidence", [0, 1, -0.5, 1.5, 95, math.nan, None, True])
def test_a_confidence_outside_0_and_1_is_refused(confidence):
    for act in (
        lambda: estimate(Moments.of([1.0]), "sum", confidence=confidence),
        lambda: estimate_stratified([], "sum", confidence=confidence),
        lambda: MaxError(relative=0.1, confidence=confidence),
    ):
        with pytest.raises(InvalidInputError, match=r"^confidence must be in \(0, 1\), got .*; it is the share"):
            act()


@pytest.mark.parametrize(
    ("act", "message"),
    [
        (
            lambda: estimate(Moments.of([1.0]), "median"),
            "aggregate must be 'count', 'sum', 'avg' or 'variance', got 'median'",
        ),
        (
            lambda: estimate(Moments.of([1.0]), "sum", method="bayes"),
            "method must be 'normal' or 'hoeffding', got 'bayes'",
        ),
        (
            lambda: estimate(Moments.of([1.0]), "sum", within=(2, 1)),
            r"within must be two finite numbers, .* got \(2, 1\)",
        ),
        (lambda: Moments.of([1.0], weights=[0.5]), r"weights must be finite and at least 1, got .*0\.5"),
        (lambda: Moments.of([1.0], weights=[math.nan]), "weights must be finite and at least 1, got .*nan"),
        (lambda: MaxError(relative=0), "relative must be finite and above 0, got 0"),
        (lambda: MaxError(relative=0.1, otherwise="panic"), "otherwise must be 'warn', 'null' or 'stop', got 'panic'"),
    ],
)
def test_what_cannot_be_answered_is_refused(act, message):
    with pytest.raises(InvalidInputError, match=f"^{message}"):
        act()
