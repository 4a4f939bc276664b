import json

import numpy as np
import pytest

from penstock.demo.bursty import BurstyReader, LiveArrivals, Range
from penstock.demo.timetable import BURST_LOAD, IN_BURST, QUIET_LOAD, next_step, phase_edges
from penstock.model.arrivals import Arrivals


def written_out(seconds, rates):
    """The whole timetable, if Spark does so many rows a second, second by second."""
    steps, at = [], 0.0
    while at < seconds:
        steps.append(next_step(at, seconds, rows_per_second=rates(at)))
        at = Arrivals.of(*steps).total_seconds
    return steps


@pytest.mark.parametrize("seconds", [15, 17, 47, 50, 61])
def test_a_stream_is_as_long_as_it_is_to_be_and_its_phases_begin_where_they_should(seconds):
    steps = written_out(seconds, lambda _: 1_000)
    ends = np.cumsum([length for length, _ in steps]).tolist()
    assert ends[-1] == pytest.approx(seconds)
    assert all(0 < length <= 1 for length, _ in steps)
    for _, edge in phase_edges(seconds):
        assert edge in [pytest.approx(end) for end in ends]
    loads = [rate for _, rate in steps]
    assert list(dict.fromkeys(loads)) == [100, 1_000 * QUIET_LOAD, 1_000 * BURST_LOAD]
    in_burst = sum(length for length, rate in steps if rate == 1_000 * BURST_LOAD)
    assert in_burst == pytest.approx(IN_BURST * seconds)


def test_the_load_follows_a_machine_that_gets_slower_and_faster():
    rates = [rate for _, rate in written_out(50, lambda at: 2_000 if 20 <= at < 30 else 6_000)]
    assert rates[12:14] == [2_100, 2_100]
    assert rates[18:22] == [18_000, 18_000, 6_000, 6_000]
    assert rates[29:31] == [6_000, 18_000]


def reader_of(live):
    return BurstyReader(timetable=str(live.path), epoch=0.0, seed=7, partitions=2)


def rows_of(reader, start, end):
    parts = reader.partitions({"tuples": start}, {"tuples": end})
    batches = [batch for part in parts for batch in reader.read(part)]
    return [row for batch in batches for row in batch.to_pylist()]


def test_rows_that_have_arrived_stay_the_same_while_their_timetable_grows(tmp_path):
    live = LiveArrivals(tmp_path / "timetable.json", first=(0.3, 333))
    reader, total = reader_of(live), live.arrivals.total_tuples
    before = rows_of(reader, 0, total)
    for step in ((0.7, 10), (1.0, 5_000), (1.0, 0), (0.25, 77)):
        live.append(*step)
        assert rows_of(reader_of(live), 0, total) == before
        assert live.arrivals.total_tuples >= total
    assert live.arrivals.total_tuples == 5_126  # 99.9 + 7 + 5,000 + 19.25: a part of a row waits for the next phase


def test_a_stream_offers_nothing_that_is_not_in_its_timetable_yet(tmp_path):
    live = LiveArrivals(tmp_path / "timetable.json", first=(1.0, 100))
    reader = reader_of(live)
    assert reader.latestOffset() == {"tuples": 100}
    live.append(1.0, 300)
    assert reader.latestOffset() == {"tuples": 400}


def test_a_live_timetable_and_the_same_one_fixed_give_the_same_rows(tmp_path):
    live = LiveArrivals(tmp_path / "timetable.json", first=(0.5, 1_000))
    live.append(0.5, 123)
    phases = json.dumps([[phase.seconds, phase.tuples_per_second] for phase in live.arrivals.phases])
    fixed = BurstyReader(phases=phases, epoch=0.0, seed=7, partitions=1)
    assert rows_of(fixed, 0, 500) == rows_of(reader_of(live), 0, 500)


def test_the_file_is_replaced_as_a_whole(tmp_path):
    live = LiveArrivals(tmp_path / "timetable.json", first=(1.0, 100))
    with live.path.open() as held_open:
        live.append(1.0, 200)
        assert json.load(held_open) == [[1.0, 100]]
    assert [path.name for path in tmp_path.iterdir()] == ["timetable.json"]


def test_a_range_without_rows_is_read_as_nothing(tmp_path):
    live = LiveArrivals(tmp_path / "timetable.json", first=(1.0, 100))
    assert list(reader_of(live).read(Range(5, 5))) == []
