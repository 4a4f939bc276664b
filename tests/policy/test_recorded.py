"""Policies that decide row by row, as the plan log holds them."""

import json
from dataclasses import dataclass

import numpy as np
import pytest

from penstock.model.errors import PlanLogError
from penstock.policy.recorded import from_settings, to_settings
from penstock.policy.rows.constraint import AverageLatency, MaximumLatency, WindowLatency
from penstock.policy.rows.density import Density
from penstock.policy.rows.load_aware import BaseLine, FullKnowledge, Learning, LoadAware, StrawMan


def logged(value):
    """What comes back from the disk."""
    return json.loads(json.dumps(to_settings(value)))


def even_may_go(items):
    return items % 2 == 0


def odd_may_go(items):
    return items % 2 == 1


@dataclass(frozen=True)
class Own(LoadAware):
    """A policy of a user's own; its code is nowhere in the log."""

    patience: float = 2.0


@pytest.mark.parametrize(
    "value",
    [
        LoadAware(),
        LoadAware(learning=Learning(eps=0.01, seed=7)),
        Density(min_keep=0.125, true_costs=True, bend=0.5),
        StrawMan(mean_seconds=1 / 3),
        FullKnowledge(),
        BaseLine(keep=0.25),
        AverageLatency(seconds=0.1),
        MaximumLatency(seconds=2),
        WindowLatency(seconds=0.5, tuples=77),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_policy_reads_back_as_it_was_whatever_is_in_force_by_then(value):
    other = BaseLine(keep=0.9)
    assert from_settings(logged(value), now=other, of="batch 7") == value


def test_numbers_of_numpy_are_numbers_and_arrays_are_lists():
    assert logged(Own(patience=np.arange(3)))["patience"] == [0, 1, 2]
    assert logged(BaseLine(keep=np.float64(0.5))) == to_settings(BaseLine(keep=0.5))
    assert logged(WindowLatency(seconds=1.0, tuples=np.int64(3)))["tuples"] == 3


def test_a_function_of_the_policy_is_named_and_taken_from_the_policy_in_force():
    then = Density(min_keep=0.1, check_utility=even_may_go)
    assert logged(then)["check_utility"] == {"function": f"{__name__}.even_may_go"}
    assert from_settings(logged(then), now=LoadAware(check_utility=even_may_go), of="batch 7") == then
    for now in (LoadAware(), LoadAware(check_utility=odd_may_go), Density(min_keep=0.1)):
        with pytest.raises(PlanLogError, match=r"batch 7 was decided with check_utility=.*even_may_go, .* another one"):
            from_settings(logged(then), now=now, of="batch 7")


def test_a_policy_of_the_users_own_decides_again_if_it_is_the_same_and_else_says_what_to_do():
    then = Own(patience=3.0)
    again = Own(patience=3.0)
    assert from_settings(logged(then), now=again, of="batch 7") is again
    for now in (Own(patience=4.0), LoadAware()):
        with pytest.raises(
            PlanLogError,
            match=r"batch 7 was decided by .*\.Own with .*patience=3\.0, which .* cannot make again.*new checkpoint",
        ):
            from_settings(logged(then), now=now, of="batch 7")


def test_settings_that_the_kind_does_not_know_are_refused_with_the_cure():
    with pytest.raises(PlanLogError, match=r"batch 7 .* are none of that kind.*go on with the Penstock that wrote"):
        from_settings({"kind": "Density", "haste": 3}, now=LoadAware(), of="batch 7")
    with pytest.raises(PlanLogError, match=r"batch 7 .* are none of that kind \(min_keep must be in"):
        from_settings({"kind": "Density", "min_keep": 3}, now=LoadAware(), of="batch 7")
