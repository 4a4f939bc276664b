"""A fault at every write of a job loses nothing, doubles nothing, and changes no batch."""

import pytest

from benchmarks.kill.jobs import SETTINGS, pruning_often
from benchmarks.kill.kills import kill_often
from benchmarks.kill.kinds import KINDS
from benchmarks.kill.walk import live_here, walk
from benchmarks.kill.writes import AFTER, BEFORE, KILL, RAISE, TORN, VARIABLE, Writes

pytestmark = [pytest.mark.spark, pytest.mark.slow]

# A death before a write leaves what a death after the write before it leaves; make kill-test does them all.
STRIKES = {BEFORE: [RAISE], AFTER: [KILL], TORN: [KILL]}


@pytest.fixture(scope="module")
def writes(spark, tmp_path_factory):
    """A switch in this process and in the Python workers, which are started anew for it."""
    switch = Writes(tmp_path_factory.mktemp("switch"))
    conf = spark.sparkContext._jsc.sc().conf()
    with pruning_often(), pytest.MonkeyPatch.context() as patch:
        patch.setitem(spark.sparkContext.environment, VARIABLE, str(switch.folder))
        conf.set("spark.python.daemon.module", "benchmarks.kill.writes")
        switch.install()
        yield switch
        switch.uninstall()
        conf.remove("spark.python.daemon.module")
        for name in SETTINGS:
            spark.conf.unset(name)


# The threads of a driver that is dead end by an exception.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.parametrize("kind", ["stream", "operator", "backfill"])
def test_a_fault_at_every_write_loses_nothing_doubles_nothing_and_changes_no_batch(spark, tmp_path, writes, kind):
    walked = walk(
        lambda folder: KINDS[kind](spark, folder),
        tmp_path,
        writes,
        live_here,
        strikes=STRIKES,
        hidden=False,
        checkpoints=1,
    )
    assert walked.failures == [], walked.strikes
    assert {strike.split()[0] for strike in walked.strikes} == {RAISE, KILL}


def test_killed_drivers_lose_nothing_double_nothing_and_replay_the_same_rows(spark, tmp_path):
    job = KINDS["stream"](spark, tmp_path)
    assert kill_often(job, kills=2, seed=5) == []
    assert len(job.evidence.committed()) >= 4
