"""Density: cheap first, unbiased by its floor, idle while the load fits."""

import numpy as np
import pytest

from penstock.policy.constraint import AverageLatency, MaximumLatency
from penstock.policy.density import Density
from penstock.policy.load_aware import BY_DENSITY, FullKnowledge
from penstock.policy.sequence import decide

NO_WINDOW = np.zeros(0)


def weights_of(policy, *, arrived, costs, utility=None, constraint=None, seed=1) -> np.ndarray:
    shedder = policy.shedder(constraint or AverageLatency(seconds=0.01))
    utility = np.ones(costs.size) if utility is None else utility
    return decide(policy.RULE, shedder, NO_WINDOW, arrived, costs, utility, np.uint64(seed), 0)


def overload(*, tuples=20_000, load=1.5, seed=0):
    """Costs of 1 to 9 ms, arriving faster than they can be worked off."""
    costs = np.random.default_rng(seed).integers(1, 10, tuples) / 1e3
    return np.arange(tuples) * costs.mean() / load, costs


def test_the_expensive_go_first():
    arrived, costs = overload()
    weights = weights_of(Density(true_costs=True), arrived=arrived, costs=costs)

    kept_share = [(weights[costs == cost] > 0).mean() for cost in np.unique(costs)]

    assert kept_share[0] > 0.99
    assert kept_share[-1] < 0.2


def test_it_drops_fewer_than_the_oracle_that_drops_what_comes():
    arrived, costs = overload()

    ours, oracle = (
        weights_of(policy, arrived=arrived, costs=costs) for policy in (Density(true_costs=True), FullKnowledge())
    )

    assert (ours == 0).mean() < 0.65 * (oracle == 0).mean()


def test_the_constraint_holds():
    arrived, costs = overload()
    weights = weights_of(Density(true_costs=True), arrived=arrived, costs=costs)
    waits, busy_until = [], 0.0
    for now, cost, weight in zip(arrived, costs, weights, strict=True):
        if weight:
            waits.append(max(0.0, busy_until - now))
            busy_until = max(busy_until, now) + cost

    assert np.mean(waits) <= 0.01


@pytest.mark.parametrize("constraint", [AverageLatency(seconds=0.02), MaximumLatency(seconds=0.05)])
def test_nothing_is_shed_while_the_load_fits(constraint):
    arrived, costs = overload(load=0.5)

    assert (weights_of(Density(true_costs=True), arrived=arrived, costs=costs, constraint=constraint) == 1).all()


def test_utility_buys_time():
    arrived, costs = overload()
    worth = np.where(np.arange(costs.size) % 2, 10.0, 1.0)

    weights = weights_of(Density(true_costs=True), arrived=arrived, costs=costs, utility=worth)

    assert (weights[worth == 10] == 1).mean() > 0.95
    assert (weights[worth == 1] == 1).mean() < 0.6


def test_what_must_not_be_dropped_is_kept_and_what_is_worth_nothing_goes_first():
    arrived, costs = overload()
    worth = np.ones(costs.size)
    worth[::7], worth[1::7] = np.inf, 0.0

    weights = weights_of(Density(true_costs=True), arrived=arrived, costs=costs, utility=worth)

    assert (weights[::7] == 1).all()
    assert (weights[1::7] == 1).mean() == 0


def test_weighted_sums_are_unbiased_for_every_cost():
    arrived, costs = overload(tuples=4_000)
    totals = {cost: [] for cost in np.unique(costs)}
    for seed in range(150):
        weights = weights_of(Density(true_costs=True, min_keep=0.1), arrived=arrived, costs=costs, seed=seed)
        for cost, found in totals.items():
            found.append(weights[costs == cost].sum())

    for cost, found in totals.items():
        error = abs(np.mean(found) - (costs == cost).sum())
        assert error < 4 * np.std(found) / np.sqrt(len(found)) + 1e-9


def test_without_a_floor_the_expensive_may_vanish_and_weights_are_one():
    arrived, costs = overload(load=3)
    weights = weights_of(Density(true_costs=True, min_keep=0.0), arrived=arrived, costs=costs)

    assert set(np.unique(weights)) == {0.0, 1.0}
    assert (weights[costs == costs.max()][500:] == 0).all()


def test_it_recovers_when_the_load_fits_again():
    arrived, costs = overload(tuples=10_000, load=3)
    calm, calm_costs = overload(tuples=10_000, load=0.5, seed=1)
    weights = weights_of(
        Density(true_costs=True),
        arrived=np.concatenate([arrived, arrived[-1] + 0.01 + calm]),
        costs=np.concatenate([costs, calm_costs]),
    )

    assert (weights[:10_000] == 0).any()
    assert (weights[12_000:] == 1).all()


def test_the_rule_is_its_own():
    assert Density().RULE == BY_DENSITY
