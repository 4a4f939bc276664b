"""The policy of [Sampling03] on loads as a running query learns them."""

import math
from dataclasses import replace

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from penstock.model.branches import Branch, Branches
from penstock.model.error_target import MaxError
from penstock.model.errors import InvalidInputError
from penstock.model.load import Cost, Load
from penstock.policy.least_error import LeastError

positive = st.floats(1e-2, 1e2)


@st.composite
def all_branches(draw):
    outputs = tuple(
        Branch(
            name=f"q{number}",
            share=draw(st.floats(0.001, 1)),
            seconds_per_tuple=draw(st.floats(1e-6, 1e-3)),
            answer_tuples=draw(st.floats(1, 1e6)),
            mean=draw(positive) * draw(st.sampled_from([1, -1])),
            standard_deviation=draw(st.just(0.0) | positive),
        )
        for number in range(draw(st.integers(1, 5)))
    )
    return Branches(shared_seconds=draw(st.floats(0, 1e-3)), outputs=outputs)


def load_of(branches, *, times=3.0, offered=50_000.0, read=0.0, fixed=0.1):
    """A load of so many times the headroom."""
    cost = Cost(fixed_seconds=fixed, kept_seconds=read + branches.seconds_per_tuple, shed_seconds=read)
    needed = offered * (read + branches.seconds_per_tuple) + fixed
    return Load(
        offered_tuples=offered, cost=cost, available_seconds=needed / times / 0.8, headroom=0.8, branches=branches
    )


def seconds_of(plan, load):
    """What the planned batch takes: everything is read, each output works on its own share."""
    branches, n = load.branches, load.offered_tuples
    work = branches.shared_seconds * plan.keep + sum(
        b.share * b.seconds_per_tuple * plan.key_keep[b.name] for b in branches.outputs
    )
    return load.cost.fixed_seconds + load.cost.shed_seconds * n + work * n


@given(all_branches(), st.floats(1.05, 8), st.floats(0, 1e-7))
def test_the_plan_fits_the_headroom_and_uses_all_of_it(branches, times, read):
    load = load_of(branches, times=times, read=read)
    plan = LeastError(min_keep=1e-9).decide(load)
    available = load.headroom * load.available_seconds
    # A fixed cost that takes all leaves nothing to plan with.
    assume(available > load.cost.fixed_seconds + read * load.offered_tuples)

    assert seconds_of(plan, load) == pytest.approx(available, rel=1e-6)


@given(all_branches(), st.floats(1.05, 8))
def test_the_drop_before_the_shared_part_keeps_what_the_greediest_output_needs(branches, times):
    plan = LeastError().decide(load_of(branches, times=times))

    assert plan.keep == pytest.approx(max(plan.key_keep.values()))
    assert set(plan.key_keep) == {branch.name for branch in branches.outputs}
    assert all(0 < keep <= 1 for keep in plan.key_keep.values())


def two(**changed):
    many = Branch(name="many", share=1.0, seconds_per_tuple=1e-4, answer_tuples=1e5)
    few = Branch(name="few", share=0.1, seconds_per_tuple=1e-4, answer_tuples=1e4, **changed)
    return Branches(shared_seconds=1e-5, outputs=(many, few))


def test_the_output_with_fewer_tuples_keeps_more_in_the_ratio_that_equals_their_errors():
    plan = LeastError().decide(load_of(two()))

    # Errors go with 1 / (rate * sqrt(tuples)): ten times the tuples, sqrt(10) times the rate.
    assert plan.key_keep["few"] / plan.key_keep["many"] == pytest.approx(math.sqrt(10))


def test_a_tighter_target_or_confidence_buys_tuples():
    loose = LeastError().decide(load_of(two())).key_keep
    tight = LeastError(targets={"many": MaxError(relative=0.05, confidence=0.95)}).decide(load_of(two())).key_keep
    sure = LeastError(targets={"many": MaxError(relative=0.1, confidence=0.999)}).decide(load_of(two())).key_keep

    assert tight["many"] / tight["few"] == pytest.approx(2 * loose["many"] / loose["few"])
    assert sure["many"] / sure["few"] == pytest.approx(
        math.sqrt(math.log(2000) / math.log(40)) * loose["many"] / loose["few"]
    )


def test_targets_that_cannot_be_met_are_named_in_the_reason():
    missed = LeastError(targets={"many": MaxError(relative=0.001)}).decide(load_of(two()))
    met = LeastError(targets={"few": MaxError(relative=0.5)}).decide(load_of(two()))

    assert "targets are missed by a factor of" in missed.reason
    assert "missed" not in met.reason
    assert "least error at keep many 0." in met.reason


@pytest.mark.parametrize("mean", [0.0, 1e-9])
def test_an_output_around_zero_is_sampled_as_a_count_and_said_so(mean):
    around_zero = LeastError().decide(load_of(two(mean=mean, standard_deviation=5.0)))
    count = LeastError().decide(load_of(two()))

    assert around_zero.key_keep == count.key_keep
    assert "few: sums around 0 have no relative error, sampled as counts" in around_zero.reason


def test_until_the_outputs_are_known_it_keeps_what_fits():
    load = replace(load_of(two()), branches=None)
    plan = LeastError().decide(load)

    assert plan.key_keep == {}
    assert plan.keep == pytest.approx(load.fitting_keep())
    assert plan.reason.endswith("the outputs are not known yet")


def test_outputs_that_nothing_reached_yet_are_planned_for():
    empty = Branches(
        shared_seconds=1e-5,
        outputs=(Branch(name="none", share=0.0, seconds_per_tuple=0.0, answer_tuples=0.0, mean=0.0),),
    )

    assert 0 < LeastError().decide(load_of(empty)).key_keep["none"] <= 1


def test_when_not_even_the_dropping_fits_every_output_gets_the_least():
    load = replace(load_of(two()), available_seconds=0.1)

    assert LeastError(min_keep=0.02).decide(load).key_keep == {"many": 0.02, "few": 0.02}


@pytest.mark.parametrize("wrong", [{"min_keep": 0}, {"confidence": 1.0}, {"min_keep": 2}])
def test_settings_that_cannot_be_are_refused(wrong):
    with pytest.raises(InvalidInputError):
        LeastError(**wrong)
