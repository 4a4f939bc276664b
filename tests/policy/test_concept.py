"""Concept-Driven shedding of windows, joins and micro-batches."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.model.errors import InvalidInputError
from penstock.model.load import Cost, Load
from penstock.policy.baseline import KeepAll, Uniform
from penstock.policy.priority import Priority
from penstock.policy.strata.allocation import allocate
from penstock.policy.strata.concept import ConceptDriven
from penstock.policy.strata.groups import GroupConcept
from penstock.policy.strata.join import allocate_join
from penstock.policy.strata.scalar import ScalarConcept
from penstock.policy.strata.selection import WHOLE, batch_thresholds, select, spread
from penstock.policy.strata.windows import shed_window


def window(sizes, seed=0):
    codes = np.random.default_rng(seed).permutation(np.repeat(np.arange(len(sizes)), sizes))
    return codes, spread(np.arange(len(codes)), seed=seed), GroupConcept.of_codes(np.arange(len(sizes)), codes)


@given(sizes=st.lists(st.integers(1, 300), min_size=1, max_size=20), keep=st.floats(0, 1), seed=st.integers(0, 99))
def test_every_group_keeps_exactly_its_quota(sizes, keep, seed):
    codes, hashes, concept = window(sizes, seed)
    quotas = allocate(concept, keep * concept.tuples)

    (rows,) = select(quotas, [(codes, hashes)])

    assert np.bincount(codes[rows], minlength=len(sizes)).tolist() == quotas.tuples.tolist()
    assert (np.diff(rows) > 0).all()


@given(seed=st.integers(0, 99), cut=st.integers(0, 400))
def test_the_same_tuples_survive_in_whatever_order_and_blocks_they_are_stored(seed, cut):
    codes, hashes, concept = window([350, 40, 10], seed)
    quotas = allocate(concept, 60)
    order = np.random.default_rng(seed + 1).permutation(400)
    blocks = [(codes[part], hashes[part]) for part in (order[:cut], order[cut:])]

    first = set(hashes[select(quotas, [(codes, hashes)])[0]].tolist())
    found = select(quotas, blocks)

    assert {int(h) for (_, hashed), rows in zip(blocks, found, strict=True) for h in hashed[rows]} == first


def test_a_group_whose_hashes_are_all_large_keeps_its_quota_all_the_same():
    codes = np.zeros(10_000, dtype=np.int64)
    hashes = WHOLE - 1 - np.arange(10_000)
    quotas = allocate(GroupConcept.of_codes(np.array([7]), codes), 10)

    assert select(quotas, [(codes, hashes)])[0].tolist() == list(range(9_990, 10_000))


def test_hashes_are_spread_evenly_and_another_seed_spreads_otherwise():
    hashes = spread(np.arange(100_000), seed=3)

    counts = np.bincount((hashes >> 43).astype(int), minlength=1_024)
    # Poisson(97.7): six deviations
    assert np.abs(counts - 100_000 / 1_024).max() < 6 * np.sqrt(100_000 / 1_024)
    assert (spread(np.arange(100), seed=4) != hashes[:100]).all()


def test_weights_add_up_to_what_was_offered():
    codes, hashes, concept = window([5_000, 50, 1])

    left = shed_window(ConceptDriven(keep=0.02), [(codes, hashes)], concept)

    assert left.weights[0].sum() == pytest.approx(5_051)
    assert (left.offered, left.kept, left.groups, left.missing_groups) == (5_051, 101, 3, 0)


def test_parts_of_a_window_come_to_the_quotas_of_the_whole():
    codes, hashes, concept = window([900, 80, 15, 5])
    policy = ConceptDriven(keep=0.1)
    whole = shed_window(policy, [(codes, hashes)], concept)
    kept = 0
    for part in ([0, 2], [1, 3]):
        mine = np.isin(codes, part)
        local = np.searchsorted(part, codes[mine])
        present = GroupConcept.of_codes(np.array(part), local)
        kept += shed_window(policy, [(local, hashes[mine])], present, concept).kept

    assert kept == whole.kept == 100


def test_the_baselines_go_the_same_way():
    codes, hashes, concept = window([9_000, 900, 100])

    everything = shed_window(KeepAll(), [(codes, hashes)], concept)
    some = shed_window(Uniform(keep=0.1), [(codes, hashes)], concept)

    assert (everything.rows, everything.kept, everything.weights[0].sum()) == (None, 10_000, 10_000)
    assert some.kept == pytest.approx(1_000, rel=0.15)
    assert some.weights[0] == pytest.approx(10.0)


def test_a_window_within_max_tuples_is_kept_whole():
    codes, hashes, concept = window([90, 10])

    assert shed_window(ConceptDriven(max_tuples=100), [(codes, hashes)], concept).kept == 100
    assert shed_window(ConceptDriven(max_tuples=50), [(codes, hashes)], concept).kept == 50


def test_a_window_keeps_what_its_mean_and_variance_say_an_error_takes():
    values = np.random.default_rng(1).lognormal(0, 0.5, 50_000)
    codes = np.zeros(50_000, dtype=np.int64)
    concept = GroupConcept.of_codes(np.array([0]), codes, values)
    blocks = [(codes, spread(np.arange(50_000), seed=1))]

    left = shed_window(ConceptDriven(relative_error=0.05), blocks, concept)
    rows = left.rows[0]

    assert left.kept == pytest.approx(50_000 * ScalarConcept.of(values).keep_for(relative_error=0.05), abs=1)
    assert (left.weights[0] * values[rows]).sum() == pytest.approx(values.sum(), rel=0.05)
    assert shed_window(ConceptDriven(relative_error=0.05, max_tuples=100), blocks, concept).kept == 100


def test_a_window_that_is_not_empty_keeps_a_tuple():
    codes, hashes, concept = window([3])

    assert shed_window(ConceptDriven(keep=0.01), [(codes, hashes)], concept).kept == 1


def test_a_policy_that_cannot_shed_windows_is_refused():
    codes, hashes, concept = window([5])
    with pytest.raises(InvalidInputError, match="shed by ConceptDriven, Uniform or KeepAll"):
        shed_window(Priority(keep={"a": 1.0}), [(codes, hashes)], concept)


def test_a_filter_tuple_by_tuple_keeps_one_of_every_group_with_a_quota():
    for seed in range(50):
        codes, hashes, concept = window([400, 30, 20, 2], seed)
        quotas = allocate(concept, 8)
        least = np.array([hashes[codes == group].min() for group in range(4)])

        kept = hashes < batch_thresholds(quotas, least)[codes]

        assert set(codes[kept].tolist()) == {0, 1, 2, 3}


def overloaded(key_tuples, *, offered=10_000, fits=1_000):
    return Load(
        offered_tuples=offered,
        cost=Cost(fixed_seconds=0.0, kept_seconds=1.0),
        available_seconds=fits,
        headroom=1.0,
        key_tuples=key_tuples,
    )


def volume(plan, sizes, offered=10_000):
    known = sum(size * plan.keep_of(key) for key, size in sizes.items())
    return known + (offered - sum(sizes.values())) * plan.keep


@given(
    sizes=st.dictionaries(st.text("abc", min_size=1, max_size=3), st.integers(1, 900), max_size=10),
    fits=st.integers(100, 9_000),
)
def test_the_rates_of_a_batch_use_the_budget(sizes, fits):
    plan = ConceptDriven().decide(overloaded(sizes, fits=fits))

    assert volume(plan, sizes) == pytest.approx(fits, rel=0.02, abs=len(sizes) + 1)


def test_unknown_groups_are_kept_whole_where_half_the_budget_holds_them():
    plan = ConceptDriven().decide(overloaded({"a": 6_000.0, "b": 3_600.0}))

    assert plan.keep == 1.0
    assert plan.keep_of("a") * 6_000 == pytest.approx(300)
    assert plan.keep_of("b") * 3_600 == pytest.approx(300)
    assert "rates for 2 of 2 groups known, the others whole" in plan.reason


def test_unknown_groups_share_half_the_budget_where_they_are_many():
    plan = ConceptDriven().decide(overloaded({"a": 2_000.0}))

    assert plan.keep == pytest.approx(500 / 8_000)
    assert plan.keep_of("a") == pytest.approx(500 / 2_000)


def test_before_any_group_is_known_all_are_shed_alike():
    plan = ConceptDriven().decide(overloaded(None))

    assert (plan.keep, plan.key_keep) == (0.1, {})
    assert "no groups known yet" in plan.reason


def test_keys_of_one_side_take_no_part_in_a_join():
    left = GroupConcept.of(np.repeat([1, 2, 3], [50, 40, 30]))
    right = GroupConcept.of(np.repeat([2, 3, 4], [20, 2, 90]))

    quotas = allocate_join(left, right, 30)

    assert quotas.left.tuples[0] == quotas.right.tuples[2] == 0
    assert (quotas.matched_keys, quotas.missing_keys, quotas.pairs) == (2, 0, 860)
    assert quotas.kept == 30


def test_a_join_that_cannot_hold_all_keys_drops_those_with_the_fewest_pairs():
    left = GroupConcept.of(np.repeat([1, 2, 3], [10, 20, 30]))

    quotas = allocate_join(left, left, 5)

    assert quotas.left.tuples.tolist()[0] == quotas.right.tuples.tolist()[0] == 0
    assert (quotas.missing_keys, quotas.missing_pairs) == (1, 100)
    assert quotas.kept <= 5


def test_the_size_of_a_join_is_exact_for_every_key_that_is_there():
    left = GroupConcept.of(np.repeat([1, 2], [500, 7]))
    right = GroupConcept.of(np.repeat([1, 2], [300, 9]))
    quotas = allocate_join(left, right, 80)

    pairs = (quotas.left.tuples * quotas.left.weights) @ (quotas.right.tuples * quotas.right.weights)

    assert pairs == pytest.approx(quotas.pairs) == 500 * 300 + 7 * 9


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"keep": 1.5}, "keep must be in"),
        ({"max_tuples": 0}, "max_tuples must be finite and above 0"),
        ({"rule": "fair"}, "rule must be 'equal', 'proportional' or 'neyman'"),
        ({"wins": "fair"}, "wins must be 'budget' or 'coverage'"),
        ({"passes": 3}, "passes must be 1 or 2"),
    ],
)
def test_nonsense_is_refused(options, message):
    with pytest.raises(InvalidInputError, match=message):
        ConceptDriven(**options)
