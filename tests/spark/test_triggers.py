"""Catch-up runs, empty batches, and rows that piled up while the query was down."""

import time
from types import SimpleNamespace

import pytest

import penstock as ps
from penstock.control.governor import CATCH_UP, Demand, Governor
from penstock.control.guidance import Guidance
from penstock.control.reading import decide_reading
from penstock.spark.classic import catches_up
from penstock.spark.run.handle import Run
from tests.spark.streams import finish_batches, known_costs, numbers
from tests.spark.test_uncontrolled import PLANNERS

# At the costs of known_costs these rows need 20 s.
BACKLOG = 200_000


def test_a_catch_up_run_keeps_all_however_much_waits_and_says_so():
    governor = Governor(latency_seconds=5.0)
    catching_up = Guidance(published_at=100.0, catch_up=True)
    demand = Demand(batch_id=3, now=100.0, waited_seconds=86_400.0, units_by_source=(10**9,))

    assert governor.decide(Guidance(published_at=100.0), demand).plan.keep < 1
    decision = governor.decide(catching_up, demand)
    assert (decision.plan.keep, decision.plan.reason) == (1.0, CATCH_UP)
    assert decision.expected_tuples == 10**9
    assert decide_reading(governor, catching_up, waiting_tuples=10**9, now=100.0).keep == 1.0


@pytest.mark.parametrize("called", PLANNERS)
def test_networks_and_operators_keep_all_in_a_catch_up_run_too(tmp_path, called):
    planner = PLANNERS[called](tmp_path)
    planner.log.publish(Guidance(published_at=time.time(), catch_up=True))
    (tmp_path / "offsets").mkdir()
    (tmp_path / "offsets" / "0").write_text('v1\n{"batchTimestampMs":0}\n{"tuples":1000000000}\n')

    decision = planner.decide(0)
    assert (decision.plan.keep, decision.plan.reason, decision.expected_tuples) == (1.0, CATCH_UP, 10**9)


# --- what the trigger is --------------------------------------------------------------------------

TRIGGERS = [
    ({"availableNow": True}, True),
    ({"once": True}, True),
    ({"processingTime": "1 second"}, False),
    (None, False),
]


@pytest.mark.spark
@pytest.mark.parametrize(("trigger", "catching_up"), TRIGGERS)
def test_the_trigger_is_read_from_the_writer(spark, trigger, catching_up):
    writer = numbers(spark).writeStream

    assert catches_up(writer.trigger(**trigger) if trigger else writer) is catching_up


@pytest.mark.parametrize(("trigger", "catching_up"), TRIGGERS)
def test_the_trigger_is_read_from_the_request_on_spark_connect(trigger, catching_up):
    connect = pytest.importorskip("pyspark.sql.connect.streaming.readwriter")
    writer = connect.DataStreamWriter.__new__(connect.DataStreamWriter)
    writer._write_proto = connect.pb2.WriteStreamOperationStart()

    assert catches_up(writer.trigger(**trigger) if trigger else writer) is catching_up


def test_a_trigger_that_cannot_be_read_is_taken_to_run_on(caplog):
    assert catches_up(SimpleNamespace(_jwrite=object())) is False
    assert "it is taken to run on" in caplog.text


# --- runs -----------------------------------------------------------------------------------------


def start(spark, checkpoint, trigger=None, *, rows=BACKLOG, each_batch=False) -> Run:
    """A query for which a batch of these rows is far too much, by the costs that were learned before."""
    known_costs(checkpoint)
    shedder = ps.shed(latency_seconds=5, checkpoint=checkpoint, row_id="value")
    events = numbers(spark, rows_per_batch=rows)
    if each_batch:
        return shedder.start_each_batch(events, lambda batch, _: batch.write.format("noop").mode("append").save(),
                                        trigger=trigger)  # fmt: skip
    writer = events.transform(shedder).writeStream.format("noop")
    return shedder.start(writer.trigger(**trigger) if trigger else writer)


@pytest.mark.spark
@pytest.mark.parametrize("each_batch", [False, True])
@pytest.mark.parametrize("trigger", [{"availableNow": True}, {"once": True}])
def test_a_catch_up_run_keeps_and_counts_every_row_and_ends(spark, checkpoint, trigger, each_batch):
    with start(spark, checkpoint, trigger, each_batch=each_batch) as run:
        assert run.await_termination(120)

    assert [(batch.offered, batch.kept, batch.reason) for batch in run.batches] == [(BACKLOG, BACKLOG, CATCH_UP)]
    assert [row.kept for row in run.ledger().collect()] == [BACKLOG]


@pytest.mark.spark
@pytest.mark.parametrize("each_batch", [False, True])
def test_the_same_rows_are_shed_by_a_query_that_runs_on_also_after_a_catch_up_run(spark, checkpoint, each_batch):
    with start(spark, checkpoint, {"availableNow": True}, each_batch=each_batch) as run:
        assert run.await_termination(120)
    first = finish_batches(start(spark, checkpoint, each_batch=each_batch), 1)[0]

    assert first.offered == BACKLOG
    assert first.kept < BACKLOG / 2


@pytest.mark.spark
def test_a_catch_up_run_with_nothing_to_read_ends_without_a_batch(spark, checkpoint, tmp_path):
    def run():
        shedder = ps.shed(latency_seconds=5, checkpoint=checkpoint, row_id="id")
        events = spark.readStream.schema("id BIGINT").parquet(str(tmp_path / "in"))
        with shedder.start(events.transform(shedder).writeStream.format("noop").trigger(availableNow=True)) as run:
            assert run.await_termination(120)
        return run

    spark.range(300).write.parquet(str(tmp_path / "in"))
    assert [batch.offered for batch in run().batches] == [300]
    again = run()
    assert again.batches == []
    assert again.status.offered == 0
    assert again.ledger().count() == 1


@pytest.mark.spark
def test_empty_batches_are_counted_as_such_and_teach_nothing_wrong(spark, checkpoint):
    # Rows come in every fifth batch only; Spark runs the others too, for the source has moved.
    shedder = ps.shed(latency_seconds=60, checkpoint=checkpoint, row_id="value")
    sparse = numbers(spark, rows_per_batch=100).where("floor(value / 100) % 5 = 4")
    run = shedder.start(sparse.transform(shedder).writeStream.format("noop"))
    batches = finish_batches(run, 11)

    assert [batch.offered for batch in batches[:10]] == [0, 0, 0, 0, 100] * 2
    assert all(batch.shed == 0 for batch in batches)
    empty = next(batch for batch in batches if not batch.offered)
    assert (empty.kept_share, empty.latency_seconds) == (1.0, None)


@pytest.mark.spark
def test_rows_that_piled_up_while_the_query_was_down_are_planned_with_costs_learned_before(spark, checkpoint):
    finish_batches(start(spark, checkpoint, rows=1_000), 1)
    known_costs(checkpoint)
    # The source has two hundred times as much when the query comes back.
    # A batch that was on its way when the query was stopped is replayed first.
    batches = finish_batches(start(spark, checkpoint, rows=BACKLOG), 2)

    piled_up = next(batch for batch in batches if batch.offered == BACKLOG)
    assert piled_up.kept < BACKLOG / 2
    assert "cold start" not in piled_up.reason
