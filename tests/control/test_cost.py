"""Learning what batches cost, from noisy ones."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.control.cost import CostModel
from penstock.model.errors import InvalidInputError
from penstock.model.load import Cost

TRUE = Cost(fixed_seconds=0.3, kept_seconds=1e-4, shed_seconds=1e-5)
TYPICAL = {"kept": 15_000, "shed": 30_000}


def learned_from(batches, *, cost=TRUE, noise=0.0, seed=0, model=None):
    """Let a model see batches of (kept, shed) that take their true time, give or take the noise."""
    model = model or CostModel()
    random = np.random.default_rng(seed)
    for kept, shed in batches:
        factor = random.lognormal(-(noise**2) / 2, noise)
        model.learn(kept=kept, shed=shed, seconds=cost.of(kept=kept, shed=shed) * factor)
    return model


def varied(count, *, seed):
    """Batches of 1,000 to 30,000 kept tuples, half of them with up to 60,000 shed ones."""
    random = np.random.default_rng([seed, 1])
    return [(random.integers(1_000, 30_000), random.integers(0, 60_000) * (i % 2)) for i in range(count)]


def test_nothing_is_known_before_three_batches_after_the_first():
    model = CostModel()
    known = []
    for _ in range(5):
        known.append(model.forecast() is not None)
        model.learn(kept=1_000, shed=0, seconds=0.4)

    assert known == [False, False, False, False, True]


def test_empty_batches_do_not_count_as_knowledge():
    assert learned_from([(0, 0)] * 20).forecast() is None


def test_the_slow_first_batch_of_a_run_is_not_learned_from():
    model = CostModel()
    model.learn(kept=10, shed=0, seconds=30.0)

    cost = learned_from(varied(20, seed=0), model=model).forecast().cost

    assert cost.of(**TYPICAL) == pytest.approx(TRUE.of(**TYPICAL), rel=0.05)


@pytest.mark.parametrize("seed", range(10))
def test_known_costs_are_recovered_under_20_percent_noise(seed):
    cost = learned_from(varied(40, seed=seed), noise=0.2, seed=seed).forecast().cost

    # About ten batches count, with 20 % noise each: 0.2 / sqrt(10) = 6 % is the spread of a mean.
    assert cost.of(**TYPICAL) == pytest.approx(TRUE.of(**TYPICAL), rel=0.2)
    assert cost.kept_seconds == pytest.approx(TRUE.kept_seconds, rel=0.35)
    assert cost.fixed_seconds == pytest.approx(TRUE.fixed_seconds, abs=0.3)
    assert cost.shed_seconds == pytest.approx(TRUE.shed_seconds, abs=1e-5)


def test_noise_does_not_bias_the_costs():
    costs = [learned_from(varied(40, seed=seed), noise=0.2, seed=seed).forecast().cost for seed in range(40)]

    # 6 % / sqrt(40) = 1 % is the spread of this mean; errors relative to the measured time would put it at -8 %.
    assert np.mean([cost.of(**TYPICAL) for cost in costs]) == pytest.approx(TRUE.of(**TYPICAL), rel=0.03)
    assert np.mean([cost.kept_seconds for cost in costs]) == pytest.approx(TRUE.kept_seconds, rel=0.1)


@pytest.mark.parametrize("seed", range(10))
def test_batches_of_one_size_never_make_a_large_batch_look_free(seed):
    # Sizes differ by 1 %, durations by 20 %: the slope is all noise.
    sizes = np.random.default_rng([seed, 1]).normal(3_000, 30, 40).astype(int)

    cost = learned_from([(kept, 0) for kept in sizes], noise=0.2, seed=seed).forecast().cost

    assert 0.5 < cost.of(kept=60_000, shed=0) / TRUE.of(kept=60_000, shed=0) < 3


@pytest.mark.parametrize("seconds", [0.01, 0.05, 0.5, 5.0])
def test_identical_batches_tell_nothing_apart_and_the_forecast_says_so(seconds):
    model = CostModel()
    for _ in range(20):
        model.learn(kept=3_000, shed=0, seconds=seconds)

    forecast = model.forecast()

    assert forecast.seconds(kept=3_000, shed=0) == pytest.approx(seconds, rel=0.01)
    assert forecast.cost.fixed_seconds == pytest.approx(seconds / 2, rel=0.1)
    # Were nine tenths of it for the rows, ten times the rows would take nine times as long: that is not ruled out.
    assert forecast.at_most(kept=30_000, shed=0) > 9 * seconds > 1.5 * forecast.seconds(kept=30_000, shed=0)
    # A batch like the others holds no such risk.
    assert forecast.at_most(kept=3_000, shed=0) < 1.3 * seconds


def test_the_first_large_batch_settles_what_small_ones_left_open():
    true = TRUE.of(kept=50_000, shed=0)
    small = learned_from([(2_000, 0)] * 20)
    before = small.forecast()

    after = learned_from([(40_000, 0)], model=small).forecast()

    assert before.at_most(kept=50_000, shed=0) > 2 * true
    assert after.seconds(kept=50_000, shed=0) == pytest.approx(true, rel=0.1)
    assert after.at_most(kept=50_000, shed=0) < 1.5 * true


def test_what_spark_reports_beside_the_job_is_no_cost_of_rows():
    # 200 rows of a microsecond each; the commit goes from 0.3 s to 2.4 s.
    model = CostModel()
    for overhead in [0.3] * 10 + [2.4] * 2:
        model.learn(kept=200, shed=0, seconds=0.1 + overhead, overhead_seconds=overhead)

    cost = model.forecast().cost

    assert cost.fixed_seconds == pytest.approx(2.45, abs=0.03)
    assert cost.kept_seconds * 200 < 0.1


def test_rows_of_other_sources_have_a_cost_of_their_own():
    random = np.random.default_rng(0)
    model = CostModel()
    for _ in range(40):
        kept, foreign = random.integers(1_000, 5_000), random.integers(0, 500_000)
        model.learn(kept=kept, shed=0, foreign=foreign, seconds=0.2 + kept * 1e-4 + foreign * 2e-6)

    cost = model.forecast().cost

    assert cost.foreign_seconds == pytest.approx(2e-6, rel=0.05)
    assert cost.kept_seconds == pytest.approx(1e-4, rel=0.05)
    assert cost.beside(100_000).of(kept=1_000, shed=0) == pytest.approx(0.5, rel=0.05)


def test_a_cold_query_is_not_believed_while_it_gets_faster_by_leaps():
    # As seen in front of Kafka: whatever the batches hold, they take their time.
    model = CostModel()
    known = []
    for kept, seconds in [(10, 20), (600, 15.6), (5_000, 9.8), (4_800, 4.7), (2_400, 1.2), (600, 0.8), (500, 0.7)]:
        model.learn(kept=kept, shed=0, seconds=seconds)
        known.append(model.forecast() is not None)

    assert known == [False, False, False, False, False, False, True]
    assert model.forecast().seconds(kept=6_000, shed=0) < 3


def test_a_query_whose_durations_keep_falling_is_believed_in_the_end():
    model = CostModel()
    for seconds in (1.0, 0.4) * 6:
        model.learn(kept=round(1e4 * seconds), shed=0, seconds=seconds)

    assert model.forecast().seconds(kept=4_000, shed=0) == pytest.approx(0.4, rel=0.2)


@pytest.mark.parametrize(("noise", "most"), [(0.02, 1.16), (0.1, 1.25), (0.3, 1.8)])
def test_the_margin_is_that_of_the_noise_that_was_seen(noise, most):
    ratios = []
    for seed in range(10):
        forecast = learned_from(varied(80, seed=seed), noise=noise, seed=seed).forecast()
        ratios.append(forecast.at_most(**TYPICAL) / forecast.seconds(**TYPICAL))

    # A normal distribution has 95 % below 1.645 spreads.
    assert math.exp(noise) < np.mean(ratios) < most


def test_batches_of_one_size_are_varied_on_purpose_while_load_is_shed():
    assert learned_from([(15_000, 30_000)] * 20).forecast().dither > 0
    assert learned_from([(15_000, 0)] * 20).forecast().dither == 0
    assert learned_from(varied(20, seed=0)).forecast().dither == 0


@pytest.mark.parametrize("factor", [1 / 3, 1 / 2, 2, 3])
def test_a_change_of_all_costs_is_learned_from_two_batches(factor):
    changed = Cost(
        fixed_seconds=TRUE.fixed_seconds * factor,
        kept_seconds=TRUE.kept_seconds * factor,
        shed_seconds=TRUE.shed_seconds * factor,
    )
    model = learned_from(varied(30, seed=0))
    errors = []
    for batch in varied(3, seed=1):
        errors.append(abs(math.log(model.forecast().cost.of(**TYPICAL) / changed.of(**TYPICAL))))
        learned_from([batch], cost=changed, model=model)
    errors.append(abs(math.log(model.forecast().cost.of(**TYPICAL) / changed.of(**TYPICAL))))

    assert errors[0] == pytest.approx(abs(math.log(factor)), rel=0.1)
    assert errors[1] > 0.5 * errors[0]
    assert max(errors[2:]) < 0.1


def test_a_change_is_followed_under_noise_within_ten_batches():
    doubled = Cost(fixed_seconds=0.6, kept_seconds=2e-4, shed_seconds=2e-5)
    for seed in range(10):
        model = learned_from(varied(30, seed=seed), noise=0.2, seed=seed)
        learned_from(varied(10, seed=seed + 100), cost=doubled, noise=0.2, seed=seed + 100, model=model)
        cost = model.forecast().cost
        assert cost.of(**TYPICAL) == pytest.approx(doubled.of(**TYPICAL), rel=0.35)


def test_a_single_slow_batch_moves_the_costs_little():
    model = learned_from(varied(30, seed=0))
    before = model.forecast().cost.of(**TYPICAL)
    model.learn(**TYPICAL, seconds=5 * TRUE.of(**TYPICAL))

    # The batch that follows is as before, so nothing has changed for good.
    learned_from(varied(1, seed=2), model=model)

    assert model.forecast().cost.of(**TYPICAL) < 1.5 * before


counts = st.integers(0, 10**8)
batches = st.tuples(counts, counts, st.floats(1e-3, 1e4))


@given(st.lists(batches, min_size=4, max_size=60))
def test_no_cost_is_ever_negative_or_infinite_and_dropping_never_costs_more_than_half(seen):
    model = CostModel()
    for kept, shed, seconds in seen:
        model.learn(kept=kept, shed=shed, seconds=seconds)
    forecast = model.forecast()
    if forecast is not None:
        # Cost itself refuses what is negative or not finite.
        assert forecast.cost.shed_seconds <= forecast.cost.kept_seconds / 2 + 1e-12
        assert forecast.at_most(kept=1_000, shed=1_000) >= forecast.seconds(kept=1_000, shed=1_000)


@pytest.mark.parametrize(
    "batch",
    [
        {"seconds": 0},
        {"seconds": -1.0},
        {"seconds": math.nan},
        {"seconds": math.inf},
        {"kept": -1},
        {"shed": -1},
        {"kept": math.nan},
        {"shed": math.inf},
    ],
)
def test_a_batch_that_cannot_be_is_refused_and_leaves_no_trace(batch):
    model = learned_from(varied(10, seed=0))
    before = model.forecast().cost

    with pytest.raises(InvalidInputError, match="cannot be learned from; counts are finite and at least 0 and a dura"):
        model.learn(**({"kept": 1_000, "shed": 0, "seconds": 1.0} | batch))

    assert model.forecast().cost == before


def test_a_machine_that_gets_faster_while_batches_grow_does_not_make_rows_look_free():
    # Truly 50 µs a row; Java compiles meanwhile.
    model = CostModel()
    for number in range(20):
        kept = 500 + 80 * number
        model.learn(kept=kept, shed=0, seconds=(0.6 + kept * 5e-5) * (1.5 - 0.025 * number))

    assert model.forecast().at_most(kept=120_000, shed=0) > 0.6 + 120_000 * 5e-5
