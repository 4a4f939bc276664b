"""Statistics of a network, learned from what its batches count."""

import numpy as np
import pytest

from penstock.control.network_learning import KIND_WEIGHTS, NetworkCounts, NetworkLearning, with_values
from penstock.control.operator_cost import Belief, OperatorCosts
from penstock.model.errors import InvalidInputError
from penstock.model.network import Network, Operator, Output, Source
from penstock.model.quality import Histogram


def network(*, seconds: float = 0.0) -> Network:
    return Network(
        (
            Source(name="I", tuples_per_second=1),
            Operator(name="f", kind="filter", inputs=("I",), seconds_per_tuple=seconds),
            Operator(name="a", kind="aggregate", inputs=("f",), seconds_per_tuple=0.0),
            Operator(name="m", kind="map", inputs=("f",), seconds_per_tuple=0.0),
            Output(name="A", input="a"),
            Output(name="M", input="m"),
        )
    )


def counted(offered: int, *, to_a: int, to_m: int) -> NetworkCounts:
    kept = {("", "I"): offered, ("f", "a"): to_a, ("f", "m"): to_m}
    return NetworkCounts(present={"I": offered, "f": offered // 2, "m": to_m}, kept=kept)


def test_selectivities_rates_and_costs_follow_the_counts_and_durations():
    learning = NetworkLearning(network())
    rng = np.random.default_rng(5)
    for _ in range(40):
        offered = int(rng.integers(5_000, 20_000))
        to_a, to_m = int(offered / 2 * rng.uniform(0.1, 1)), int(offered / 2 * rng.uniform(0.1, 1))
        seconds = 0.2 + offered * 2e-6 + to_a * 4e-5 + to_m * 1e-5
        learning.learn(
            counted(offered, to_a=to_a, to_m=to_m), seconds=seconds * rng.normal(1, 0.05), collected_seconds=2.0
        )
    found = {operator.name: operator for operator in learning.network().operators}
    assert found["f"].selectivity == pytest.approx(0.5, abs=0.01)
    assert found["a"].seconds_per_tuple == pytest.approx(4e-5, rel=0.3)
    assert found["m"].seconds_per_tuple == pytest.approx(1e-5, rel=0.6)
    assert found["a"].seconds_per_tuple > 2 * found["m"].seconds_per_tuple
    assert learning.network().sources[0].tuples_per_second == pytest.approx(6_000, rel=0.6)


def test_batches_of_one_mix_get_the_total_right_and_split_it_as_believed():
    learning = NetworkLearning(network())
    for offered in (4_000, 9_000, 12_000, 16_000, 20_000):
        learning.learn(
            counted(offered, to_a=offered // 2, to_m=offered // 2), seconds=0.1 + offered * 1e-4, collected_seconds=1.0
        )
    now = learning.network()
    assert now.coefficients()[("", "I")] == pytest.approx(1e-4, rel=0.1)
    costs = {operator.name: operator.seconds_per_tuple for operator in now.operators}
    assert costs["a"] == pytest.approx(KIND_WEIGHTS["aggregate"] * costs["m"], rel=0.3)


def test_a_large_fixed_cost_is_not_blamed_on_operators_that_were_dropped_later():
    learning = OperatorCosts({"map": Belief(weight=1), "aggregate": Belief(weight=3)})
    for rows in (3_000, 3_400, 3_100, 3_300, 3_200):
        learning.learn({"map": rows, "aggregate": rows}, seconds=1.5 + rows * 55e-6)
    for rows in (13_000, 34_000, 45_000, 43_000, 30_000):
        learning.learn({"map": rows, "aggregate": 0}, seconds=1.5 + rows * 50e-6)
    found = learning.costs()
    assert found["map"] == pytest.approx(50e-6, rel=0.25)
    # Truly 5 µs. All of a calm batch on its rows would be 500.
    assert found["aggregate"] < 100e-6


def test_the_work_share_of_a_batch_is_what_its_counts_cost_against_no_drops():
    learning = NetworkLearning(network(seconds=1e-6))
    learning.learn(counted(10_000, to_a=5_000, to_m=5_000), seconds=None, collected_seconds=1.0)
    now = learning.network().with_statistics(seconds_per_tuple={"f": 1.0, "a": 2.0, "m": 1.0})
    assert learning.work_share(counted(10_000, to_a=5_000, to_m=5_000), now) == pytest.approx(1.0)
    assert learning.work_share(counted(10_000, to_a=0, to_m=5_000), now) == pytest.approx(15_000 / 25_000)


def test_before_anything_is_known_costs_are_what_kinds_are_thought_to_be_and_given_ones_stand():
    costs = {
        operator.name: operator.seconds_per_tuple
        for operator in NetworkLearning(network(seconds=3e-6)).network().operators
    }
    assert costs["f"] == pytest.approx(3e-6)
    assert costs["a"] == pytest.approx(KIND_WEIGHTS["aggregate"] * 3e-6)


def test_pairs_of_a_join_are_counted_up_by_what_each_side_saw():
    joined = Network(
        (
            Source(name="I", tuples_per_second=1),
            Source(name="J", tuples_per_second=1),
            Operator(name="j", kind="join", inputs=("I", "J"), seconds_per_tuple=0.0),
            Output(name="O", input="j"),
        )
    )
    learning = NetworkLearning(joined)
    whole = NetworkCounts(present={"I": 1_000, "J": 1_000, "j": 500}, kept={("", "I"): 1_000, ("", "J"): 1_000})
    learning.learn(whole, seconds=1.0, collected_seconds=1.0)
    halves = NetworkCounts(present={"I": 1_000, "J": 1_000, "j": 125}, kept={("", "I"): 500, ("", "J"): 500})
    learning.learn(halves, seconds=1.0, collected_seconds=1.0)
    assert learning.network().operators[0].selectivity == pytest.approx(0.25, rel=0.05)


def test_value_lanes_become_a_spread():
    learning = NetworkLearning(with_values(network(), (0, 10)))
    lanes = {("f", "m"): {(0.0, 5.0): 300, (5.0, 10.0): 100}}
    counts = counted(1_000, to_a=500, to_m=500)
    learning.learn(
        NetworkCounts(present=counts.present, kept=counts.kept, lanes=lanes), seconds=1.0, collected_seconds=1.0
    )
    assert learning.spreads[("f", "m")].share(0, 5) == pytest.approx(0.75)
    assert learning.network().sources[0].values == Histogram.uniform(0, 10)


def test_bad_batches_and_empty_beliefs_are_refused():
    with pytest.raises(InvalidInputError, match="must not be empty"):
        OperatorCosts({})
    with pytest.raises(InvalidInputError, match="it must have taken time"):
        OperatorCosts({"a": Belief(weight=1)}).learn({"a": 1}, seconds=0)
