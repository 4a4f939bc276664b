"""What every policy promises. To hold a new policy to it, add one line to POLICIES."""

import copy
import dataclasses
import pickle

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from penstock.model.load import Cost, Load
from penstock.model.network_plan import Drop, NetworkPlan
from penstock.model.plan import Plan
from penstock.policy.baseline import KeepAll, Uniform
from penstock.policy.contract import Policy, has_one_rate
from penstock.policy.least_error import LeastError
from penstock.policy.network.plan_table import PlanTable, TableRow
from penstock.policy.priority import Priority
from penstock.policy.strata.concept import ConceptDriven

POLICIES = [
    KeepAll(),
    Uniform(),
    Uniform(keep=0.5),
    Priority(keep={"vip": 1.0, "bot": 0.1}, listed_share=0.2),
    ConceptDriven(),
    ConceptDriven(keep=0.1, rule="proportional", wins="coverage"),
    LeastError(),
    PlanTable(
        rows=(
            TableRow(index=0, work_share=1.0, plan=NetworkPlan(reason="row 0")),
            TableRow(index=1, work_share=0.3, plan=NetworkPlan(drops={("", "I"): Drop(0.3)}, reason="row 1")),
            TableRow(index=2, work_share=0.0, plan=NetworkPlan(drops={("", "I"): Drop(0.0)}, reason="row 2")),
        )
    ),
]

every_policy = pytest.mark.parametrize("policy", POLICIES, ids=repr)


def numbers(most: float) -> st.SearchStrategy[float]:
    """Zero, or something large enough that products do not vanish."""
    return st.just(0.0) | st.floats(1e-9, most)


fractions = st.floats(0, 1)
loads = st.builds(
    Load,
    offered_tuples=numbers(1e10),
    cost=st.builds(Cost, fixed_seconds=numbers(100), kept_seconds=numbers(1), shed_seconds=numbers(1)),
    available_seconds=st.floats(1e-3, 1e3),
    headroom=st.floats(0.01, 1),
    listed_share=st.none() | fractions,
    listed_keep=st.none() | fractions,
)

OVERLOAD = Load(
    offered_tuples=40_000,
    cost=Cost(fixed_seconds=0.2, kept_seconds=1e-4, shed_seconds=5e-6),
    available_seconds=2.0,
    headroom=0.8,
)


@every_policy
def test_it_is_a_policy(policy):
    assert isinstance(policy, Policy)


@every_policy
def test_it_survives_pickling_and_still_decides_the_same(policy):
    travelled = pickle.loads(pickle.dumps(policy))

    assert travelled == policy
    assert travelled.decide(OVERLOAD) == policy.decide(OVERLOAD)


@every_policy
def test_it_is_frozen(policy):
    assert dataclasses.is_dataclass(policy)
    for name in [field.name for field in dataclasses.fields(policy)] or ["anything"]:
        with pytest.raises((dataclasses.FrozenInstanceError, TypeError)):
            setattr(policy, name, None)


@every_policy
def test_deciding_changes_neither_policy_nor_load(policy):
    policy_before, load_before = copy.deepcopy(policy), copy.deepcopy(OVERLOAD)

    policy.decide(OVERLOAD)

    assert policy == policy_before
    assert load_before == OVERLOAD


@every_policy
@given(load=loads)
def test_the_same_load_gets_the_same_plan(policy, load):
    assert policy.decide(load) == policy.decide(load)


@every_policy
@given(load=loads)
def test_every_rate_is_a_fraction_and_every_plan_has_a_reason(policy, load):
    plan = policy.decide(load)

    assert isinstance(plan, Plan)
    assert 0 <= plan.keep <= 1
    assert all(0 <= keep <= 1 for keep in plan.key_keep.values())
    assert plan.reason.strip()


@pytest.mark.parametrize("policy", [policy for policy in POLICIES if has_one_rate(policy)], ids=repr)
@given(load=loads)
def test_who_promises_one_rate_plans_no_other(policy, load):
    plan = policy.decide(load)

    assert not plan.key_keep
    assert plan.network is None


@every_policy
@given(load=loads)
def test_nothing_is_shed_while_the_load_fits(policy, load):
    assume(not load.overloaded)

    assert not policy.decide(load).sheds


@every_policy
def test_the_reason_states_the_load_and_the_headroom(policy):
    reason = policy.decide(OVERLOAD).reason

    assert "load 2.10 > headroom 0.80" in reason
    assert "40,000 tuples need 4.20 s of 2.00 s" in reason
