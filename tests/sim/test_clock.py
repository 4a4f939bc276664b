"""Time that passes only when told to."""

import math

import pytest

from lab.sim.clock import SimulatedClock
from penstock.model.errors import InvalidInputError


def test_time_passes_by_steps_and_to_moments():
    clock = SimulatedClock(now=10.0)
    clock.advance(2.5)
    assert clock.now == 12.5
    clock.advance(0.0)
    assert clock.now == 12.5
    clock.advance_to(20.0)
    assert clock.now == 20.0


@pytest.mark.parametrize("step", [-1e-9, -5, math.nan, math.inf])
def test_time_never_goes_back_nor_to_the_end_of_time(step):
    clock = SimulatedClock(now=4.0)

    with pytest.raises(
        InvalidInputError, match=r"the clock stands at 4.0 s and cannot go to .* time only moves forward"
    ):
        clock.advance(step)
    assert clock.now == 4.0


@pytest.mark.parametrize("now", [math.nan, math.inf])
def test_a_clock_starts_somewhere(now):
    with pytest.raises(InvalidInputError, match=r"now must be finite, got .*; it is where the clock starts"):
        SimulatedClock(now=now)
