"""Density: cheap first, unbiased by its floor, idle while the load fits."""

import numpy as np
import pytest

from penstock.policy.rows.constraint import AverageLatency, MaximumLatency
from penstock.policy.rows.density import Density, fitting_limit
from penstock.policy.rows.load_aware import BY_DENSITY, FullKnowledge
from penstock.policy.rows.sequence import decide

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


def test_a_backlog_does_not_shut_out_what_comes_once_it_is_worked_off():
    policy, (arrived, costs) = Density(true_costs=True), overload(tuples=600, load=0.5)
    shedder = policy.shedder(AverageLatency(seconds=0.01))

    def weights_of_part(part):
        number = np.uint64(1)
        return decide(policy.RULE, shedder, NO_WINDOW, arrived[part], costs[part], np.ones(part.sum()), number, 0)

    assert (weights_of_part(arrived < 1.0) == 1).all()
    # Such a queue that the few tuples let in meanwhile would have to be made up for by hundreds.
    shedder["busy_until"] = 2.0
    assert (weights_of_part((arrived >= 1.0) & (arrived < 2.0)) == 1).mean() < 0.1
    assert (weights_of_part(arrived >= 2.0) == 1).mean() > 0.9


def test_the_rule_is_its_own():
    assert Density().RULE == BY_DENSITY


def test_bounds_from_the_weights_cover_at_their_stated_rate():
    """Chances depend on the past, never on the own draw: errors are martingale differences, and variances add up."""
    arrived, costs = overload(tuples=6_000)
    values = np.random.default_rng(5).exponential(size=costs.size)
    covered = []
    for seed in range(300):
        weights = weights_of(Density(true_costs=True, min_keep=0.1), arrived=arrived, costs=costs, seed=seed)
        error = (weights * values).sum() - values.sum()
        covered.append(abs(error) <= 1.96 * np.sqrt((weights * (weights - 1) * values**2).sum()))

    # 95 % of 300, less three standard deviations.
    assert np.mean(covered) >= 0.95 - 3 * np.sqrt(0.95 * 0.05 / 300)


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.9, 1.0, 2.0])
def test_what_is_below_the_fitting_limit_fits_and_with_the_tuples_at_it_no_longer(share):
    costs = np.random.default_rng(5).lognormal(size=500)
    utility = np.random.default_rng(6).uniform(0.5, 2.0, size=500)
    budget, prices = share * costs.sum(), costs / utility
    limit = fitting_limit(costs, utility, min_keep=0.05, budget_seconds=budget)

    def work(kept: np.ndarray) -> float:
        return float(costs[kept].sum() + 0.05 * costs[~kept].sum())

    if share >= 1:
        assert limit == prices.max()
    else:
        assert work(prices <= limit) > budget
        assert work(prices < limit) <= max(budget, 0.05 * costs.sum())


def test_the_priceless_use_up_the_budget_and_the_worthless_leave_it_to_others():
    costs, ones = np.array([1.0, 2.0, 3.0]), np.ones(3)
    assert fitting_limit(costs, ones, min_keep=0.0, budget_seconds=3.5) == 3.0
    assert fitting_limit(costs, np.array([1.0, 1.0, np.inf]), min_keep=0.0, budget_seconds=3.5) == 1.0
    assert fitting_limit(costs, np.array([1.0, 1.0, 0.0]), min_keep=0.0, budget_seconds=3.5) == 2.0
    assert fitting_limit(np.zeros(0), np.zeros(0), min_keep=0.0, budget_seconds=1.0) == 0.0
