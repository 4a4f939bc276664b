"""Windows by time and by count."""

import pytest

from penstock.model.errors import InvalidInputError
from penstock.policy.sampling import Query, effective_keep
from penstock.policy.window_size import CountWindow, TimeWindow


def keep_at(window, rate):
    query = Query(name="q", window_tuples=window.tuples(tuples_per_second=rate, selectivity=0.1))
    return effective_keep(query, relative_error=0.2, miss_probability=0.01)


def test_a_spike_fills_time_windows_so_they_need_a_smaller_share_and_count_windows_the_same():
    assert keep_at(TimeWindow(seconds=10), 10_000) == pytest.approx(keep_at(TimeWindow(seconds=10), 1_000) / 10**0.5)
    assert keep_at(CountWindow(size=10_000), 10_000) == keep_at(CountWindow(size=10_000), 1_000)


@pytest.mark.parametrize(
    ("act", "message"),
    [
        (lambda: TimeWindow(seconds=0), "seconds must be finite and above 0, got 0; it is the length"),
        (lambda: CountWindow(size=-1), "size must be finite and above 0, got -1; it is the tuples"),
        (
            lambda: TimeWindow(seconds=1).tuples(tuples_per_second=-1, selectivity=1),
            "tuples_per_second must be finite and at least 0, got -1",
        ),
        (
            lambda: CountWindow(size=1).tuples(tuples_per_second=1, selectivity=-1),
            "selectivity must be finite and at least 0, got -1",
        ),
    ],
)
def test_windows_that_cannot_be_are_refused(act, message):
    with pytest.raises(InvalidInputError, match=f"^{message}"):
        act()
