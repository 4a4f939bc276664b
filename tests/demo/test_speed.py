import pytest

from penstock.demo.speed import Speed


def speed_after(*batches):
    speed = Speed()
    for rows, seconds in batches:
        speed.observe(rows, seconds)
    return speed


def test_a_young_java_is_followed_as_it_gets_faster():
    rates, speed = [], Speed()
    for rate in (3_000, 6_000, 12_000, 12_000):
        speed.observe(rate * 2, 2.0)
        rates.append(speed.rows_per_second)
    assert rates == [3_000, 4_500, 9_000, 12_000]


def test_one_batch_that_was_held_up_is_not_taken_for_the_machine():
    assert speed_after((20_000, 2.0), (10_000, 2.0)).rows_per_second == 7_500


@pytest.mark.parametrize("seconds", [0.5, 1.5])
def test_a_batch_of_few_rows_does_not_say_that_the_machine_is_slow(seconds):
    assert speed_after((20_000, 2.0), (3_500, seconds)).rows_per_second == 10_000


def test_a_batch_of_few_rows_can_say_that_the_machine_is_faster():
    assert speed_after((20_000, 2.0), (18_000, 0.9)).rows_per_second > 12_000


def test_a_rate_is_steady_once_four_large_batches_agree():
    agree = [(10_000, 1.0), (10_500, 1.0), (9_800, 1.0), (10_200, 1.0)]
    assert not speed_after(*agree[:3]).steady
    assert speed_after((3_000, 2.0), *agree).steady
    assert not speed_after(*agree[:3], (12_000, 1.0)).steady
    assert not speed_after(*agree[:3], (9_900, 0.9), (10_500, 0.9)).steady
