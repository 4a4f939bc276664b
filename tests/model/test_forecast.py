"""What a forecast promises, and what may be kept under it."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.model.errors import InvalidInputError
from penstock.model.forecast import LEAST_SHARE, Forecast
from penstock.model.load import Cost

COST = Cost(fixed_seconds=0.2, kept_seconds=1e-4, shed_seconds=1e-6, foreign_seconds=1e-7)
FORECAST = Forecast(cost=COST, noise=0.1, late_factor=1.2, late_seconds=0.1)

forecasts = st.builds(
    Forecast,
    cost=st.builds(
        Cost,
        fixed_seconds=st.floats(0, 10),
        kept_seconds=st.floats(1e-7, 1e-2),
        shed_seconds=st.just(0.0),
    ),
    noise=st.floats(0, 1),
    late_factor=st.floats(1, 5),
    late_seconds=st.floats(0, 5),
    fixed_variance=st.floats(0, 4),
    kept_variance=st.floats(0, 1e-6),
)


def test_it_travels_as_json():
    assert Forecast.from_dict(json.loads(json.dumps(FORECAST.to_dict()))) == FORECAST


def test_a_slower_machine_takes_longer_for_everything():
    slower = FORECAST.scaled(2.0)

    assert slower.seconds(kept=1_000, shed=5_000) == pytest.approx(2 * FORECAST.seconds(kept=1_000, shed=5_000))
    assert slower.cost.foreign_seconds == 2 * COST.foreign_seconds


@given(forecast=forecasts, offered=st.integers(0, 10**7), seconds=st.floats(0.01, 100), share=st.floats(0.1, 1))
def test_what_is_kept_ends_in_time_but_for_the_least_that_is_kept_at_any_rate(forecast, offered, seconds, share):
    expected_seconds = share * seconds
    kept = forecast.most_kept(offered=offered, seconds=seconds, expected_seconds=expected_seconds)
    spare = min(seconds, expected_seconds) - forecast.seconds(kept=0, shed=offered)
    least = LEAST_SHARE * min(offered, max(0.0, spare) / forecast.cost.kept_seconds)

    assert 0 <= kept <= offered
    if kept > 0:
        assert forecast.seconds(kept=kept, shed=offered - kept) <= expected_seconds * (1 + 1e-6)
    if kept > least * (1 + 1e-6):
        assert forecast.at_most(kept=kept, shed=offered - kept) <= seconds * (1 + 1e-6)
    else:
        assert kept >= least * (1 - 1e-6)


def test_noise_below_zero_is_refused():
    with pytest.raises(InvalidInputError, match="noise must be finite and at least 0, got -1"):
        Forecast(cost=COST, noise=-1)
