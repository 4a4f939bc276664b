"""One hash family: the same columns wherever it runs, spread as a 2-universal family spreads."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.model.errors import InvalidInputError
from penstock.sketch.hashing import NULL_ITEM, HashFamily, chance, column_of, item_of, items_of, mix

items = st.integers(0, 2**64 - 1)


def column_in_python(item: int, family: HashFamily, row: int) -> int:
    """The definition, in arithmetic that cannot overflow."""
    first, second, third = (int(number) for number in family.coefficients[row])
    hashed = ((first + (item & 0xFFFFFFFF)) * (second + (item >> 32)) + third) % 2**64
    return ((hashed >> 32) * family.columns) >> 32


@settings(deadline=None)  # the first call compiles
@given(items, st.integers(1, 5_000), st.integers(0, 2**40))
def test_numba_numpy_and_python_agree(item, columns, seed):
    family = HashFamily(rows=3, columns=columns, seed=seed)

    in_numpy = family.columns_of(np.array([item], dtype=np.uint64))[:, 0].tolist()

    assert in_numpy == [column_in_python(item, family, row) for row in range(3)]
    assert in_numpy == [column_of(np.uint64(item), family.coefficients, row, np.uint64(columns)) for row in range(3)]
    assert all(0 <= column < columns for column in in_numpy)


def test_the_family_is_fixed_for_good():
    """Sketches outlive processes and versions: these columns must never change."""
    family = HashFamily(rows=4, columns=55, seed=7)

    assert family.columns_of(np.array([item_of("de", "mobile")], dtype=np.uint64))[:, 0].tolist() == [35, 29, 51, 23]
    assert item_of("de", "mobile") == 8845569792150034385
    assert mix(np.uint64(5)) == items_of(np.array([5]))[0] == 7134611160154358618


def test_two_items_collide_no_more_often_than_one_in_columns():
    pair = items_of(np.array([1, 2]))
    collided = [
        columns[0] == columns[1]
        for seed in range(4_000)
        for columns in HashFamily(rows=4, columns=55, seed=seed).columns_of(pair)
    ]

    # 16,000 draws at 1/55: three standard deviations above the expectation.
    assert np.mean(collided) <= 1 / 55 + 3 * np.sqrt(1 / 55 / len(collided))


def test_a_key_with_a_missing_part_is_one_item():
    assert item_of(None) == item_of("a", None) == item_of(None, "b") == NULL_ITEM
    assert item_of("a", "b") != item_of("ab") != item_of("b", "a")


def test_draws_are_even_and_repeat():
    drawn = np.array([chance(np.uint64(3), np.uint64(number)) for number in range(20_000)])

    assert drawn.min() >= 0
    assert drawn.max() < 1
    assert abs(drawn.mean() - 0.5) < 0.01
    assert chance(np.uint64(3), np.uint64(7)) == drawn[7] != chance(np.uint64(4), np.uint64(7))


@pytest.mark.parametrize(
    "options", [{"rows": 0, "columns": 5}, {"rows": 1, "columns": 0}, {"rows": 1, "columns": 2**31}]
)
def test_a_family_without_rows_or_columns_is_refused(options):
    with pytest.raises(InvalidInputError):
        HashFamily(**options)
