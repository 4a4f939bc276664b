"""Finished batches in, guidance out."""

import pytest

from penstock.control.controller import Controller
from penstock.control.governor import Governor
from penstock.control.guidance import Guidance
from penstock.model.batch import Batch
from penstock.model.errors import InvalidInputError
from penstock.model.forecast import Forecast
from penstock.model.load import Cost

GOVERNOR = Governor(latency_seconds=5.0)


def batch(batch_id, kept, *, shed=0, started_at=None, seconds=1.0, **fields):
    return Batch(
        batch_id=batch_id,
        offered=kept + shed,
        kept=kept,
        shed=shed,
        keep=1.0 if not shed else kept / (kept + shed),
        reason="test",
        started_at=started_at,
        duration_seconds=seconds,
        **fields,
    )


def taught(*batches, units=None, resume=None):
    controller = Controller(GOVERNOR, resume=resume)
    for position, finished in enumerate(batches):
        controller.learn(finished, units_by_source=(units[position],) if units else ())
    return controller


def test_a_new_controller_knows_nothing_but_the_time():
    assert Controller(GOVERNOR).guidance(now=7.0) == Guidance(published_at=7.0)


def test_the_whole_guidance_after_four_batches_of_a_quiet_stream():
    batches = [batch(i, 3_000, started_at=2.0 * i, seconds=0.5) for i in range(4)]
    guidance = taught(*batches, units=[3_000] * 4).guidance(now=7.0)

    assert guidance == Guidance(
        published_at=7.0,
        batch_id=3,
        committed_at=6.5,
        forecast=guidance.forecast,
        tuples_per_unit=(1.0,),
        tuples_per_second=1_500.0,
    )
    assert guidance.cost.of(kept=3_000, shed=0) == pytest.approx(0.5)


def test_guidance_is_renewed_without_new_batches():
    controller = taught(batch(0, 100))

    assert [controller.guidance(now=now).published_at for now in (1.0, 99.0)] == [1.0, 99.0]


# --- sizes and rates ------------------------------------------------------------------------------


def test_tuples_per_unit_follow_what_was_offered_kept_or_not():
    controller = Controller(GOVERNOR)
    seen = []
    for batch_id, (kept, shed, units) in enumerate([(100, 0, 50), (50, 150, 50), (200, 0, 50)]):
        controller.learn(batch(batch_id, kept, shed=shed), units_by_source=(units,))
        seen.extend(controller.guidance(now=0).tuples_per_unit)

    assert seen == pytest.approx([2.0, 2.6, 3.02])  # 2; 2 + 0.3 * (4 - 2); 2.6 + 0.3 * (4 - 2.6)


@pytest.mark.parametrize("units", [None, 0])
def test_a_batch_without_units_leaves_the_tuples_per_unit(units):
    guidance = taught(batch(0, 100), batch(1, 999), units=[50, units]).guidance(now=0)

    assert guidance.tuples_per_unit == (2.0,)


def test_the_arrival_rate_follows_a_burst_at_once():
    sizes = [1_000, 1_000, 10_000, 10_000, 10_000]
    controller = Controller(GOVERNOR)
    rates = []
    for i, size in enumerate(sizes):
        controller.learn(batch(i, size, started_at=float(i), seconds=0.9))
        rates.append(controller.guidance(now=0).tuples_per_second)

    assert rates == [None, 1_000, pytest.approx(7_300), pytest.approx(9_190), pytest.approx(9_757)]


def test_idle_time_does_not_dilute_the_arrival_rate():
    # 5,000 tuples after a minute without any: they came within half the target, not within the minute.
    guidance = taught(
        batch(0, 2_000, started_at=0.0, seconds=0.5),
        batch(1, 2_000, started_at=1.0, seconds=0.5),
        batch(2, 5_000, started_at=61.0, seconds=0.5),
    ).guidance(now=0)

    assert guidance.tuples_per_second == pytest.approx(2_000)


def test_empty_batches_and_zero_rates_never_lock_it():
    batches = [batch(i, 3_000, started_at=float(i), seconds=0.5) for i in range(5)]
    silence = [batch(5 + i, 0, started_at=5.0 + i, seconds=0.1) for i in range(60)]
    again = [batch(65 + i, 3_000, started_at=65.0 + i, seconds=0.5) for i in range(3)]
    controller = taught(*batches, *silence)

    quiet = controller.guidance(now=0)
    assert quiet.tuples_per_second == pytest.approx(0, abs=1e-6)
    for finished in again:
        controller.learn(finished)

    assert controller.guidance(now=0).tuples_per_second == pytest.approx(3_000, rel=0.03)
    assert controller.guidance(now=0).cost.of(kept=3_000, shed=0) == pytest.approx(0.5, rel=0.3)


def test_two_batches_of_the_same_instant_leave_the_rate():
    guidance = taught(
        batch(0, 100, started_at=0.0), batch(1, 100, started_at=1.0), batch(2, 900, started_at=1.0)
    ).guidance(now=0)

    assert guidance.tuples_per_second == 100


# --- costs ----------------------------------------------------------------------------------------


def test_what_may_be_tried_grows_only_by_batches_that_left_room():
    controller = Controller(GOVERNOR)
    tried = []
    for batch_id, (kept, seconds) in enumerate([(500, 0.5), (20_000, 1.0), (20_000, 2.0), (20_000, 5.0)]):
        controller.learn(batch(batch_id, kept, seconds=seconds))
        tried.append(controller.guidance(now=0).probe_rows)

    assert tried == [None, 50_000, 50_000, 10_000]


def test_late_batches_widen_the_margin_and_those_in_time_do_not():
    def margin(latency_seconds):
        batches = [batch(i, 10_000 + i, seconds=2.0 + 0.02 * (i % 5)) for i in range(40)]
        last = batch(40, 10_000, seconds=2.0, latency_seconds=latency_seconds)
        return taught(*batches, last).guidance(now=0).forecast.late_factor

    assert margin(5.1) > margin(4.9)


def test_what_went_by_beside_the_job_is_no_cost_of_rows():
    slow = [batch(i, 200, seconds=2.5, overhead_seconds=2.4) for i in range(8)]

    assert taught(*slow).guidance(now=0).cost.fixed_seconds > 2.4


def test_rows_of_other_sources_are_a_cost_of_their_own():
    controller = Controller(GOVERNOR)
    for i in range(30):
        foreign = 500_000 if i % 3 == 0 else 5_000
        units = (4_000 + 10 * i, foreign)
        controller.learn(batch(i, units[0], seconds=0.2 + units[0] * 1e-4 + foreign * 2e-6), units_by_source=units)
    cost = controller.guidance(now=0).cost

    assert cost.foreign_seconds == pytest.approx(2e-6, rel=0.1)
    assert cost.of(kept=4_000, shed=0) == pytest.approx(0.6, rel=0.1)


@pytest.mark.parametrize("seconds", [None, 0.0])
def test_a_batch_without_a_duration_teaches_no_cost(seconds):
    recounted = [batch(i, 1_000, seconds=seconds, recounted=True) for i in range(10)]

    assert taught(*recounted).guidance(now=0).cost is None


@pytest.mark.parametrize("seconds", [-1.0, float("nan"), float("inf")])
def test_a_duration_that_cannot_be_is_refused(seconds):
    with pytest.raises(InvalidInputError, match="cannot be learned from"):
        taught(batch(0, 100, seconds=seconds))


# --- keys with a rate of their own ----------------------------------------------------------------


def test_the_share_of_listed_keys_is_measured_only_while_a_plan_lists_them():
    controller = Controller(GOVERNOR)
    seen = []
    for batch_id, (offered, kept) in enumerate([(0, 0), (20, 10), (0, 0), (40, 40)]):
        controller.learn(batch(batch_id, 100, listed_offered=offered, listed_kept=kept))
        guidance = controller.guidance(now=0)
        seen.append((guidance.listed_share, guidance.listed_keep))

    assert seen == [(None, None), (0.2, 0.5), (0.2, 0.5), (pytest.approx(0.26), pytest.approx(0.65))]


# --- a new run ------------------------------------------------------------------------------------

EARLIER = Guidance(
    published_at=50.0,
    batch_id=41,
    committed_at=49.0,
    forecast=Forecast(cost=Cost(fixed_seconds=0.2, kept_seconds=1e-4), noise=0.1, late_factor=1.3),
    probe_rows=90_000.0,
    tuples_per_unit=(2.0,),
    tuples_per_second=400.0,
)


def test_what_an_earlier_run_learned_stands_until_this_run_has_its_own():
    controller = Controller(GOVERNOR, resume=EARLIER)
    costs = []
    for i in range(5):
        costs.append(controller.guidance(now=0).cost)
        controller.learn(batch(42 + i, 1_000, seconds=5.0))

    assert costs[:4] == [EARLIER.cost] * 4
    assert costs[4].of(kept=1_000, shed=0) == pytest.approx(5.0)


def test_a_new_run_does_not_take_its_own_downtime_for_an_idle_source():
    resumed = Controller(GOVERNOR, resume=EARLIER).guidance(now=3650.0)

    assert (resumed.published_at, resumed.batch_id, resumed.committed_at) == (3650.0, None, None)
    assert (resumed.cost, resumed.tuples_per_second) == (EARLIER.cost, EARLIER.tuples_per_second)
