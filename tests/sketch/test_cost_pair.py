"""Count-min never underestimates; pairs merge, travel and estimate as [LAS20] proves."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.model.errors import InvalidInputError, PlanLogError
from penstock.sketch.cost_pair import CostPair
from penstock.sketch.count_min import CountMin, Shape
from penstock.sketch.hashing import items_of

SMALL = Shape(rows=3, columns=8, seed=5)
executions = st.lists(st.tuples(st.integers(0, 30), st.floats(1e-6, 10)), max_size=60)


def items(numbers) -> np.ndarray:
    return items_of(np.array(list(numbers), dtype=np.int64))


def pair_of(executed, shape=SMALL) -> CostPair:
    pair = CostPair(shape)
    pair.update(items(item for item, _ in executed), np.array([cost for _, cost in executed]))
    return pair


def test_the_shape_follows_the_paper():
    assert Shape.of(eps=0.05, delta=0.1) == Shape(rows=4, columns=55)
    assert Shape.of(eps=0.7, delta=0.25) == Shape(rows=2, columns=4)  # [LAS20] figure 1


@pytest.mark.parametrize("bounds", [{"eps": 0, "delta": 0.1}, {"eps": 0.1, "delta": 1}, {"eps": 3, "delta": 0.1}])
def test_a_shape_without_meaning_is_refused(bounds):
    with pytest.raises(InvalidInputError, match="it bounds the error"):
        Shape.of(**bounds)


@settings(deadline=None)  # the first call compiles
@given(st.lists(st.integers(0, 50)))
def test_count_min_never_underestimates(numbers):
    counts = CountMin(SMALL)
    counts.update(items(numbers))

    truth = {number: numbers.count(number) for number in set(numbers)}

    assert (counts.estimate(items(truth)) >= list(truth.values())).all()


@settings(deadline=None)  # the first call compiles
@given(st.lists(st.integers(0, 50)), st.lists(st.integers(0, 50)))
def test_merged_counts_equal_all_at_once(left, right):
    sketches = [CountMin(SMALL) for _ in range(3)]
    for sketch, numbers in zip(sketches, (left, right, left + right), strict=True):
        sketch.update(items(numbers))

    assert (sketches[0].merge(sketches[1]).cells == sketches[2].cells).all()


@settings(deadline=None)  # the first call compiles
@given(executions, executions)
def test_merged_pairs_equal_all_at_once(left, right):
    merged = pair_of(left).merge(pair_of(right))

    assert np.allclose(merged.cells, pair_of(left + right).cells, rtol=1e-12)


def test_sketches_with_other_hash_functions_do_not_merge():
    with pytest.raises(InvalidInputError, match="make both from one Shape"):
        CostPair(SMALL).merge(CostPair(Shape(rows=3, columns=8, seed=6)))


@settings(deadline=None)  # the first call compiles
@given(executions)
def test_a_pair_survives_the_journey_as_bytes(executed):
    pair = pair_of(executed)

    arrived = CostPair.from_bytes(pair.to_bytes())

    assert arrived.shape == pair.shape
    assert (arrived.cells == pair.cells).all()


@pytest.mark.parametrize(
    "damage", [lambda data: data[:-3], lambda data: b"", lambda data: data[:25] + b"x" + data[26:]]
)
def test_damaged_bytes_are_named(damage):
    with pytest.raises(PlanLogError, match="no cost pair"):
        CostPair.from_bytes(damage(pair_of([(1, 0.5), (2, 0.25)]).to_bytes()))


@settings(deadline=None)  # the first call compiles
@given(executions)
def test_estimates_lie_between_the_cheapest_and_the_dearest(executed):
    pair = pair_of(executed)
    if executed:
        costs = [cost for _, cost in executed]
        estimates = pair.estimate(items(range(40)))
        assert (estimates >= min(costs) * (1 - 1e-9)).all()
        assert (estimates <= max(costs) * (1 + 1e-9)).all()


def test_the_row_with_the_smallest_count_is_trusted_not_the_smallest_ratio():
    shape = Shape(rows=2, columns=4, seed=1)
    numbers = items(range(200))
    columns = shape.family().columns_of(numbers)
    # A partner that shares the first item's cell in row 0 only, and is cheap and frequent.
    partner = next(
        index for index in range(1, 200) if columns[0, index] == columns[0, 0] and columns[1, index] != columns[1, 0]
    )
    pair = CostPair(shape)
    pair.update(numbers[[0, *[partner] * 9]], np.array([10.0, *[1.0] * 9]))

    assert pair.estimate(numbers[:1])[0] == 10.0


def test_an_unseen_item_costs_the_mean_or_the_fallback():
    pair = CostPair(Shape(rows=4, columns=1_000))
    unseen = items([77])
    assert pair.mean_seconds is None
    assert pair.estimate(unseen)[0] == 0

    pair.update(items([1, 2]), np.array([2.0, 4.0]))

    assert pair.estimate(unseen)[0] == 3.0
    assert pair.estimate(unseen, fallback_seconds=7.0)[0] == 7.0


def test_weights_count_as_repetitions():
    repeated, weighed = CostPair(SMALL), CostPair(SMALL)
    repeated.update(items([3] * 5 + [4]), np.array([2.0] * 5 + [1.0]))
    weighed.update(items([3, 4]), np.array([2.0, 1.0]), np.array([5.0, 1.0]))

    assert np.allclose(repeated.cells, weighed.cells)


def test_fading_leaves_the_estimates_and_makes_room_for_the_new():
    pair = pair_of([(1, 2.0)] * 10).faded(0.1)
    assert pair.estimate(items([1]))[0] == pytest.approx(2.0)

    pair.update(items([1]), np.array([4.0]))

    assert pair.estimate(items([1]))[0] == pytest.approx(3.0)


def test_a_pair_is_stable_when_nothing_moves_and_not_when_costs_double():
    pair = pair_of([(number, 1.0 + number) for number in range(30)])
    snapshot = pair.snapshot()
    assert pair.instability(snapshot) == 0
    assert pair.instability(np.zeros_like(snapshot)) == np.inf

    pair.update(items(range(30)), np.arange(30) * 3.0 + 3.0)

    assert pair.instability(snapshot) > 0.5
    assert pair.instability(snapshot, by_traffic=True) > 0.5


def test_empty_cells_count_as_the_mean_and_do_not_spoil_the_comparison():
    pair = CostPair(Shape(rows=2, columns=500))
    pair.update(items([1]), np.array([2.0]))

    assert (pair.snapshot() == 2.0).all()
    assert pair.instability(pair.snapshot()) == 0


def test_theorem_5_by_monte_carlo():
    """4,096 equally frequent items, costs 1 to 64, 55 columns: 32.085 is expected for cost 1, 32.915 for cost 64."""
    costs = np.repeat(np.arange(1.0, 65.0), 64)
    numbers = items(range(4096))
    cheap, dear, draws = 0.0, 0.0, 1_000
    for seed in range(draws):
        columns = Shape(rows=4, columns=55, seed=seed).family().columns_of(numbers)
        for row in columns:
            ratio = np.bincount(row, weights=costs, minlength=55) / np.bincount(row, minlength=55)
            cheap += ratio[row[:64]].mean()
            dear += ratio[row[-64:]].mean()

    total, n, k = costs.sum(), costs.size, 55
    expected = [
        (total - cost) / (n - 1) - k * (total - n * cost) / (n * (n - 1)) * (1 - (1 - 1 / k) ** n) for cost in (1, 64)
    ]
    assert expected == pytest.approx([32.085, 32.915], abs=0.001)
    assert cheap / (4 * draws) == pytest.approx(32.085, abs=0.02)
    assert dear / (4 * draws) == pytest.approx(32.915, abs=0.02)
