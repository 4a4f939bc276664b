"""Plain Spark cannot pass, whatever the machine's mood: the demo's load against a simulated machine."""

import pytest

from penstock.demo.speed import Speed
from penstock.demo.timetable import next_step, phase_edges
from penstock.model.arrivals import Arrivals

SECONDS = 50


def simulated(rows_per_second, believed, fixed_seconds=0.2):
    """Let a machine do so many rows a second at each time; when each batch began, how many rows, how long it took."""
    speed = Speed()
    speed.observe(believed * 2, 2.0)
    steps = [next_step(0.0, SECONDS, rows_per_second=speed.rows_per_second)]
    now, taken, batches = 1.0, 0, []
    while now < SECONDS:
        while (written := Arrivals.of(*steps).total_seconds) < min(SECONDS, now + 0.5):
            steps.append(next_step(written, SECONDS, rows_per_second=speed.rows_per_second))
        arrived = Arrivals.of(*steps).count_at(now)
        ends = now + fixed_seconds
        left = arrived - taken
        while left > 0:
            left -= rows_per_second(ends) * 0.01
            ends += 0.01
        batches.append((now, arrived - taken, ends - now))
        # While the batch ran, the timetable went on with what was known then.
        while (written := Arrivals.of(*steps).total_seconds) < min(SECONDS, ends + 0.5):
            steps.append(next_step(written, SECONDS, rows_per_second=speed.rows_per_second))
        speed.observe(arrived - taken, ends - now)
        taken, now = arrived, max(ends, float(int(now) + 1))
    return Arrivals.of(*steps), batches


MOODS = {
    "steady": lambda _: 10_000,
    "twice as fast from the burst on": lambda at: 10_000 if at < 14 else 20_000,
    "three times as fast from the burst on": lambda at: 10_000 if at < 14 else 30_000,
    "half as fast from the burst on": lambda at: 10_000 if at < 14 else 5_000,
    "a neighbour, ten seconds on and ten off": lambda at: 5_000 if int(at / 10) % 2 else 10_000,
    "ever faster": lambda at: 5_000 + 300 * at,
    "a stall just before the burst": lambda at: 500 if 12 < at < 14 else 10_000,
}


@pytest.mark.parametrize("mood", MOODS)
def test_plain_spark_falls_behind_in_the_burst(mood):
    arrivals, batches = simulated(MOODS[mood], believed=10_000)
    _, (starts, ends), _ = phase_edges(SECONDS)
    within = [batch for batch in batches if starts <= batch[0] < ends]
    # It works without a pause, and the last batch that it takes up in the burst has waited and takes long.
    assert all(seconds > 0.9 for _, _, seconds in within[1:])
    assert within[-1][2] > 5
    offered = arrivals.count_at(ends) - arrivals.count_at(starts)
    done = sum(MOODS[mood](at / 10) / 10 for at in range(round(starts * 10), round(ends * 10)))
    assert offered > 1.3 * done


def test_batches_that_take_a_second_without_any_rows_do_not_make_the_load_vanish():
    arrivals, _ = simulated(MOODS["steady"], believed=10_000, fixed_seconds=1.2)
    rates = [phase.tuples_per_second for phase in arrivals.phases]
    assert rates[4:14] == [3_500] * 10
    assert min(rates[14:38]) > 15_000


@pytest.mark.parametrize("mood", ["steady", "a neighbour, ten seconds on and ten off", "ever faster"])
def test_plain_spark_keeps_up_before_the_burst(mood):
    _, batches = simulated(MOODS[mood], believed=MOODS[mood](0))
    _, (starts, _), _ = phase_edges(SECONDS)
    before = [seconds for at, _, seconds in batches if at < starts - 1]
    assert max(before) < 1.2
