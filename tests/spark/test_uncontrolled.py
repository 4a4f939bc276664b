"""A query whose controller is missing says so in its first batch, and loses nothing."""

import time
from pathlib import Path

import pytest
from pyspark.sql import functions as F

import penstock as ps
from penstock.control.governor import Governor
from penstock.control.guidance import Guidance
from penstock.control.target import Target
from penstock.control.workplan import RowRule
from penstock.model.errors import NotSupportedError
from penstock.spark.plan.log import PlanLog
from penstock.spark.plan.network_planner import NetworkPlanner
from penstock.spark.plan.planner import ShedPlanner
from penstock.spark.plan.work_planner import WorkPlanner
from penstock.spark.run.handle import own_error
from penstock.spark.store.folder import folder_at
from tests.spark.streams import finish_batches, known_costs, numbers

OPTIONS = {"governor": Governor(latency_seconds=5.0), "name": "shed"}
PLANNERS = {
    "shedder": lambda folder: ShedPlanner(checkpoint=folder, **OPTIONS),
    "network": lambda folder: NetworkPlanner(checkpoint=folder, **OPTIONS),
    "operator": lambda folder: WorkPlanner(
        checkpoint=folder,
        target=Target(latency_seconds=5.0),
        name="shed",
        rule=RowRule(policy=ps.LoadAware(), constraint=ps.AverageLatency(seconds=5.0)),
    ),
}


@pytest.mark.parametrize("called", PLANNERS)
@pytest.mark.parametrize("stopped", [False, True])
def test_no_plan_is_made_where_no_controller_has_started_or_it_has_stopped(tmp_path, called, stopped):
    planner = PLANNERS[called](tmp_path)
    if stopped:
        planner.log.publish(Guidance(published_at=time.time(), stopped=True))

    with pytest.raises(NotSupportedError, match=rf"nobody controls the {called} 'shed'.*{called}\.start\(writer\)"):
        planner.decide(0)
    assert planner.log.batch_ids() == []


@pytest.mark.parametrize("called", PLANNERS)
def test_a_controller_that_died_leaves_its_guidance_in_force_for_the_grace(tmp_path, called):
    planner = PLANNERS[called](tmp_path)
    planner.log.publish(Guidance(published_at=time.time() - 3_600))

    assert planner.decide(0).plan.keep == 1.0


def error_of(query):
    """What a query without controller fails with, in our own words."""
    with pytest.raises(Exception, match="penstock"):
        query.awaitTermination(60)
    return own_error(query.exception())


def committed(checkpoint):
    return folder_at(Path(checkpoint) / "commits").ids()


@pytest.mark.spark
def test_writer_start_on_a_fresh_checkpoint_is_refused_before_a_row_is_lost(spark, checkpoint):
    shedder = ps.shed(latency_seconds=5, checkpoint=checkpoint, row_id="value")
    writer = numbers(spark).transform(shedder).writeStream.format("noop")
    error = error_of(writer.option("checkpointLocation", checkpoint).start())

    assert isinstance(error, NotSupportedError)
    assert "Start the query with shedder.start(writer), not with writer.start()" in str(error)
    assert committed(checkpoint) == []


@pytest.mark.spark
def test_writer_start_after_a_run_that_was_stopped_is_refused_and_the_next_run_goes_on(spark, checkpoint, tmp_path):
    def writer():
        shedder = ps.shed(latency_seconds=60, checkpoint=checkpoint, row_id="value")
        kept = numbers(spark).transform(shedder)
        return shedder, kept.writeStream.format("parquet").option("path", str(tmp_path / "out"))

    shedder, first = writer()
    finish_batches(shedder.start(first), 2)
    assert PlanLog(Path(checkpoint) / "penstock" / "shed").guidance().stopped
    planned = PlanLog(Path(checkpoint) / "penstock" / "shed").batch_ids()

    error = error_of(writer()[1].option("checkpointLocation", checkpoint).start())
    assert "nobody controls the shedder 'shed'" in str(error)
    # A batch that was planned and not committed is replayed as it was planned; no other one runs.
    assert PlanLog(Path(checkpoint) / "penstock" / "shed").batch_ids() == planned

    shedder, again = writer()
    finish_batches(shedder.start(again), 2)
    kept = spark.read.parquet(str(tmp_path / "out"))
    assert kept.count() == kept.agg(F.max("value") + 1).first()[0] == 5_000 * len(committed(checkpoint))


@pytest.mark.spark
def test_a_driver_that_crashed_left_no_mark_and_its_query_goes_on_without_it(spark, checkpoint):
    known_costs(checkpoint)
    shedder = ps.shed(latency_seconds=60, checkpoint=checkpoint, row_id="value")
    writer = numbers(spark).transform(shedder).writeStream.format("noop")
    query = writer.option("checkpointLocation", checkpoint).start()
    waits_until = time.monotonic() + 60
    while not committed(checkpoint) and time.monotonic() < waits_until:
        time.sleep(0.1)
    query.stop()

    assert query.exception() is None
    assert committed(checkpoint)


@pytest.mark.spark
def test_a_second_shedder_in_one_query_is_named(spark, checkpoint):
    first = ps.shed(latency_seconds=5, checkpoint=checkpoint, row_id="value")
    second = ps.shed(latency_seconds=5, checkpoint=checkpoint, row_id="value", name="second")
    twice = numbers(spark).transform(first).transform(second)

    run = first.start(twice.writeStream.format("noop"))
    with pytest.raises(NotSupportedError, match=r"nobody controls the shedder 'second'.*has room for one shedder"):
        run.await_termination(60)
    assert committed(checkpoint) == []


def of_network(spark, checkpoint, name="second", events=None):
    network = ps.Network(checkpoint=checkpoint, latency_seconds=5, name=name)
    source = network.source("numbers", numbers(spark) if events is None else events, row_id="value")
    source.filter("some", F.col("value") >= 0).output("all")
    return network, network.answers()


def of_operator(spark, checkpoint, name="second", events=None):
    operator = ps.operator(
        lambda row: {"value": row["value"]},
        key="value",
        returns="value BIGINT",
        latency=5,
        checkpoint=checkpoint,
        name=name,
    )
    return operator, (numbers(spark) if events is None else events).transform(operator)


@pytest.mark.spark
@pytest.mark.parametrize(("called", "made"), [("network", of_network), ("operator", of_operator)])
def test_writer_start_of_a_network_or_an_operator_is_refused(spark, checkpoint, called, made):
    _, frame = made(spark, checkpoint)
    error = error_of(frame.writeStream.format("noop").option("checkpointLocation", checkpoint).start())

    assert isinstance(error, NotSupportedError)
    assert f"nobody controls the {called} 'second'" in str(error)
    assert f"{called}.start(writer), not with writer.start()" in str(error)
    assert committed(checkpoint) == []


@pytest.mark.spark
@pytest.mark.parametrize(("called", "made"), [("network", of_network), ("operator", of_operator)])
@pytest.mark.parametrize("starts", ["the shedder", "the other"])
def test_a_shedder_beside_a_network_or_an_operator_is_named(spark, checkpoint, called, made, starts):
    shedder = ps.shed(latency_seconds=5, checkpoint=checkpoint, row_id="value")
    other, frame = made(spark, checkpoint, events=numbers(spark).transform(shedder))
    writer = frame.writeStream.format("noop")

    run = (shedder if starts == "the shedder" else other).start(writer)
    unstarted = f"{called} 'second'" if starts == "the shedder" else "shedder 'shed'"
    with pytest.raises(NotSupportedError, match=f"nobody controls the {unstarted}"):
        run.await_termination(60)
    assert committed(checkpoint) == []
