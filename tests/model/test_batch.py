"""The ledger's entry balances, or it cannot be made."""

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.model.batch import Batch
from penstock.model.errors import InvalidInputError

BATCH = Batch(batch_id=3, offered=100, kept=40, shed=60, keep=0.4, reason="burst")


@given(kept=st.integers(0, 10**9), shed=st.integers(0, 10**9), off_by=st.integers(-5, 5).filter(bool))
def test_a_batch_that_does_not_balance_is_refused_with_all_three_counts(kept, shed, off_by):
    assert Batch(batch_id=1, offered=kept + shed, kept=kept, shed=shed, keep=0.5, reason="fits").shed == shed

    offered = kept + shed + off_by
    with pytest.raises(InvalidInputError) as refused:
        Batch(batch_id=1, offered=offered, kept=kept, shed=shed, keep=0.5, reason="fits")

    if offered >= 0:
        assert str(refused.value) == f"batch 1 does not balance: offered {offered} != kept {kept} + shed {shed}"


@pytest.mark.parametrize("name", ["batch_id", "offered", "kept", "shed", "listed_offered", "listed_kept"])
@pytest.mark.parametrize("value", [-1, math.nan])
def test_a_count_below_zero_is_refused_by_name(name, value):
    with pytest.raises(InvalidInputError, match=f"{name} must be finite and at least 0, got {value!r}; it is a count"):
        replace(BATCH, **{name: value})


def test_a_keep_rate_that_is_no_fraction_is_refused():
    with pytest.raises(InvalidInputError, match=r"keep must be in \[0, 1\], got 1.4; it is the share of tuples"):
        replace(BATCH, keep=1.4)


def test_the_share_that_survived_is_counted_not_planned():
    assert replace(BATCH, keep=0.5).kept_share == 0.4


def test_an_empty_batch_lost_nothing():
    assert Batch(batch_id=0, offered=0, kept=0, shed=0, keep=0.1, reason="burst").kept_share == 1.0


def test_the_commit_is_known_only_with_start_and_duration():
    assert BATCH.committed_at is None
    assert replace(BATCH, started_at=100.0).committed_at is None
    assert replace(BATCH, started_at=100.0, duration_seconds=2.5).committed_at == 102.5
