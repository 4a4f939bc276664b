"""A standalone master and two workers, own processes: the query goes on when one of them is killed."""

import pytest

from benchmarks.cluster import check, kill_in_burst

pytestmark = [pytest.mark.spark, pytest.mark.slow]


def test_a_worker_killed_in_a_burst_costs_nothing_that_was_committed(spark, tmp_path):
    assert kill_in_burst(str(tmp_path), seconds=3.0) == []
    verdict = check(spark, str(tmp_path))
    assert verdict.failures == []
    assert verdict.offered == 14_000 + 150_000 + 3_000
