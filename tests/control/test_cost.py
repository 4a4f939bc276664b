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
        known.append(model.cost() is not None)
        model.learn(kept=1_000, shed=0, seconds=0.4)

    assert known == [False, False, False, False, True]


def test_empty_batches_do_not_count_as_knowledge():
    assert learned_from([(0, 0)] * 20).cost() is None


def test_the_slow_first_batch_of_a_run_is_not_learned_from():
    model = CostModel()
    model.learn(kept=10, shed=0, seconds=30.0)

    cost = learned_from(varied(20, seed=0), model=model).cost()

    assert cost.of(**TYPICAL) == pytest.approx(TRUE.of(**TYPICAL), rel=0.05)


@pytest.mark.parametrize("seed", range(10))
def test_known_costs_are_recovered_under_20_percent_noise(seed):
    cost = learned_from(varied(40, seed=seed), noise=0.2, seed=seed).cost()

    # About ten batches count, with 20 % noise each: 0.2 / sqrt(10) = 6 % is the spread of a mean.
    assert cost.of(**TYPICAL) == pytest.approx(TRUE.of(**TYPICAL), rel=0.2)
    assert cost.kept_seconds == pytest.approx(TRUE.kept_seconds, rel=0.35)
    assert cost.fixed_seconds == pytest.approx(TRUE.fixed_seconds, abs=0.3)
    assert cost.shed_seconds == pytest.approx(TRUE.shed_seconds, abs=1e-5)


def test_noise_does_not_bias_the_costs():
    costs = [learned_from(varied(40, seed=seed), noise=0.2, seed=seed).cost() for seed in range(40)]

    # 6 % / sqrt(40) = 1 % is the spread of this mean; errors relative to the measured time would put it at -8 %.
    assert np.mean([cost.of(**TYPICAL) for cost in costs]) == pytest.approx(TRUE.of(**TYPICAL), rel=0.03)
    assert np.mean([cost.kept_seconds for cost in costs]) == pytest.approx(TRUE.kept_seconds, rel=0.1)


@pytest.mark.parametrize("seed", range(10))
def test_batches_of_one_size_never_make_a_large_batch_look_free(seed):
    # Sizes differ by 1 %, durations by 20 %: the slope is all noise.
    sizes = np.random.default_rng([seed, 1]).normal(3_000, 30, 40).astype(int)

    cost = learned_from([(kept, 0) for kept in sizes], noise=0.2, seed=seed).cost()

    assert 0.5 < cost.of(kept=60_000, shed=0) / TRUE.of(kept=60_000, shed=0) < 3


@pytest.mark.parametrize("seconds", [0.01, 0.05, 0.5, 5.0])
def test_identical_batches_put_at_least_half_of_the_time_down_to_the_tuples(seconds):
    model = CostModel()
    for _ in range(20):
        model.learn(kept=3_000, shed=0, seconds=seconds)

    cost = model.cost()

    assert cost.of(kept=3_000, shed=0) == pytest.approx(seconds, rel=0.01)
    assert cost.fixed_seconds <= seconds / 2 + 1e-9
    assert cost.fixed_seconds <= 0.1 + 1e-9


def test_the_first_large_batch_settles_what_small_ones_left_open():
    small = learned_from([(2_000, 0)] * 20)
    before = small.cost().of(kept=50_000, shed=0)

    after = learned_from([(40_000, 0)], model=small).cost().of(kept=50_000, shed=0)

    true = TRUE.of(kept=50_000, shed=0)
    assert before > 1.5 * true
    assert after == pytest.approx(true, rel=0.1)


def test_what_was_explored_is_the_largest_batch_remembered_unless_one_was_shed_from():
    grown = learned_from([(1_000, 0), (2_000, 0), (9_000, 0), (3_000, 300)])

    assert learned_from([(9_000, 0)] * 3).explored_tuples is None  # one is warm-up, and two are not enough
    assert grown.explored_tuples == 9_000
    assert learned_from([(5_000, 5_000)], model=grown).explored_tuples is None
    assert learned_from([(1_000, 0)] * 40, model=grown).explored_tuples == 1_000


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
        errors.append(abs(math.log(model.cost().of(**TYPICAL) / changed.of(**TYPICAL))))
        learned_from([batch], cost=changed, model=model)
    errors.append(abs(math.log(model.cost().of(**TYPICAL) / changed.of(**TYPICAL))))

    assert errors[0] == pytest.approx(abs(math.log(factor)), rel=0.1)
    assert errors[1] > 0.5 * errors[0]
    assert max(errors[2:]) < 0.1


def test_a_change_is_followed_under_noise_within_ten_batches():
    doubled = Cost(fixed_seconds=0.6, kept_seconds=2e-4, shed_seconds=2e-5)
    for seed in range(10):
        model = learned_from(varied(30, seed=seed), noise=0.2, seed=seed)
        cost = learned_from(varied(10, seed=seed + 100), cost=doubled, noise=0.2, seed=seed + 100, model=model).cost()
        assert cost.of(**TYPICAL) == pytest.approx(doubled.of(**TYPICAL), rel=0.35)


def test_a_single_slow_batch_moves_the_costs_little():
    model = learned_from(varied(30, seed=0))
    before = model.cost().of(**TYPICAL)
    model.learn(**TYPICAL, seconds=5 * TRUE.of(**TYPICAL))

    # The batch that follows is as before, so nothing has changed for good.
    learned_from(varied(1, seed=2), model=model)

    assert model.cost().of(**TYPICAL) < 1.5 * before


counts = st.integers(0, 10**8)
batches = st.tuples(counts, counts, st.floats(1e-3, 1e4))


@given(st.lists(batches, min_size=4, max_size=60))
def test_no_cost_is_ever_negative_or_infinite_and_dropping_never_costs_more_than_half(seen):
    model = CostModel()
    for kept, shed, seconds in seen:
        model.learn(kept=kept, shed=shed, seconds=seconds)
    cost = model.cost()
    if cost is not None:
        # Cost itself refuses what is negative or not finite.
        assert cost.shed_seconds <= cost.kept_seconds / 2 + 1e-12


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
    before = model.cost()

    with pytest.raises(InvalidInputError, match="cannot be learned from; counts are finite and at least 0 and a dura"):
        model.learn(**({"kept": 1_000, "shed": 0, "seconds": 1.0} | batch))

    assert model.cost() == before


@pytest.mark.parametrize("memory", [0, -0.5, 1.1, math.nan])
def test_a_memory_that_is_no_fraction_is_refused(memory):
    with pytest.raises(
        InvalidInputError, match=r"memory must be in \(0, 1\], got .*; it is what a batch's weight fades"
    ):
        CostModel(memory=memory)
