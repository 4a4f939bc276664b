"""Networks on the simulated machine."""

import pytest

from lab.sim.network_engine import simulate
from lab.sim.workload import Workload, random_network, rate_for_excess, shared_network
from penstock.model.errors import InvalidInputError, NotSupportedError
from penstock.model.network import Network, Operator, Output, Source
from penstock.model.network_plan import Drop, NetworkPlan
from penstock.model.quality import LossTolerance
from penstock.policy.network.drops import NetworkLoad, RoadMapPolicy


class Fixed:
    """Always the same plan."""

    def __init__(self, plan: NetworkPlan) -> None:
        self._plan = plan

    def decide(self, load: NetworkLoad) -> NetworkPlan:
        return self._plan


def keep_all() -> Fixed:
    return Fixed(NetworkPlan(reason="keep all"))


def run(network, policy, *, capacity, **options):
    return simulate(network, policy, capacity=capacity, boundary=76.0, seed=3, periods=6, **options)


def test_a_network_that_fits_delivers_everything_and_uses_the_work_it_should():
    network = random_network(Workload(), seed=4)
    outcome = run(network, keep_all(), capacity=network.load() / 0.8)
    assert outcome.busy / (network.load() / 0.8) == pytest.approx(0.8, rel=0.03)
    assert outcome.overflowed == 0
    for name, utility in outcome.tuple_utility({o.name: LossTolerance.of((1, 1)) for o in network.outputs}).items():
        assert utility == pytest.approx(1.0, abs=0.03), name


def test_without_shedding_an_overload_fills_the_queues_and_with_the_road_map_it_does_not():
    network = random_network(Workload(), seed=4)
    flooded = run(network, keep_all(), capacity=network.load() / 3)
    shed = run(network, RoadMapPolicy(network), capacity=network.load() / 3)
    assert flooded.mean_latency > 10 * shed.mean_latency
    assert shed.overflowed == 0


@pytest.mark.parametrize("poisson", [False, True])
def test_random_drops_deliver_their_keep_rate_and_ranges_drop_just_those_values(poisson):
    network = shared_network(queries=2, seed=1, tuples_per_second=5.0)
    drops = {("common", "q0f0"): Drop(0.4), ("common", "q1f0"): Drop(0.25, ((0.0, 76.0),))}
    outcome = run(network, Fixed(NetworkPlan(drops=drops, reason="fixed")), capacity=100.0, poisson=poisson)
    shares = outcome.tuple_utility({o.name: LossTolerance.of((1, 1)) for o in network.outputs})
    assert shares["out0"] == pytest.approx(0.4, abs=0.03)
    assert shares["out1"] == pytest.approx(25 / 101, abs=0.03)
    assert outcome.value_utility({"out0": (1.0, 0.0), "out1": (0.0, 1.0)})["out1"] == pytest.approx(1.0, abs=0.03)


def test_the_same_seed_gives_the_same_network_and_the_same_outcome():
    assert random_network(Workload(splits=4), seed=9) == random_network(Workload(splits=4), seed=9)
    network = random_network(Workload(), seed=9)
    outcomes = [run(network, RoadMapPolicy(network), capacity=network.load() / 2) for _ in range(2)]
    assert [e.delivered.tolist() for e in outcomes[0].epochs] == [e.delivered.tolist() for e in outcomes[1].epochs]


def test_the_workload_has_what_was_asked_for_and_splits_share_operators():
    network = random_network(Workload(queries=10, filters=60, unions=20, splits=8), seed=2)
    kinds = [operator.kind for operator in network.operators]
    assert (kinds.count("filter"), kinds.count("union")) == (60, 20)
    assert len(network.sources) == 10 + 20 - 8
    assert sum(len(taking) > 1 for taking in network.consumers.values()) > 0
    assert all(0 < operator.selectivity <= 1 for operator in network.operators)


def test_what_cannot_be_simulated_or_drawn_is_refused():
    joined = Network(
        (
            Source(name="a", tuples_per_second=1),
            Source(name="b", tuples_per_second=1),
            Operator(name="j", kind="join", inputs=("a", "b"), seconds_per_tuple=1.0),
            Output(name="o", input="j"),
        )
    )
    with pytest.raises(NotSupportedError, match="knows filters, maps and unions"):
        run(joined, keep_all(), capacity=1.0)
    with pytest.raises(InvalidInputError, match="at least the 5 queries"):
        Workload(filters=2)
    idle = Network((Source(name="a", tuples_per_second=1), Output(name="o", input="a")))
    with pytest.raises(InvalidInputError, match="must be above 0"):
        rate_for_excess(idle, capacity=1, excess=1)
