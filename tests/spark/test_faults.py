"""Faults at the plan log and the clock: no Spark is needed to see what a planner does with them."""

import time

import pytest

from penstock.control.governor import Governor
from penstock.control.guidance import Guidance
from penstock.model.errors import NotSupportedError, PlanLogError
from penstock.model.forecast import Forecast
from penstock.model.load import Cost
from penstock.spark.plan import planner as planner_module
from penstock.spark.plan.log import PlanLog
from penstock.spark.plan.planner import ShedPlanner
from penstock.spark.run.handle import require_visible
from tests.stores import PROCESSES

COST = Cost(fixed_seconds=0.0, kept_seconds=1e-4)


def planner_at(path, *, tuples=100_000, **governor):
    offsets = path / "offsets"
    offsets.mkdir(exist_ok=True)
    for batch_id in range(3):
        (offsets / str(batch_id)).write_text(
            f'v1\n{{"batchTimestampMs":{batch_id * 1000}}}\n{{"tuples":{(batch_id + 1) * tuples}}}'
        )
    planner = ShedPlanner(checkpoint=path, governor=Governor(latency_seconds=5, **governor), name="shed")
    planner.log.publish(
        Guidance(
            published_at=time.time(), forecast=Forecast(cost=COST, noise=0.1, late_factor=1.25), tuples_per_unit=(1.0,)
        )
    )
    return planner


def _decide(arguments):
    planner, number = arguments
    # Each copy of the task would decide otherwise, were it alone.
    planner.log.publish(
        Guidance(
            published_at=time.time(),
            forecast=Forecast(
                cost=Cost(fixed_seconds=0.0, kept_seconds=1e-4 * (1 + number)), noise=0.1, late_factor=1.25
            ),
            tuples_per_unit=(1.0,),
        )
    )
    return planner.decide(1).plan.keep


def test_retries_and_speculative_copies_of_a_task_all_get_one_plan(tmp_path):
    planner = planner_at(tmp_path)
    with PROCESSES.Pool(4) as pool:
        keeps = pool.map(_decide, [(planner, number) for number in range(12)], chunksize=1)
    assert len(set(keeps)) == 1
    assert PlanLog(tmp_path / "penstock" / "shed").decision(1).plan.keep == keeps[0] < 1


def test_a_full_disk_is_said_and_the_same_batch_is_planned_once_there_is_room(tmp_path, monkeypatch):
    planner = planner_at(tmp_path)

    def full(*_):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("os.fsync", full)
        with pytest.raises(PlanLogError, match=r"batch 1 cannot be .*No space left.*so the batch did not run"):
            planner.decide(1)
    assert planner.log.batch_ids() == []
    assert planner.decide(1).plan.keep < 1


@pytest.mark.parametrize("jump_seconds", [-86_400.0, 86_400.0])
def test_a_clock_that_jumps_changes_no_plan_for_longer_than_to_the_next_heartbeat(tmp_path, monkeypatch, jump_seconds):
    planner = planner_at(tmp_path)
    steady = planner.decide(0).plan
    real = time.time
    monkeypatch.setattr(planner_module.time, "time", lambda: real() + jump_seconds)
    right_after = planner.decide(1).plan
    if jump_seconds > 0:
        # The guidance looks a day old: all is kept, and the reason says why.
        assert right_after.keep == 1.0
        assert "the controller has been silent" in right_after.reason
    planner.log.publish(
        Guidance(
            published_at=real() + jump_seconds,
            forecast=Forecast(cost=COST, noise=0.1, late_factor=1.25),
            tuples_per_unit=(1.0,),
        )
    )
    assert planner.decide(2).plan.keep == pytest.approx(steady.keep, rel=0.15)  # the dwell holds a tenth back


def test_a_burst_of_fifty_times_is_met_in_its_first_batch(tmp_path):
    planner = planner_at(tmp_path, tuples=15_000)
    assert planner.decide(0).plan.keep == 1.0
    (tmp_path / "offsets" / "1").write_text('v1\n{"batchTimestampMs":1000}\n{"tuples":765000}')
    # With a margin of 1.25, batches of 5 s / 2.25 leave one another enough: 22,222 rows at 100 µs.
    assert planner.decide(1).plan.keep == pytest.approx(22_222 / 750_000, rel=0.01)


def test_rates_for_many_keys_take_a_bounded_table(tmp_path):
    from penstock.spark.judge.sampling import KeyTable

    table = KeyTable.build({f"key-{number}": 0.5 for number in range(50_000)})
    assert len(table.hashes) <= 4 * 50_000


def test_a_checkpoint_that_the_client_does_not_see_is_refused(tmp_path):
    with pytest.raises(NotSupportedError, match="is not seen from here"):
        require_visible(tmp_path / "elsewhere", wait_seconds=0.1)
    (tmp_path / "metadata").touch()
    require_visible(tmp_path, wait_seconds=0.0)
