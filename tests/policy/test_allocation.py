"""How a budget is shared among groups."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.model.errors import InvalidInputError
from penstock.policy.strata.allocation import allocate
from penstock.policy.strata.groups import GroupConcept

RULES = ("equal", "proportional", "neyman")


def concept_of(sizes, deviations=None):
    """Groups of these sizes; values alternate around 10 by the deviation of their group."""
    keys = np.repeat(np.arange(len(sizes)), sizes)
    if deviations is None:
        return GroupConcept.of(keys)
    signs = np.concatenate([np.resize([1.0, -1.0], size) for size in sizes])
    return GroupConcept.of(keys, 10 + signs * np.asarray(deviations, dtype=float)[keys])


sizes = st.lists(st.integers(1, 500), min_size=1, max_size=40)


@pytest.mark.parametrize("rule", RULES)
@given(sizes=sizes, share=st.floats(0, 1), data=st.data())
def test_quotas_stay_within_the_groups_and_the_budget(rule, sizes, share, data):
    deviations = data.draw(st.lists(st.floats(0, 5), min_size=len(sizes), max_size=len(sizes)))
    concept = concept_of(sizes, deviations)
    budget = share * concept.tuples

    quotas = allocate(concept, budget, rule=rule)

    assert (quotas.tuples >= 0).all()
    assert (quotas.tuples <= concept.counts).all()
    assert quotas.kept <= budget + 1e-6
    # Nothing that could be used is left over.
    assert quotas.kept >= min(np.floor(budget + 1e-9), concept.tuples) - (1 if rule != "equal" else 0)
    if budget >= concept.groups:
        assert quotas.missing_groups == 0


@given(sizes=sizes, share=st.floats(0, 1))
def test_with_equal_shares_a_group_is_whole_or_has_as_many_as_any_other(sizes, share):
    concept = concept_of(sizes)

    quotas = allocate(concept, share * concept.tuples)

    if not quotas.missing_groups:
        cut = quotas.tuples[quotas.tuples < concept.counts]
        assert len(cut) == 0 or cut.max() - cut.min() <= 1
        # Tuples are whole: the last of the budget may give some groups one more.
        assert len(cut) == 0 or (quotas.tuples[quotas.tuples == concept.counts] <= cut.min() + 1).all()


def test_neyman_gives_more_to_groups_that_vary_more():
    concept = concept_of([1_000, 1_000, 1_000], [1.0, 2.0, 0.0])

    quotas = allocate(concept, 301, rule="neyman")

    assert quotas.tuples.tolist() == [100, 200, 1]


def test_neyman_without_values_shares_alike():
    assert allocate(concept_of([100, 100]), 20, rule="neyman").tuples.tolist() == [10, 10]


def test_a_dearer_group_gets_fewer_tuples_by_the_root_of_its_cost():
    concept = concept_of([1_000, 1_000])

    quotas = allocate(concept, 600, costs=np.array([1.0, 4.0]))

    # 200 * 1 + 100 * 4 = 600
    assert quotas.tuples.tolist() == [200, 100]


def test_when_groups_outnumber_the_budget_the_smallest_are_missing_and_counted():
    concept = concept_of([5, 1, 3, 1])

    quotas = allocate(concept, 2)

    assert quotas.tuples.tolist() == [1, 0, 1, 0]
    assert (quotas.kept, quotas.missing_groups, quotas.missing_tuples) == (2, 2, 2)


def test_when_coverage_wins_every_group_appears_and_the_volume_says_so():
    quotas = allocate(concept_of([5, 1, 3, 1]), 2, wins="coverage")

    assert (quotas.kept, quotas.missing_groups) == (4, 0)


def test_what_fits_is_kept_whole():
    concept = concept_of([5, 1, 3])

    assert allocate(concept, 9).tuples.tolist() == [5, 1, 3]
    assert allocate(concept, 9).weights.tolist() == [1, 1, 1]


def test_nothing_is_allocated_to_no_groups():
    assert allocate(GroupConcept.empty(), 10).kept == 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rule": "fair"}, "rule must be one of equal, proportional, neyman"),
        ({"wins": "both"}, "wins must be one of budget, coverage"),
        ({"costs": np.array([1.0])}, "costs must be 2 finite numbers above 0"),
        ({"costs": np.array([1.0, 0.0])}, "costs must be 2 finite numbers above 0"),
    ],
)
def test_nonsense_is_refused(options, message):
    with pytest.raises(InvalidInputError, match=message):
        allocate(concept_of([5, 5]), 3, **options)
