"""Batches of networks whose counts died with the driver: counted again from stored offsets, rows and plans."""

import time
from pathlib import Path

import pytest
from pyspark.sql import functions as F

import penstock as ps
from penstock.spark.run.ledger import ArcLedger, Ledger
from tests.spark.streams import forget_last
from tests.spark.test_network import ROWS, events, overloaded, run_batches, six_outputs

pytestmark = pytest.mark.spark


def shedding_network(spark, checkpoint, build):
    network = ps.Network(checkpoint=checkpoint, latency_seconds=5)
    build(network, events(spark))
    return network


def costly(network, frame):
    six_outputs(network, frame, costly_map=True)


def two_sources(network, frame):
    """Two streams that meet in a union, with a drop in front of each and behind it."""
    one = network.source("one", frame, row_id="id", event_time="at", watermark="1 second")
    less = events(frame.sparkSession, rows_per_batch=700).drop("value")
    other = network.source("other", less, row_id="id", event_time="at", watermark="1 second")
    some = one.filter("some", F.col("kind") > 1)
    both = some.union("both", other.filter("few", F.col("kind") < 4))
    both.output("rows", columns=["id", "kind"])
    both.filter("odd", F.col("id") % 2 == 1).output("odd rows", columns=["id"])
    some.output("more rows", columns=["id"])


def split_pairs(network, frame):
    """A join whose pairs go two ways, so that there may be drops below it."""
    source = network.source("events", frame, row_id="id", event_time="at", watermark="1 second")
    left = source.filter("left", F.col("value") == 3)
    right = source.filter("right", (F.col("value") == 3) & (F.col("kind") < 3))
    pairs = left.join("pairs", right, on="value", within_seconds=0.5)
    pairs.filter("forward", F.col("id") < F.col("right_id")).output("forward pairs", columns=["id", "right_id"])
    pairs.filter("backward", F.col("id") > F.col("right_id")).output("backward pairs", columns=["id", "right_id"])
    left.output("rows", columns=["id"])


def batches(checkpoint):
    return {batch.batch_id: batch for batch in Ledger(Path(checkpoint, "penstock", "network", "ledger")).batches()}


def arcs(checkpoint):
    """Counts by batch and arc."""
    entries = ArcLedger(Path(checkpoint, "penstock", "network", "arcs")).batches()
    return {each.batch_id: {arc: tuple(counts.values()) for arc, counts in each.arcs.items()} for each in entries}


def forget(checkpoint, count):
    """Take the last entries of ledger and arcs away, as if the driver had been killed after its commit."""
    folder = Path(checkpoint, "penstock", "network")
    forget_last(Ledger(folder / "ledger"), count)
    forget_last(ArcLedger(folder / "arcs"), count)


@pytest.mark.parametrize(
    ("build", "uncounted"),
    [
        (costly, set()),
        (two_sources, set()),
        # Pairs hang on the rows of other batches.
        (split_pairs, {"pairs -> forward", "pairs -> backward"}),
    ],
)
def test_counts_that_died_with_the_driver_are_made_again_for_the_whole_and_on_every_arc(
    spark, checkpoint, tmp_path, build, uncounted
):
    network = shedding_network(spark, checkpoint, build)
    overloaded(network, seconds_per_tuple=3.0 / ROWS)
    run_batches(network, tmp_path / "out", 4)
    whole, whole_arcs = batches(checkpoint), arcs(checkpoint)
    forget(checkpoint, len(whole))
    assert batches(checkpoint) == arcs(checkpoint) == {}

    again = shedding_network(spark, checkpoint, build)
    run_batches(again, tmp_path / "out", 1)
    mended, mended_arcs = batches(checkpoint), arcs(checkpoint)
    assert whole[0].keep < 1  # the first one sheds, whatever is learned then
    for number, batch in whole.items():
        found = mended[number]
        assert found.recounted
        assert (found.offered, found.kept, found.shed) == (batch.offered, batch.kept, batch.shed)
        assert (found.keep, found.reason) == (batch.keep, batch.reason)
        assert whole_arcs[number].keys() - mended_arcs[number].keys() == uncounted
        assert mended_arcs[number] == {arc: c for arc, c in whole_arcs[number].items() if arc not in uncounted}
    assert sum(shed for _, _, shed in mended_arcs[0].values()) > 0
    assert not (Path(checkpoint) / "penstock" / "network" / "recounted").exists()


def test_an_arc_ledger_that_cannot_be_written_ends_nothing_and_no_entry_is_without_its_arcs(
    spark, checkpoint, tmp_path, monkeypatch
):
    broken, append = {"yes": True}, ArcLedger.append

    def fail(*arguments):
        if broken["yes"]:
            raise OSError(5, "Input/output error")
        append(*arguments)

    monkeypatch.setattr(ArcLedger, "append", fail)
    network = shedding_network(spark, checkpoint, two_sources)
    run = network.start(network.answers().writeStream.format("noop"))
    watched = run.watch()
    for _ in range(3):
        next(watched)
    status = run.status
    assert status.controlled
    assert "Input/output error" in status.note
    assert batches(checkpoint) == {}
    broken["yes"] = False
    ends_at = time.monotonic() + 60
    while run.status.note and time.monotonic() < ends_at:
        time.sleep(0.05)
    assert run.status.note == ""
    run.stop()
    assert list(batches(checkpoint)) == list(arcs(checkpoint)) == [batch.batch_id for batch in run.batches]
