"""Spark's checkpoint and the plan log in a real HDFS: nothing of a query is on the driver's disk."""

import uuid

import pytest
from pyspark.sql import functions as F

import penstock as ps
from lab.servers.hdfs import ASK_AGAIN
from penstock.spark.plan.log import PlanLog
from penstock.spark.run.ledger import Ledger
from penstock.spark.session import SHORT_BATCHES
from penstock.spark.store.folder import folder_at
from tests.spark.streams import always_shedding, finish_batches, forget_last, numbers

pytestmark = [pytest.mark.spark, pytest.mark.server, pytest.mark.slow]


# What docs/cluster.md advises for HDFS.
MANAGER = "spark.sql.streaming.checkpointFileManagerClass"
SETTINGS = {**ASK_AGAIN, MANAGER: SHORT_BATCHES[MANAGER].replace("FileSystemBased", "FileContextBased")}


@pytest.fixture
def in_hdfs(spark, hdfs):
    for name, value in SETTINGS.items():
        spark.conf.set(name, value)
    yield hdfs.path(f"clicks-{uuid.uuid4().hex[:8]}")
    spark.conf.set(MANAGER, SHORT_BATCHES[MANAGER])


def start_counts(spark, checkpoint, keep, table, **trigger):
    """A shed stream with state after it, which holds how many rows survived in all."""
    shedder = always_shedding(checkpoint, ps.Uniform(keep=keep))
    kept = numbers(spark).transform(shedder).groupBy(F.col("value") % 3).agg(F.count("*").alias("kept"))
    writer = kept.writeStream.format("memory").queryName(table).outputMode("complete")
    return shedder.start(writer.trigger(**trigger) if trigger else writer)


def lose_a_commit_and_counts(checkpoint):
    """As if the driver had been killed before its last commit, and two entries of the ledger were lost."""
    last = folder_at(checkpoint / "commits").ids()[-1]
    folder_at(checkpoint / "commits").remove(str(last))
    for number in folder_at(checkpoint / "offsets").ids():
        if number > last:
            folder_at(checkpoint / "offsets").remove(str(number))
    ledger = Ledger(checkpoint / "penstock" / "shed" / "ledger")
    forget_last(ledger, 2)
    return set(ledger.missing(folder_at(checkpoint / "commits").ids()))


def test_a_query_in_hdfs_sheds_stops_replays_and_goes_on_with_its_state(spark, in_hdfs):
    table = f"counts_{uuid.uuid4().hex[:8]}"
    first = finish_batches(start_counts(spark, in_hdfs, 0.2, table), 3)
    assert all(batch.keep == 0.2 and 0 < batch.kept < batch.offered == 5_000 for batch in first)
    lost = lose_a_commit_and_counts(in_hdfs)
    assert lost
    # The one that was lost, perhaps one that was planned when the query was stopped, and one that is new.
    after = finish_batches(start_counts(spark, in_hdfs, 0.9, table), 3)
    assert after[-1].keep == 0.9
    # This one ends by itself, so that nothing is cut off in the middle. It catches up, so it keeps all.
    run = start_counts(spark, in_hdfs, 0.9, table, availableNow=True)
    run.await_termination()

    batches = {batch.batch_id: batch for batch in Ledger(in_hdfs / "penstock" / "shed" / "ledger").batches()}
    assert sorted(batches) == folder_at(in_hdfs / "commits").ids() == list(range(len(batches)))
    assert all(batch.offered == batch.kept + batch.shed == 5_000 for batch in batches.values())
    again = [batches[batch.batch_id] for batch in first]
    assert [(batch.kept, batch.keep) for batch in again] == [(batch.kept, 0.2) for batch in first]
    assert {number for number, batch in batches.items() if batch.recounted} >= lost
    assert batches[max(batches)].keep == 1.0
    log = PlanLog(in_hdfs / "penstock" / "shed")
    assert {n: log.decision(n).plan.keep for n in batches} == {n: batch.keep for n, batch in batches.items()}

    assert run.ledger_path == f"{in_hdfs}/penstock/shed/ledger"
    kept, shed = run.ledger().agg(F.sum("kept"), F.sum("shed")).first()
    assert kept + shed == 5_000 * len(batches)
    assert spark.table(table).agg(F.sum("kept")).first()[0] == kept == sum(b.kept for b in batches.values())


def test_a_backfill_reads_batches_again_from_logs_in_hdfs_and_stores_them_there(spark, in_hdfs):
    shedder = always_shedding(in_hdfs, ps.Uniform(keep=0.2))
    kept = numbers(spark).transform(shedder)
    finish_batches(shedder.start(kept.writeStream.format("noop")), 2)
    window = F.window("timestamp", "1 second")  # of event time, which is one batch
    done = shedder.backfill(
        lambda rows: rows.groupBy(window).agg(F.sum("weight").alias("rows")), window=window, into=in_hdfs / "exact"
    )
    ledger = list(Ledger(in_hdfs / "penstock" / "shed" / "ledger").batches())
    assert (done.rows, done.shed) == (sum(b.offered for b in ledger), sum(b.shed for b in ledger))
    assert [row.rows for row in done.answers.collect()] == [5_000] * len(ledger)


def test_operators_and_networks_keep_their_logs_in_hdfs_too(spark, in_hdfs):
    worker = ps.operator(
        lambda row: {"double": 2 * row["value"]},
        key="parity",
        returns="double BIGINT",
        latency=5,
        checkpoint=in_hdfs / "operator",
    )
    events = numbers(spark, rows_per_batch=100).withColumn("parity", F.col("value") % 2)
    finish_batches(worker.start(events.transform(worker).writeStream.format("noop")), 2)
    log = PlanLog(in_hdfs / "operator" / "penstock" / "operator")
    assert log.decision(0).plan.work is not None
    assert log.guidance().work.batch_id >= 1

    network = ps.Network(checkpoint=in_hdfs / "network", latency_seconds=60)
    source = network.source("events", numbers(spark), row_id="value")
    source.filter("even", F.col("value") % 2 == 0).output("halves", columns=["value"])
    run = network.start(network.answers().writeStream.format("noop"))
    finish_batches(run, 2)
    arcs = run.network.arc_ledger().select("batch_id", F.explode("arcs")).collect()
    assert {row.batch_id for row in arcs} >= {0, 1}
    assert all(row.value.offered == row.value.kept + row.value.shed for row in arcs)
