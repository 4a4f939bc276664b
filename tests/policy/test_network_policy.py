"""What every policy for networks promises. To hold a new one to it, add one line to POLICIES."""

import pickle

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.model.errors import InvalidInputError
from penstock.model.network import OUTSIDE
from penstock.policy.network.admission import InputCostTop, InputCostUniform, InputRandom, InputUniform
from penstock.policy.network.drops import NetworkLoad, NetworkPolicy, RoadMapPolicy
from tests.policy.networks import networks

POLICIES = {
    "Random-LS": lambda network: RoadMapPolicy(network, step=0.1),
    "Semantic-LS": lambda network: RoadMapPolicy(network, semantic=True, step=0.1),
    "Input-Random": lambda network: InputRandom(network, seed=3),
    "Input-Cost-Top": InputCostTop,
    "Input-Uniform": InputUniform,
    "Input-Cost-Uniform": InputCostUniform,
}
INPUTS_ONLY = [name for name in POLICIES if name.startswith("Input")]
every_policy = pytest.mark.parametrize("make", POLICIES.values(), ids=POLICIES)


def at_load(network, times: float) -> NetworkLoad:
    rates = {source.name: source.tuples_per_second for source in network.sources}
    return NetworkLoad(tuples_per_second=rates, capacity=network.load() / times)


@every_policy
@given(network=networks(joins=True), times=st.floats(1.05, 5.0))
@settings(max_examples=25, deadline=None)
def test_the_load_under_the_plan_fits_and_hardly_less_is_used(make, network, times):
    load = at_load(network, times)
    plan = make(network).decide(load)
    left = network.load(plan.arc_keep)
    assert left <= load.capacity * (1 + 1e-9)
    assert plan.sheds
    assert "> headroom 1.00" in plan.reason


@every_policy
@given(network=networks(), times=st.floats(0.1, 0.999))
@settings(max_examples=25, deadline=None)
def test_nothing_is_shed_while_the_load_fits(make, network, times):
    plan = make(network).decide(at_load(network, times))
    assert not plan.sheds
    assert plan.reason


@every_policy
@given(network=networks())
@settings(max_examples=10, deadline=None)
def test_it_pickles_and_gives_the_same_plan_for_the_same_load(make, network):
    policy = make(network)
    assert isinstance(policy, NetworkPolicy)
    load = at_load(network, 2.0)
    assert pickle.loads(pickle.dumps(policy)).decide(load) == policy.decide(load) == policy.decide(load)


@pytest.mark.parametrize("name", INPUTS_ONLY)
@given(network=networks(), times=st.floats(1.05, 5.0))
@settings(max_examples=20, deadline=None)
def test_admission_control_drops_at_inputs_only_and_just_the_excess(name, network, times):
    load = at_load(network, times)
    plan = POLICIES[name](network).decide(load)
    assert all(arc[0] == OUTSIDE for arc in plan.drops)
    assert network.load(plan.arc_keep) == pytest.approx(load.capacity)


def test_a_load_without_capacity_is_refused():
    with pytest.raises(InvalidInputError, match="capacity must be finite and above 0"):
        NetworkLoad(tuples_per_second={}, capacity=0.0)
