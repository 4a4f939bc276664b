"""One of two workers of a cluster is killed in a burst."""

import os

import pytest

from benchmarks.cluster import check, inside_target, kill_in_burst

pytestmark = [pytest.mark.spark, pytest.mark.slow]


@pytest.mark.skipif(os.environ.get("CI") != "true", reason="takes two minutes: in CI, or with make cluster")
def test_a_worker_killed_in_a_burst_costs_nothing_that_was_committed(spark, tmp_path):
    (fault,), failures = kill_in_burst(str(tmp_path), seconds=3.0)
    assert failures == []
    verdict = check(spark, str(tmp_path))
    assert verdict.failures == []
    assert verdict.offered == 53_000 + 600_000 + 6_000
    (recovery,) = inside_target(str(tmp_path), [fault])
    assert recovery.batches > 0
