"""How far batches overrun what was expected, and how that becomes a promise."""

import numpy as np
import pytest

from penstock.control.margin import Margin


def beyond(margin, durations, *, noise):
    """Share of batches, expected to take a second each, that take longer than was promised before each."""
    over = []
    for seconds in durations:
        factor, more = margin.overrun(expected_seconds=1.0, noise=noise)
        over.append(seconds > factor + more)
        margin.learn(expected_seconds=1.0, seconds=seconds, noise=noise, spread=noise)
        margin.ended(late=over[-1])
    return np.array(over)


@pytest.mark.parametrize("noise", [0.05, 0.2, 0.4])
@pytest.mark.parametrize("late_share", [0.02, 0.05, 0.2])
def test_in_the_long_run_no_more_batches_are_late_than_promised(noise, late_share):
    durations = np.random.default_rng(1).lognormal(0, noise, 4_000)

    share = beyond(Margin(late_share=late_share), durations, noise=noise).mean()

    assert 0.35 * late_share < share <= late_share


def test_the_share_comes_out_even_where_the_noise_is_misjudged_and_changes():
    random = np.random.default_rng(2)
    durations = np.concatenate([random.lognormal(0, noise, 500) for noise in (0.05, 0.4, 0.1, 0.3)])

    assert beyond(Margin(late_share=0.05), durations, noise=0.05).mean() <= 0.055


def test_a_stall_is_seconds_and_not_a_factor():
    margin = Margin(late_share=0.2)
    for number in range(60):
        margin.learn(expected_seconds=1.0, seconds=3.0 if number % 3 == 0 else 1.0, noise=0.1, spread=0.1)

    short, long = margin.overrun(expected_seconds=0.1, noise=0.1), margin.overrun(expected_seconds=10, noise=0.1)

    assert short == long
    assert 1.5 < short[1] < 2.0
    assert short[0] < 1.4


def test_a_late_batch_makes_it_careful_and_batches_in_time_make_it_bold_again():
    margin = Margin(late_share=0.05)
    random = np.random.default_rng(3)
    for seconds in random.lognormal(0, 0.2, 60):
        margin.learn(expected_seconds=1.0, seconds=seconds, noise=0.2, spread=0.2)
    before, _ = margin.overrun(expected_seconds=1.0, noise=0.2)
    margin.ended(late=True)
    careful, _ = margin.overrun(expected_seconds=1.0, noise=0.2)
    for _ in range(60):
        margin.ended(late=False)
    bold, _ = margin.overrun(expected_seconds=1.0, noise=0.2)

    assert careful > before
    assert bold <= before
