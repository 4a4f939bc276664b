"""The concept of a grouped query, and how concepts drift."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.model.errors import InvalidInputError
from penstock.policy.strata.drift import Drift, drift, scalar_drift
from penstock.policy.strata.groups import GroupConcept
from penstock.policy.strata.scalar import ScalarConcept
from penstock.sketch.reservoir import Reservoir

tuples = st.lists(st.tuples(st.integers(-5, 5), st.floats(-100, 100)), max_size=60)


def concept_of(pairs):
    return GroupConcept.of(
        np.array([key for key, _ in pairs], dtype=np.int64), np.array([value for _, value in pairs], dtype=float)
    )


@given(parts=st.lists(tuples, min_size=1, max_size=5))
def test_concepts_of_parts_merge_to_the_concept_of_the_whole(parts):
    merged = GroupConcept.merge(*map(concept_of, parts))
    whole = concept_of([pair for part in parts for pair in part])

    assert merged.keys.tolist() == whole.keys.tolist()
    assert merged.counts.tolist() == whole.counts.tolist()
    np.testing.assert_allclose(merged.means, whole.means, atol=1e-9)
    np.testing.assert_allclose(merged.squares, whole.squares, atol=1e-6)


def test_moments_are_those_of_numpy():
    values = np.array([1.0, 4.0, 4.0, 10.0])
    concept = GroupConcept.of(np.array([1, 2, 2, 2]), values)

    assert concept.means.tolist() == [1.0, 6.0]
    assert concept.squares[1] / 3 == pytest.approx(values[1:].var())
    assert concept.variation()[1] == pytest.approx(values[1:].std() / 6.0)


def test_values_that_are_missing_leave_the_others_as_they_are():
    concept = GroupConcept.of(np.array([1, 1, 1]), np.array([2.0, np.nan, 4.0]))

    assert (concept.counts.tolist(), concept.means.tolist()) == ([3], [3.0])
    assert concept.variation()[0] == pytest.approx(1 / 3)


def test_a_group_around_zero_counts_as_varying():
    assert GroupConcept.of(np.array([1, 1]), np.array([-1.0, 1.0])).variation().tolist() == [1.0]


def test_keys_out_of_order_are_refused():
    with pytest.raises(InvalidInputError, match="ascending"):
        GroupConcept.of_codes(np.array([2, 1]), np.array([0, 1]))


def test_the_same_window_has_not_drifted_and_another_wholly():
    one, other = GroupConcept.of(np.array([1, 1, 2])), GroupConcept.of(np.array([3, 4]))

    assert drift(one, one) == Drift(overlap=1.0, distance=0.0)
    assert drift(one, other) == Drift(overlap=0.0, distance=1.0)
    assert drift(one, GroupConcept.empty()) == Drift(overlap=0.0, distance=1.0)
    assert drift(GroupConcept.empty(), GroupConcept.empty()) == Drift(overlap=1.0, distance=0.0)


def test_frequencies_may_move_while_the_groups_stay():
    before, after = GroupConcept.of(np.array([1] * 9 + [2])), GroupConcept.of(np.array([1] + [2] * 9))

    assert drift(before, after) == Drift(overlap=1.0, distance=pytest.approx(0.8))


def test_a_scalar_concept_drifts_by_its_mean_against_its_spread():
    at = ScalarConcept(tuples=10, mean=10.0, variance=1.0)

    assert scalar_drift(at, at) == Drift(overlap=1.0, distance=0.0)
    far = scalar_drift(at, ScalarConcept(tuples=10, mean=100.0, variance=1.0))
    assert far.overlap == 0
    assert far.distance > 0.95


def test_the_rate_of_a_scalar_concept_meets_the_error_it_was_asked_for():
    random = np.random.default_rng(4)
    values = random.lognormal(0, 0.5, 200_000)
    reservoir = Reservoir(2_000, seed=3)
    reservoir.update(values)
    keep = ScalarConcept.of_sample(reservoir).keep_for(relative_error=0.05)
    assert keep == pytest.approx(ScalarConcept.of(values).keep_for(relative_error=0.05), rel=0.05)
    off = [abs(values[random.random(len(values)) < keep].sum() / keep / values.sum() - 1) for _ in range(200)]
    assert np.mean(np.array(off) <= 0.05) >= 0.95


def test_an_empty_scalar_window_is_kept():
    assert ScalarConcept.of(np.empty(0)).keep_for(relative_error=0.1) == 1.0
    assert ScalarConcept.of_sample(Reservoir(5, seed=1)).keep_for(relative_error=0.1) == 1.0
