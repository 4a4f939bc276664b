"""What a network drops is stored with its arc, and enough of it to make all answers exact afterwards."""

import json
import time

import pytest
from pyspark.sql import functions as F

import penstock as ps
from penstock.control.guidance import Guidance
from penstock.model.network_plan import Drop, NetworkPlan
from penstock.policy.plan_table import PlanTable, TableRow
from penstock.spark.network_layout import layout_of, planner_of
from tests.spark.test_network import events

pytestmark = [pytest.mark.spark, pytest.mark.slow]

ROWS = 600


def always_dropping(network, drops):
    """Leave a table behind in which every batch is too much, and gets these drops."""
    assert set(drops) <= set(layout_of(network).arcs)
    planner = planner_of(network)
    cost = ps.Cost(fixed_seconds=0.0, kept_seconds=1.0)
    planner.log.publish(Guidance(published_at=time.time(), cost=cost, tuples_per_unit=1.0))
    plans = [NetworkPlan(reason="row 0"), NetworkPlan(drops=drops, reason="row 1", row=1)]
    rows = tuple(TableRow(index=n, work_share=1 - n / 2, plan=plan) for n, plan in enumerate(plans))
    planner.publish(PlanTable(rows=rows), latency_seconds=5.0, shedding="random")


def run_some(network, path, count):
    writer = network.answers().writeStream.format("parquet").option("path", str(path))
    run = network.start(writer.trigger(processingTime="200 milliseconds"))
    watched = run.watch()
    for _ in range(count):
        next(watched)
    run.stop()
    return run


def branching(checkpoint, frame, **options):
    """Windows, rows by two ways and pairs, all behind one filter."""
    network = ps.Network(checkpoint=checkpoint, latency_seconds=5, headroom=1e-9, **options)
    source = network.source("events", frame, row_id="id", event_time="at", watermark="1 second")
    shared = source.filter("shared", F.col("kind") > 1)
    shared.aggregate("summed", window_seconds=4, slide_seconds=2, by="kind", of=F.col("value")).output("sums")
    doubled = shared.map("doubled", twice=F.col("value") * 2)
    doubled.output("rows", columns=["id", "twice"])
    both = shared.filter("twos", F.col("kind") == 2).union("both", doubled.filter("threes", F.col("kind") == 3))
    both.output("few", columns=["id"])
    both.filter("large", F.col("value") > 50).output("fewer")
    left, right = shared.filter("left", F.col("value") == 3), shared.filter("right", F.col("kind") < 5)
    pairs = left.join("pairs", right, on="value", within_seconds=1.5)
    pairs.output("pairs out", columns=["id", "right_id"])
    pairs.filter("forward", F.col("id") < F.col("right_id")).output("forward out", columns=["id", "right_id"])
    return network


DROPS = {
    ("", "events"): Drop(0.8),
    ("shared", "summed"): Drop(0.5),
    ("shared", "doubled"): Drop(0.6),
    ("both", "few"): Drop(0.7),
    ("pairs", "forward"): Drop(0.5),
}


def arc_ledger(run):
    """Rows dropped by batch and arc, where there were any."""
    lines = [json.loads(line) for file in run.arc_ledger_path.glob("*.jsonl") for line in file.read_text().splitlines()]
    return {(line["batch_id"], arc): shed for line in lines for arc, _, _, shed in line["arcs"] if shed}


def by_arc(spilled):
    return {(row.batch, row.arc): row["count"] for row in spilled.groupBy("batch", "arc").count().collect()}


def test_every_drop_is_stored_once_with_its_arc_and_the_row_as_it_was_there(spark, checkpoint, tmp_path):
    network = branching(checkpoint, events(spark, rows_per_batch=ROWS), spill=str(tmp_path / "spill"))
    always_dropping(network, DROPS)
    run = run_some(network, tmp_path / "out", 3)
    stored = network.spilled()
    assert by_arc(stored) == arc_ledger(run)
    assert {arc for _, arc in arc_ledger(run)} == {
        "-> events", "shared -> summed", "shared -> doubled", "both -> few", "pairs -> forward",
    }  # fmt: skip
    own = ["shed", "sampled", "weight", "batch", "arc", "reason", "source"]
    columns = ["id", "at", "kind", "value", "twice"]
    assert stored.columns == [*columns, *(f"right_{name}" for name in columns), *own]
    assert stored.where("NOT shed OR NOT sampled OR source IS NOT NULL OR batch != id DIV 600").isEmpty()
    # Weighted by the drops above; columns that other branches made are not there.
    told = stored.groupBy("arc").agg(F.collect_set(F.round("weight", 6)).alias("w"), F.count("twice").alias("twice"))
    told = {row.arc: (sorted(row.w), row.twice > 0) for row in told.collect()}
    assert told == {
        "-> events": ([1.0], False),
        "shared -> summed": ([1.25], False),
        "shared -> doubled": ([1.25], False),
        "both -> few": ([1.25, round(1.25 / 0.6, 6)], True),
        "pairs -> forward": ([1.5625], False),
    }
