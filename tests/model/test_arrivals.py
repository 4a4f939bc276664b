"""When tuples arrive, to the last bit."""

import math
import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.model.arrivals import Arrivals, Phase
from penstock.model.errors import InvalidInputError

BURST = Arrivals.of((10, 1000), (20, 5000), (10, 1000))

phases = st.tuples(st.floats(1e-3, 100), st.just(0.0) | st.floats(1e-3, 1000))
patterns = st.lists(phases, min_size=1, max_size=6).map(lambda given: Arrivals.of(*given))


def test_a_burst_is_counted_exactly_at_every_edge():
    assert [BURST.count_at(seconds) for seconds in (-1, 0, 0.0005, 0.001, 10, 10.0002, 30, 39.9995, 40, 1e9)] == [
        0, 0, 0, 1, 10_000, 10_001, 110_000, 119_999, 120_000, 120_000,
    ]  # fmt: skip


def test_times_and_rates_count_as_the_decimals_they_are_written_as():
    assert Arrivals.of((10, 0.7)).total_tuples == 7
    assert Arrivals.of(*[(0.1, 10)] * 10).total_tuples == 10
    assert Arrivals.of(*[(0.1, 10)] * 10).total_seconds == 1.0


def test_tuples_are_spread_evenly_and_none_falls_into_a_pause():
    arrivals = Arrivals.of((2, 2), (5, 0), (1, 4))

    assert arrivals.arrival_seconds(np.arange(8)).tolist() == [0.5, 1.0, 1.5, 2.0, 7.25, 7.5, 7.75, 8.0]
    assert [arrivals.count_at(seconds) for seconds in (2, 4, 7, 7.25)] == [4, 4, 4, 5]


def test_a_tuple_may_take_more_than_one_phase_to_come():
    arrivals = Arrivals.of((1, 0.5), (1, 0), (1, 0.5), (1, 3))

    assert arrivals.arrival_seconds([0, 1, 2, 3]) == pytest.approx([3.0, 3 + 1 / 3, 3 + 2 / 3, 4.0])


@given(arrivals=patterns)
def test_a_tuple_has_arrived_if_and_only_if_it_is_counted(arrivals):
    for index in {0, arrivals.total_tuples // 2, arrivals.total_tuples - 1} & set(range(arrivals.total_tuples)):
        arrived_at = float(arrivals.arrival_seconds(index))
        assert index < arrivals.count_at(arrived_at)
        assert index >= arrivals.count_at(math.nextafter(arrived_at, -math.inf))


@given(arrivals=patterns, seconds=st.floats(-1, 700))
def test_the_count_at_any_time_splits_the_arrival_times(arrivals, seconds):
    count = arrivals.count_at(seconds)

    assert 0 <= count <= arrivals.total_tuples
    assert count == 0 or arrivals.arrival_seconds(count - 1) <= seconds
    assert count == arrivals.total_tuples or arrivals.arrival_seconds(count) > seconds


@given(arrivals=patterns)
def test_arrival_times_never_go_back_and_stay_within_the_phases(arrivals):
    times = arrivals.arrival_seconds(np.arange(min(arrivals.total_tuples, 5_000)))

    assert np.all(np.diff(times) >= 0)
    assert np.all((times >= 0) & (times <= arrivals.total_seconds))


def test_arrivals_are_values():
    assert Arrivals.of((1, 2)) == Arrivals((Phase(seconds=1, tuples_per_second=2),))
    assert Arrivals.of((1, 2)) != Arrivals.of((1, 3))
    travelled = pickle.loads(pickle.dumps(BURST))
    assert travelled == BURST
    assert travelled.count_at(12) == BURST.count_at(12)


def test_a_stream_may_be_all_pause():
    silence = Arrivals.of((5, 0))

    assert (silence.total_tuples, silence.count_at(3), silence.arrival_seconds([]).size) == (0, 0, 0)


@pytest.mark.parametrize("rate", [-1, math.nan, math.inf, "5"])
def test_a_rate_below_zero_is_refused(rate):
    with pytest.raises(
        InvalidInputError, match=r"tuples_per_second must be .* got .*; it is an arrival rate; 0 is a pa"
    ):
        Arrivals.of((1, rate))


@pytest.mark.parametrize("seconds", [0, -1, math.nan, math.inf])
def test_a_phase_without_time_is_refused(seconds):
    with pytest.raises(InvalidInputError, match=r"^seconds must be finite and above 0, got .*; .* leave out a phase"):
        Arrivals.of((seconds, 5))


def test_a_pattern_without_phases_is_refused_with_an_example():
    with pytest.raises(InvalidInputError, match=r"phases must not be empty; .* as in Arrivals.of\(\(10, 1000\)\)"):
        Arrivals.of()


@pytest.mark.parametrize("index", [-1, 120_000, 0.5, [0, 120_000], "0", True])
def test_a_tuple_that_never_arrives_has_no_time(index):
    with pytest.raises(InvalidInputError, match=r"index must hold whole numbers in \[0, 120000\), got "):
        BURST.arrival_seconds(index)


def test_no_count_without_a_time():
    with pytest.raises(InvalidInputError, match="seconds must be a number, got nan"):
        BURST.count_at(math.nan)
