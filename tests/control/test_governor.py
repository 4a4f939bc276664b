"""One decision at a time, from guidance and demand; latency target 5 s unless said otherwise."""

import math
import pickle
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.control.governor import Decision, Demand, Governor, expected_tuples
from penstock.control.guidance import Guidance
from penstock.model.errors import InvalidInputError
from penstock.model.load import Cost
from penstock.model.plan import Plan
from penstock.policy.baseline import KeepAll, Uniform
from penstock.policy.priority import Priority

GOVERNOR = Governor(latency_seconds=5.0, headroom=0.8)
# 100 µs a tuple, nothing else: 20,000 tuples take the 2 s that may be planned with.
LEARNED = Guidance(published_at=1000.0, cost=Cost(fixed_seconds=0.0, kept_seconds=1e-4), tuples_per_unit=(1.0,))


def demand(tuples, *, waited=1.0, batch_id=8, now=1000.0):
    return Demand(batch_id=batch_id, now=now, waited_seconds=waited, units_by_source=(tuples,))


def decided(batch_id, keep):
    plan = Plan(keep=keep, reason="test")
    return Decision(batch_id=batch_id, decided_at=990.0 + batch_id, plan=plan, overloaded=keep < 1)


def test_a_batch_that_fits_is_kept_whole():
    decision = GOVERNOR.decide(LEARNED, demand(20_000))

    assert decision == Decision(
        batch_id=8,
        decided_at=1000.0,
        plan=Plan.keep_all("load 0.80 <= headroom 0.80: 20,000 tuples need 2.00 s of 2.50 s"),
        expected_tuples=20_000,
    )


def test_a_batch_may_take_half_the_target():
    plan = GOVERNOR.decide(LEARNED, demand(40_000)).plan

    assert plan.keep == pytest.approx(0.5)
    assert plan.reason == "load 1.60 > headroom 0.80: 40,000 tuples need 4.00 s of 2.50 s"


@pytest.mark.parametrize(
    ("waited", "available"),
    [
        (None, 2.5),
        (0.0, 2.5),
        (2.5, 2.5),
        (3.0, 2.0),  # 5 s - 3 s are left
        (3.3, 1.7),
        (4.0, 5 / 3),  # a third of the target, even if that is late
        (60.0, 5 / 3),
    ],
)
def test_tuples_that_have_waited_long_shrink_the_budget_but_never_below_a_third(waited, available):
    plan = GOVERNOR.decide(LEARNED, demand(100_000, waited=waited)).plan

    assert plan.keep == pytest.approx(0.8 * available / 10)


def test_the_policy_decides_what_goes():
    kept = replace(GOVERNOR, policy=KeepAll()).decide(LEARNED, demand(40_000)).plan
    fixed = replace(GOVERNOR, policy=Uniform(keep=0.2)).decide(LEARNED, demand(40_000)).plan

    assert (kept.keep, fixed.keep) == (1.0, 0.2)


# --- cold start and backlog -----------------------------------------------------------------------


def test_the_first_batch_of_all_is_bounded_whatever_has_piled_up():
    for backlog in (20_001, 1_000_000, 10**12):
        plan = GOVERNOR.decide(None, demand(backlog, waited=None, batch_id=0)).plan
        assert plan.keep * backlog == pytest.approx(20_000)
        assert plan.reason == f"cold start: costs not learned yet, trying 20,000 of {backlog:,} tuples"


def test_a_first_batch_of_a_few_tuples_is_kept_whole():
    plan = GOVERNOR.decide(None, demand(20_000, waited=None, batch_id=0)).plan

    assert plan == Plan.keep_all("costs not learned yet; 20,000 tuples are few enough to try")


def test_probing_grows_from_what_went_well():
    largest = [0, 1_000, 5_000, 30_000, 120_000]
    tried = [
        GOVERNOR.decide(Guidance(published_at=1000.0, largest_kept=kept), demand(10**6)).plan.keep * 10**6
        for kept in largest
    ]

    assert tried == pytest.approx([20_000, 20_000, 20_000, 120_000, 480_000])


def test_a_backlog_is_bounded_once_costs_are_known():
    # An hour of 10,000 tuples a second: 20,000 fit at best, and the least rate of the policy is 1 %.
    plan = replace(GOVERNOR, policy=Uniform(min_keep=0.01)).decide(LEARNED, demand(36_000_000, waited=3600.0)).plan

    assert plan.keep == 0.01


# --- trials ---------------------------------------------------------------------------------------

# Small batches, each of half a second. If that was for their tuples, 20,000 take 4 s.
SMALL = replace(LEARNED, cost=Cost(fixed_seconds=0.0, kept_seconds=2e-4), explored_tuples=2_500)


def test_a_batch_larger_than_any_so_far_may_take_all_the_time_that_its_tuples_have_left():
    decision = GOVERNOR.decide(SMALL, demand(20_000))

    assert decision.plan == Plan.keep_all(
        "load 1.00 <= headroom 1.00: 20,000 tuples need 4.00 s of 4.00 s; "
        "a trial, for no batch so far was half as large"
    )
    assert not decision.overloaded


@pytest.mark.parametrize(("waited", "kept"), [(2.0, 15_000), (2.5, 12_500), (3.0, 10_000), (60.0, 25_000 / 3)])
def test_a_trial_ends_in_time_even_if_tuples_are_as_dear_as_they_may_be(waited, kept):
    plan = GOVERNOR.decide(SMALL, demand(20_000, waited=waited)).plan

    assert plan.keep * 20_000 == pytest.approx(kept)


@pytest.mark.parametrize(
    ("explored", "tuples"),
    [
        (None, 20_000),  # load was shed lately: there is nothing to find out
        (10_000, 20_000),  # batches half as large tell enough
        (2_500, 20_001),  # more than is tried when nothing is known
    ],
)
def test_where_there_is_nothing_to_find_out_or_too_much_to_risk_no_trial_is_made(explored, tuples):
    decision = GOVERNOR.decide(replace(SMALL, explored_tuples=explored), demand(tuples))

    assert decision.plan.keep * tuples == pytest.approx(10_000)
    assert decision.overloaded
    assert "trial" not in decision.plan.reason


def test_the_policy_decides_what_goes_in_a_trial():
    vips = replace(GOVERNOR, policy=Priority(keep={"vip": 1.0}))

    assert vips.decide(SMALL, demand(20_000, waited=2.5)).plan.key_keep == {"vip": 1.0}


# --- sizes ----------------------------------------------------------------------------------------


def test_a_batch_whose_size_cannot_be_foreseen_is_kept_and_says_so():
    unknown = Demand(batch_id=0, now=1000.0)

    for guidance in (None, LEARNED, replace(LEARNED, tuples_per_second=500.0)):
        decision = GOVERNOR.decide(guidance, unknown)
        assert decision.plan == Plan.keep_all("the size of the batch cannot be foreseen yet: keeping all")
        assert decision.expected_tuples is None


# --- foreseeing -----------------------------------------------------------------------------------


def test_offsets_foresee_better_than_rates():
    guidance = replace(LEARNED, tuples_per_unit=(3.0,), tuples_per_second=500.0)
    blind = replace(guidance, tuples_per_unit=())

    assert expected_tuples(guidance, demand(100, waited=2.0)) == 300
    assert expected_tuples(blind, demand(100, waited=2.0)) == 100  # an offset unit is taken for a tuple
    assert expected_tuples(guidance, demand(None, waited=2.0)) == 1_000
    assert expected_tuples(None, demand(None, waited=2.0)) is None


def test_rates_are_not_extended_over_the_time_that_the_source_was_idle():
    # The batch before was committed 56 s ago, so nothing waited: at most 2.5 s worth of tuples have come.
    guidance = replace(LEARNED, batch_id=7, committed_at=944.0, tuples_per_second=6_000.0)
    recent = [decided(7, 1.0)]

    assert GOVERNOR.decide(guidance, demand(None, waited=60.0), recent).expected_tuples == 15_000
    assert GOVERNOR.decide(guidance, demand(30_000, waited=60.0), recent).plan.keep == pytest.approx(2 / 3)


def test_a_source_is_not_thought_idle_on_guidance_that_has_not_seen_the_last_batch():
    guidance = replace(LEARNED, batch_id=6, committed_at=944.0, tuples_per_second=6_000.0)

    for recent in ([], [decided(7, 1.0)]):
        assert GOVERNOR.decide(guidance, demand(None, waited=60.0), recent).expected_tuples == 360_000


# --- guidance that is no longer renewed -----------------------------------------------------------


def test_plans_rest_on_old_guidance_for_the_grace_then_all_is_kept_and_the_reason_says_so():
    governor = replace(GOVERNOR, grace_seconds=60.0)
    plans = [governor.decide(LEARNED, demand(40_000, now=1000.0 + silent)).plan for silent in (0, 30, 60, 61, 600)]

    assert [plan.keep for plan in plans] == pytest.approx([0.5, 0.5, 0.5, 1.0, 1.0])
    assert plans[3].reason == ("the controller has been silent for 61 s, longer than the 60 s of grace: keeping all")


def test_silence_outweighs_a_cold_start():
    stale = Guidance(published_at=0.0)

    assert GOVERNOR.decide(stale, demand(10**9)).plan.keep == 1.0


# --- dwelling -------------------------------------------------------------------------------------


def test_shedding_ends_only_below_nine_tenths_of_the_headroom():
    # 19,000 tuples take 1.9 s: inside 0.8 * 2.5 s = 2 s, outside nine tenths of it.
    calm, shedding = [decided(6, 1.0), decided(7, 1.0)], [decided(6, 1.0), decided(7, 0.5)]

    assert not GOVERNOR.decide(LEARNED, demand(19_000), calm).plan.sheds
    assert GOVERNOR.decide(LEARNED, demand(19_000), shedding).plan.keep == pytest.approx(1.8 / 1.9)
    assert not GOVERNOR.decide(LEARNED, demand(17_900), shedding).plan.sheds


def test_the_last_two_decisions_count_and_no_older_ones():
    kept = []
    for ago in range(1, 5):
        recent = [decided(8 - back, 0.5 if back == ago else 1.0) for back in range(5, 0, -1)]
        kept.append(GOVERNOR.decide(LEARNED, demand(19_000), recent).plan.keep)

    assert kept == pytest.approx([1.8 / 1.9, 1.8 / 1.9, 1.0, 1.0])


def test_shedding_for_the_dwells_sake_does_not_prolong_the_dwell():
    """Between nine tenths and the whole of the headroom, a load is shed for two batches after a burst, then no more."""
    recent, kept = [decided(7, 0.1)], []
    for batch_id in range(8, 12):
        decision = GOVERNOR.decide(LEARNED, replace(demand(19_000), batch_id=batch_id), recent)
        recent.append(decision)
        kept.append(decision.plan.keep == 1.0)
    assert kept == [False, False, True, True]


def test_a_policy_that_keeps_all_keeps_all_on_a_cold_start_too():
    decision = replace(GOVERNOR, policy=KeepAll()).decide(None, demand(10_000_000))
    assert not decision.plan.sheds
    assert decision.plan.reason == "cold start: costs not learned yet, and the policy keeps all"


def test_listed_keys_have_their_rate_on_a_cold_start_too():
    decision = replace(GOVERNOR, policy=Priority(keep={"vip": 1.0})).decide(None, demand(10_000_000))
    assert decision.plan.key_keep == {"vip": 1.0}
    assert decision.plan.keep <= GOVERNOR.probe_tuples / 10_000_000


def test_without_dwelling_every_batch_gets_the_full_headroom():
    hasty = replace(GOVERNOR, dwell_batches=0)

    assert not hasty.decide(LEARNED, demand(19_000), [decided(7, 0.1)]).plan.sheds


# --- whatever comes -------------------------------------------------------------------------------

amounts = st.just(0.0) | st.floats(1e-6, 1e12)
guidances = st.none() | st.builds(
    Guidance,
    published_at=st.floats(900, 1000),
    batch_id=st.none() | st.integers(0, 10),
    committed_at=st.none() | st.floats(900, 1000),
    cost=st.none()
    | st.builds(
        Cost,
        fixed_seconds=st.just(0.0) | st.floats(1e-6, 100),
        kept_seconds=st.just(0.0) | st.floats(1e-9, 1),
        shed_seconds=st.just(0.0) | st.floats(1e-9, 1),
    ),
    largest_kept=st.integers(0, 10**9),
    tuples_per_unit=st.lists(amounts, max_size=3).map(tuple),
    tuples_per_second=st.none() | amounts,
)
demands = st.builds(
    Demand,
    batch_id=st.just(8),
    now=st.floats(1000, 1100),
    waited_seconds=st.none() | amounts,
    units_by_source=st.lists(st.none() | amounts, max_size=3).map(tuple),
)
pasts = st.lists(st.builds(decided, st.integers(0, 7), st.floats(0, 1)), max_size=5)


@given(guidance=guidances, demand=demands, recent=pasts)
def test_any_demand_gets_a_plan_with_a_reason(guidance, demand, recent):
    decision = GOVERNOR.decide(guidance, demand, recent)

    assert 0 <= decision.plan.keep <= 1
    assert decision.plan.reason
    assert decision == GOVERNOR.decide(guidance, demand, recent)


@pytest.mark.parametrize("units", [0, None])
def test_zero_tuples_and_zero_rates_are_kept_whole(units):
    for guidance in (LEARNED, replace(LEARNED, tuples_per_second=0.0, tuples_per_unit=(0.0,))):
        for waited in (0.0, 1.0, 60.0):
            assert not GOVERNOR.decide(guidance, demand(units, waited=waited), [decided(7, 0.01)]).plan.sheds


def test_a_governor_travels_to_the_executors():
    assert pickle.loads(pickle.dumps(GOVERNOR)) == GOVERNOR


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"latency_seconds": 0}, "latency_seconds must be finite and above 0, got 0; it is the time from arrival"),
        ({"latency_seconds": math.nan}, "latency_seconds must be finite and above 0, got nan"),
        ({"headroom": 1.2}, r"headroom must be in \(0, 1\], got 1.2; it is the share"),
        ({"dwell_batches": -1}, "dwell_batches must be at least 0, got -1"),
        ({"probe_tuples": 0}, "probe_tuples must be finite and above 0, got 0; it is the most tuples"),
        ({"grace_seconds": -5}, "grace_seconds must be finite and above 0, got -5; it is how long"),
        ({"policy": None}, r"policy must have decide\(load\), got None; for example Uniform\(\)"),
    ],
)
def test_options_that_make_no_sense_are_refused(options, message):
    with pytest.raises(InvalidInputError, match=message):
        replace(GOVERNOR, **options)
