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
from penstock.model.forecast import Forecast
from penstock.model.load import Cost
from penstock.model.plan import Plan
from penstock.policy.baseline import KeepAll, Uniform
from penstock.policy.priority import Priority

GOVERNOR = Governor(latency_seconds=5.0)
# 100 µs a row, nothing else; 19 of 20 batches end within 1.25 times what was expected.
FORECAST = Forecast(cost=Cost(fixed_seconds=0.0, kept_seconds=1e-4), noise=0.1, late_factor=1.25)
LEARNED = Guidance(published_at=1000.0, forecast=FORECAST, tuples_per_unit=(1.0,))


def costing(**cost):
    return replace(LEARNED, forecast=replace(FORECAST, cost=Cost(**cost)))


def demand(tuples, *, waited=1.0, batch_id=8, now=1000.0):
    return Demand(batch_id=batch_id, now=now, waited_seconds=waited, units_by_source=(tuples,))


def decided(batch_id, keep, expected=None):
    plan = Plan(keep=keep, reason="test")
    return Decision(batch_id=batch_id, decided_at=990.0 + batch_id, plan=plan, expected_tuples=expected)


def test_a_batch_that_fits_is_kept_whole():
    decision = GOVERNOR.decide(LEARNED, demand(20_000))

    assert decision == Decision(
        batch_id=8,
        decided_at=1000.0,
        plan=Plan.keep_all("load 0.50 <= headroom 0.80: 20,000 tuples need 2.00 s of 4.00 s"),
        expected_tuples=20_000,
    )


@pytest.mark.parametrize(
    ("waited", "seconds"),
    [
        (None, 2.0),  # nobody knows how long: as after a batch that took its half
        (0.0, 5 / 2.25),  # a batch leaves the next one as much, with its margin of 1.25
        (1.0, 5 / 2.25),
        (2.5, 2.0),  # 5 s - 2.5 s are left, and 1.25 times as long may be needed
        (3.0, 1.6),
        (4.0, 0.8),
        (4.9, 0.1),  # the policy's least rate
        (5.1, 2.0),  # late at any rate: the rows that arrive meanwhile are to be in time
        (60.0, 2.0),
    ],
)
def test_a_batch_takes_what_its_oldest_row_has_left_less_the_margin(waited, seconds):
    plan = GOVERNOR.decide(LEARNED, demand(100_000, waited=waited)).plan

    assert plan.keep == pytest.approx(seconds / 10, rel=1e-3)


@pytest.mark.parametrize(("waited", "seconds"), [(1.0, 5 / 1.75), (10 / 3, 8 / 3), (4.0, 2.4)])
def test_to_hold_the_mean_row_batches_may_take_two_thirds_of_the_target(waited, seconds):
    mean = replace(GOVERNOR, latency_of="mean")

    assert mean.decide(LEARNED, demand(100_000, waited=waited)).plan.keep == pytest.approx(seconds / 10, rel=1e-3)


@pytest.mark.parametrize(("factor", "seconds"), [(1.0, 2.5), (1.05, 2.38), (1.6, 1.56)])
def test_a_quiet_machine_is_used_to_the_limit_and_a_noisy_one_less(factor, seconds):
    guidance = replace(LEARNED, forecast=replace(FORECAST, late_factor=factor))

    assert GOVERNOR.decide(guidance, demand(100_000, waited=2.5)).plan.keep == pytest.approx(seconds / 10, rel=1e-2)


def test_what_is_guessed_of_a_large_batch_counts_as_margin():
    guessed = replace(LEARNED, forecast=replace(FORECAST, kept_variance=4e-9))

    known, unknown = (GOVERNOR.decide(each, demand(100_000, waited=2.5)).plan.keep for each in (LEARNED, guessed))
    assert unknown < 0.7 * known


# --- where dropping does not help -----------------------------------------------------------------


def test_nothing_is_dropped_where_that_saves_less_than_the_noise():
    # 200 rows of a microsecond each, and a batch that takes 2.4 s whatever it holds.
    plan = GOVERNOR.decide(costing(fixed_seconds=2.4, kept_seconds=1e-6), demand(200, waited=2.5)).plan

    assert plan.keep == 1
    assert plan.reason == (
        "load 0.96 <= headroom 1.00: 200 tuples need 2.40 s of 2.50 s; "
        "dropping all would save 0.0002 s, less than the noise of 0.24 s: keeping all"
    )


def test_where_no_rate_meets_the_target_it_says_so_and_keeps_what_costs_nothing():
    plan = GOVERNOR.decide(costing(fixed_seconds=3.0, kept_seconds=1e-4), demand(100_000, waited=3.0)).plan

    # A tenth of noise on 3 s hides 0.3 s of rows.
    assert plan.keep * 100_000 == pytest.approx(3_000, rel=0.01)
    assert plan.reason == (
        "the target cannot be met at any rate: without any row a batch takes 3.00 s of 2.50 s; "
        "keeping what costs no more than the noise"
    )


def test_rows_that_are_late_at_any_rate_are_not_shed_in_vain():
    plan = GOVERNOR.decide(LEARNED, demand(100_000, waited=4.99)).plan
    late = GOVERNOR.decide(costing(fixed_seconds=0.2, kept_seconds=1e-4), demand(100_000, waited=4.9)).plan

    assert plan.keep < 0.01 + 1e-9
    assert late.keep == pytest.approx((2.0 - 0.2) / 10, rel=0.01)
    assert late.reason.endswith("; 0.10 s are left, too few at any rate: planned to be back in time with the next")


def test_what_piled_up_during_a_stall_is_kept_if_it_can_be_expected_to_end_in_time():
    stalled, overloaded = demand(15_000, waited=3.4), demand(24_000, waited=2.5)

    assert not GOVERNOR.decide(LEARNED, stalled).plan.sheds  # 1.5 s of 1.6 s, though 1.9 s are not ruled out
    assert GOVERNOR.decide(LEARNED, overloaded).plan.sheds  # 2.4 s of 2.5 s would leave the next batch no time


def test_what_piled_up_during_a_stall_is_kept_on_a_machine_that_stalls_often_but_not_on_a_guess():
    stalling = replace(LEARNED, forecast=replace(FORECAST, noise=0.3, late_factor=1.7, late_seconds=1.5))
    guessing = replace(LEARNED, forecast=replace(FORECAST, kept_variance=1e-8))

    assert not GOVERNOR.decide(
        stalling, demand(15_000, waited=3.0)
    ).plan.sheds  # 1.5 s of 2 s, and 4 s are not ruled out
    assert GOVERNOR.decide(guessing, demand(15_000, waited=3.0)).plan.sheds  # its rows may be twice as dear


def test_rows_of_other_sources_take_their_time_and_are_no_rows_of_ours():
    guidance = replace(
        LEARNED,
        tuples_per_unit=(1.0, 0.0),
        forecast=replace(FORECAST, cost=Cost(fixed_seconds=0.1, kept_seconds=1e-4, foreign_seconds=2e-6)),
    )

    def planned(units):
        return GOVERNOR.decide(guidance, replace(demand(None, waited=2.5), units_by_source=units))

    assert planned((5_000.0, 500_000.0)).expected_tuples == 5_000
    assert planned((5_000.0, 200_000.0)).plan.keep == 1  # 0.6 s of ours and 0.4 s of theirs
    # 1.2 s of theirs leave our rows 0.7 s of 2.0 s: they compete for the same time.
    assert planned((50_000.0, 600_000.0)).plan.keep == pytest.approx(0.7 / 5, rel=0.01)


# --- the machine's speed --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("off", "waited", "sheds"),
    [
        (0.0, 2.4, False),  # twice as long as expected, but the batch before was not: a stall, perhaps
        (0.7, 2.4, True),  # both took twice as long: the machine is slower
        (0.7, 1.2, False),  # the one before was an outlier
        (-0.7, 2.4, False),
    ],
)
def test_a_batch_that_the_guidance_has_not_seen_confirms_a_change_of_speed(off, waited, sheds):
    # The batch before held 12,000 rows, so 1.2 s were expected of it.
    guidance = replace(LEARNED, batch_id=6, forecast=replace(FORECAST, off=off))
    decision = GOVERNOR.decide(guidance, demand(15_000, waited=waited), [decided(7, 0.5, expected=24_000)])

    assert decision.plan.sheds == sheds


def test_every_other_plan_is_varied_where_nothing_else_tells_costs_apart():
    dithered = replace(LEARNED, forecast=replace(FORECAST, late_factor=1.0, dither=0.1))

    def kept(guidance, batch_id):
        return GOVERNOR.decide(guidance, demand(100_000, waited=2.5, batch_id=batch_id)).plan.keep

    assert kept(dithered, 9) == pytest.approx(0.9 * kept(dithered, 8), rel=1e-3)
    assert kept(LEARNED, 9) == kept(LEARNED, 8)


def test_the_policy_decides_what_goes():
    kept = replace(GOVERNOR, policy=KeepAll()).decide(LEARNED, demand(60_000)).plan
    fixed = replace(GOVERNOR, policy=Uniform(keep=0.2)).decide(LEARNED, demand(60_000)).plan

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


def test_probing_takes_what_the_batches_so_far_allow():
    tried = [
        GOVERNOR.decide(Guidance(published_at=1000.0, probe_rows=rows), demand(10**6)).plan.keep * 10**6
        for rows in (None, 5_000.0, 120_000.0)
    ]

    assert tried == pytest.approx([20_000, 5_000, 120_000])


def test_a_probe_that_took_too_long_bounds_the_next_one_though_the_guidance_has_not_seen_it():
    unseen = Guidance(published_at=1000.0, batch_id=6)
    last = decided(7, 0.5, expected=40_000)

    assert GOVERNOR.decide(unseen, demand(10**6, waited=5.0), [last]).plan.keep * 10**6 == pytest.approx(10_000)
    assert GOVERNOR.decide(unseen, demand(10**6, waited=2.0), [last]).plan.keep * 10**6 == pytest.approx(20_000)


def test_a_backlog_is_bounded_once_costs_are_known():
    # An hour of 10,000 tuples a second: 20,000 fit at best, and the least rate of the policy is 1 %.
    plan = replace(GOVERNOR, policy=Uniform(min_keep=0.01)).decide(LEARNED, demand(36_000_000, waited=3600.0)).plan

    assert plan.keep == 0.01


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
    plans = [governor.decide(LEARNED, demand(50_000, now=1000.0 + silent)).plan for silent in (0, 30, 60, 61, 600)]

    assert [plan.keep for plan in plans] == pytest.approx([0.4444, 0.4444, 0.4444, 1.0, 1.0], abs=1e-4)
    assert plans[3].reason == ("the controller has been silent for 61 s, longer than the 60 s of grace: keeping all")


def test_silence_outweighs_a_cold_start():
    stale = Guidance(published_at=0.0)

    assert GOVERNOR.decide(stale, demand(10**9)).plan.keep == 1.0


def test_a_policy_that_keeps_all_keeps_all_on_a_cold_start_too():
    decision = replace(GOVERNOR, policy=KeepAll()).decide(None, demand(10_000_000))
    assert not decision.plan.sheds
    assert decision.plan.reason == "cold start: costs not learned yet, and the policy keeps all"


def test_listed_keys_have_their_rate_on_a_cold_start_too():
    decision = replace(GOVERNOR, policy=Priority(keep={"vip": 1.0})).decide(None, demand(10_000_000))
    assert decision.plan.key_keep == {"vip": 1.0}
    assert decision.plan.keep <= GOVERNOR.probe_tuples / 10_000_000


# --- whatever comes -------------------------------------------------------------------------------

amounts = st.just(0.0) | st.floats(1e-6, 1e12)
guidances = st.none() | st.builds(
    Guidance,
    published_at=st.floats(900, 1000),
    batch_id=st.none() | st.integers(0, 10),
    committed_at=st.none() | st.floats(900, 1000),
    forecast=st.none()
    | st.builds(
        Forecast,
        cost=st.builds(
            Cost,
            fixed_seconds=st.just(0.0) | st.floats(1e-6, 100),
            kept_seconds=st.just(0.0) | st.floats(1e-9, 1),
            shed_seconds=st.just(0.0) | st.floats(1e-9, 1),
        ),
        noise=st.floats(0, 1),
        late_factor=st.floats(1, 10),
        late_seconds=st.floats(0, 10),
        kept_variance=st.floats(0, 1e-3),
        off=st.floats(-3, 3),
    ),
    probe_rows=st.none() | st.floats(1, 1e9),
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
        ({"late_share": 0.0}, r"late_share must be in \(0, 1\), got 0.0; it is the share of batches that may be late"),
        ({"late_share": math.nan}, r"late_share must be in \(0, 1\), got nan"),
        ({"latency_of": "newest"}, "latency_of must be 'oldest' or 'mean', got 'newest'; it is whose latency"),
        ({"probe_tuples": 0}, "probe_tuples must be finite and above 0, got 0; it is the most tuples"),
        ({"grace_seconds": -5}, "grace_seconds must be finite and above 0, got -5; it is how long"),
        ({"policy": None}, r"policy must be a policy with decide\(load\), got None; give one, as in Uniform\(\)"),
    ],
)
def test_options_that_make_no_sense_are_refused(options, message):
    with pytest.raises(InvalidInputError, match=message):
        replace(GOVERNOR, **options)
