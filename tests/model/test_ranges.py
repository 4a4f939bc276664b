import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock as ps
from penstock.model.ranges import sampled_ranges

RUNS = st.tuples(st.integers(0, 10**12), st.integers(0, 300_000), st.floats(0, 1))


@given(RUNS)
def test_blocks_lie_in_the_run_do_not_overlap_and_their_weights_add_up_to_it(run):
    start, length, keep = run
    ranges = sorted(sampled_ranges(start, start + length, keep=keep, salt="t-0"), key=lambda each: each.start)
    edges = [edge for each in ranges for edge in (each.start, each.end)]
    assert edges == sorted(edges)
    assert all(start <= edge <= start + length for edge in edges)
    assert sum(len(each) * each.weight for each in ranges) == pytest.approx(length)
    assert sum(map(len, ranges)) == pytest.approx(keep * length, abs=32)


def test_the_same_run_gives_the_same_blocks_and_another_partition_others():
    first, again, other = (sampled_ranges(5, 90_000, keep=0.1, salt=salt) for salt in ("t-0", "t-0", "t-1"))
    assert first == again != other


def test_every_offset_is_read_equally_often_over_many_runs():
    length, keep, runs = 100, 0.3, 4_000
    seen = [0] * length
    for run in range(runs):
        for each in sampled_ranges(0, length, keep=keep, salt=f"t-{run}"):
            for offset in range(each.start, each.end):
                seen[offset] += 1
    # Five standard deviations of a binomial count.
    spread = 5 * (runs * keep * (1 - keep)) ** 0.5
    assert all(abs(count - runs * keep) < spread for count in seen)


def test_blocks_are_spread_over_the_whole_run():
    ranges = sampled_ranges(0, 320_000, keep=0.05, salt="t-0")
    for cell in range(32):
        assert any(cell * 10_000 <= each.start < (cell + 1) * 10_000 for each in ranges)


def test_a_run_that_ends_before_its_start_is_refused():
    with pytest.raises(ps.InvalidInputError, match="ends at or after its start, got 5 to 4"):
        sampled_ranges(5, 4, keep=0.5, salt="t-0")
