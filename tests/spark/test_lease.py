"""The lease on a checkpoint: one driver writes at a time, and the one that lost it stops, whoever it is."""

import json
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from pyspark.sql import functions as F

import penstock as ps
from penstock.model.errors import LeaseLostError
from penstock.spark.plan.log import PlanLog
from penstock.spark.run import lease as leases
from penstock.spark.run.lease import Lease
from penstock.spark.run.ledger import Ledger
from penstock.spark.store.folder import Folder, folder_at
from tests.spark.streams import always_shedding, finish_batches, numbers

NEVER = None


def take(path, heard=NEVER):
    return Lease.take(path, heard_at=lambda: heard)


def epochs(path):
    return folder_at(path).ids(suffix=".json")


def test_whoever_starts_takes_the_next_number_and_the_one_before_has_lost(anywhere):
    first = take(anywhere)
    first.check()
    second = take(anywhere)
    second.check()

    assert second.epoch == first.epoch + 1
    assert epochs(anywhere) == [second.epoch]
    with pytest.raises(LeaseLostError, match=rf"epoch {first.epoch}\) has lost the checkpoint.*\(epoch 2\).*writes"):
        first.check()


def test_a_number_is_never_given_twice_whatever_was_released_or_removed(tmp_path):
    given = []
    for _ in range(3):
        lease = take(tmp_path)
        lease.release()
        given.append(lease.epoch)
    assert given == [1, 2, 3]
    stalled = Lease(tmp_path, 2)
    stalled.release()  # a driver that wakes up late
    assert take(tmp_path).epoch == 4
    with pytest.raises(LeaseLostError):
        stalled.check()


def test_a_number_that_comes_free_while_it_is_taken_is_not_the_lease(tmp_path, monkeypatch):
    create, others = Folder.create, []

    def create_late(folder, name, text):
        if not others:
            others.append("stay out of here")
            others.extend([take(tmp_path), take(tmp_path)])  # the second removes the number of the first
        return create(folder, name, text)

    monkeypatch.setattr(Folder, "create", create_late)
    slow = take(tmp_path)
    assert [lease.epoch for lease in others[1:]] == [1, 2]
    assert slow.epoch == 3
    slow.check()


def test_of_drivers_that_start_at_once_just_one_holds_the_lease(tmp_path):
    with multiprocessing.get_context("spawn").Pool(4) as pool:
        taken = pool.map(epoch_of, [str(tmp_path)] * 12)
    assert len(set(taken)) == 12
    holders = [epoch for epoch in taken if holds(tmp_path, epoch)]
    assert holders == [max(taken)]


def epoch_of(path):
    return take(Path(path)).epoch


def holds(path, epoch):
    try:
        Lease(path, epoch).check()
    except LeaseLostError:
        return False
    return True


def test_a_driver_that_was_released_or_was_not_heard_of_lately_is_not_waited_for(tmp_path):
    take(tmp_path).release()
    began_at = time.monotonic()
    take(tmp_path, heard=time.time())  # released
    take(tmp_path, heard=time.time() - 60)  # crashed a minute ago
    take(tmp_path, heard=time.time() + 3_600)  # a clock that is wrong
    take(tmp_path)  # never published
    assert time.monotonic() - began_at < leases.HEARD_SECONDS


def test_a_driver_that_may_be_alive_is_waited_for_until_it_lets_go(tmp_path):
    first = take(tmp_path)
    asked = []

    def heard_at():
        asked.append(True)
        if len(asked) == 3:
            first.release()
        return time.time()

    second = Lease.take(tmp_path, heard_at=heard_at)
    assert len(asked) == 3
    second.check()


def test_a_lease_that_cannot_be_looked_up_is_not_lost(tmp_path, monkeypatch):
    lease = take(tmp_path)

    def fail(*_, **__):
        raise OSError("no answer")

    with monkeypatch.context() as patched:
        patched.setattr("penstock.spark.store.folder.Folder.ids", fail)
        with pytest.raises(OSError, match="no answer"):
            lease.check()
    lease.check()


DRIVER = """
import sys, time
import penstock as ps
from penstock.model.errors import LeaseLostError
from tests.spark.streams import always_shedding, numbers

spark = ps.local_session(cores=1)
shedder = always_shedding(sys.argv[1], ps.Uniform(keep=0.5))
kept = numbers(spark, rows_per_batch=1_000).transform(shedder)
run = shedder.start(kept.writeStream.format("parquet").option("path", sys.argv[2]))
print("running", flush=True)
try:
    run.await_termination()
except LeaseLostError as lost:
    print("LOST", lost, flush=True)
    status = run.status
    print("STATUS", status.active, status.controlled, status.note == str(lost), flush=True)
    time.sleep(3)  # nothing more is written in this time
    run.stop()
    print("end", flush=True)
    raise SystemExit(3)
"""


def start_driver(checkpoint, out):
    command = [sys.executable, "-c", DRIVER, checkpoint, out]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    driver = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, start_new_session=True, env=environment
    )
    assert driver.stdout.readline() == "running\n"
    return driver


def kill(driver):
    os.killpg(driver.pid, signal.SIGKILL)
    driver.wait()


@pytest.mark.spark
def test_of_two_drivers_on_one_checkpoint_the_first_stops_and_writes_nothing_more(spark, checkpoint, tmp_path):
    out, log = str(tmp_path / "out"), Path(checkpoint, "penstock", "shed")
    first = start_driver(checkpoint, out)
    try:
        wait_for(lambda: len(Ledger(log / "ledger").missing(range(3))) == 0)
        shedder = always_shedding_again(checkpoint)
        kept = numbers(spark, rows_per_batch=1_000).transform(shedder)
        run = shedder.start(kept.writeStream.format("parquet").option("path", out))
        batches = finish_batches_while(run, 3, first)
        told = first.stdout.read()
        assert first.wait(60) == 3
    finally:
        kill(first)

    assert "LOST this driver" in told
    assert "has started the same query there since (epoch 2)" in told
    assert "STATUS False False True" in told
    assert told.endswith("end\n")
    entered = [batch.batch_id for batch in Ledger(log / "ledger").batches()]
    assert entered == list(range(len(entered)))  # each once, without gaps
    # Of a batch that was committed just when the query was stopped there may be no report: the next start counts it.
    assert entered[-1] == batches[-1].batch_id >= folder_at(Path(checkpoint, "commits")).ids()[-1] - 1
    guidance = PlanLog(log).guidance()
    assert (guidance.epoch, guidance.stopped) == (2, True)
    assert epochs(log / "epochs")[-1] == 2
    assert json.loads((log / "epochs" / "2.json").read_text())["released"]
    rows = spark.read.parquet(out).where(F.col("value") < 1_000 * len(entered))
    assert rows.count() == rows.distinct().count() == sum(batch.kept for batch in Ledger(log / "ledger").batches())


def always_shedding_again(checkpoint):
    """The same query, with what the other driver has learned."""
    return ps.shed(latency_seconds=5, checkpoint=checkpoint, row_id="value", policy=ps.Uniform(keep=0.5))


def finish_batches_while(run, count, other):
    """Finish batches, and more of them until the other driver has ended."""
    with run:
        for number, _ in enumerate(run.watch(), start=1):
            if number >= count and other.poll() is not None:
                break
    return run.batches


def wait_for(true, seconds=120):
    ends_at = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < ends_at, "it never came to that"
        time.sleep(0.1)


@pytest.mark.spark
def test_a_run_that_was_stopped_or_crashed_is_followed_by_the_next_number(spark, checkpoint):
    def start():
        shedder = always_shedding(checkpoint, ps.Uniform(keep=0.5))
        return shedder.start(numbers(spark).transform(shedder).writeStream.format("noop"))

    finish_batches(start(), 1)
    log = Path(checkpoint, "penstock", "shed")
    assert PlanLog(log).guidance().epoch == 1
    (log / "epochs" / "1.json").write_text(json.dumps({"by": "gone:1", "released": False}))  # as a crash leaves it
    run = start()
    finish_batches(run, 1)
    assert PlanLog(log).guidance().epoch == 2
    assert run.status.note == ""
