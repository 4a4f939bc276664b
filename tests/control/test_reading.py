import pytest

from penstock.control.governor import Governor
from penstock.control.guidance import Guidance
from penstock.control.reading import decide_reading
from penstock.model.forecast import Forecast
from penstock.model.load import Cost

GOVERNOR = Governor(latency_seconds=5.0)


def learned(**cost):
    known = Cost(**{"fixed_seconds": 0.2, "kept_seconds": 1e-4, **cost})
    return Guidance(published_at=100.0, forecast=Forecast(cost=known, noise=0.1, late_factor=1.25))


def test_everything_is_read_while_dropping_all_of_it_leaves_time():
    reading = decide_reading(GOVERNOR, learned(shed_seconds=1e-6), waiting_tuples=900_000, now=100.0)
    assert reading.keep == 1.0


def test_what_is_read_of_a_flood_takes_the_time_that_reading_may_take():
    guidance = learned(shed_seconds=1e-6)
    for waiting in (2e6, 1e8, 1e10):
        reading = decide_reading(GOVERNOR, guidance, waiting_tuples=waiting, now=100.0)
        assert reading.keep * waiting * 1e-6 == pytest.approx(0.9)  # half of 2.5 s less the margin and the fixed cost
        assert "alone would take" in reading.reason


def test_a_fixed_cost_beyond_the_plan_does_not_stop_the_reading():
    guidance = learned(shed_seconds=1e-6, fixed_seconds=30.0)
    assert decide_reading(GOVERNOR, guidance, waiting_tuples=1e9, now=100.0).keep > 0


def test_a_cold_start_reads_a_bounded_number():
    reading = decide_reading(GOVERNOR, None, waiting_tuples=50_000_000, now=0.0)
    assert reading.keep * 50_000_000 == pytest.approx(500_000)
    assert reading.reason == "cold start: costs not learned yet, reading 500,000 of 50,000,000 tuples"


def test_a_silent_controller_means_that_all_is_read():
    assert decide_reading(GOVERNOR, learned(shed_seconds=1e-6), waiting_tuples=1e9, now=161.0).keep == 1.0
