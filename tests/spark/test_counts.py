"""At every door: rows kept in the ledger are rows in the sink, and rows shed are rows of the source missing there."""

import shutil
import time
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyspark.sql import functions as F

import penstock as ps
from penstock.control.governor import Decision
from penstock.model.network_plan import Drop, NetworkPlan
from penstock.spark.compile.layout import layout_of, planner_of
from penstock.spark.judge.sampling import row_hash, threshold_of
from penstock.spark.run.ledger import Ledger
from tests.spark.streams import always_shedding, finish_batches, numbers, stage_of
from tests.spark.test_operator import committed_files
from tests.spark.test_operator import start as start_operator
from tests.spark.test_outputs import RATES, answers_of, fixed
from tests.spark.test_outputs import start as start_outputs
from tests.spark.test_windows import Feed, run_to_end, steady, windows_of

pytestmark = pytest.mark.spark

ROWS = 5_000


def committed(out):
    """Rows of the sink by value; of a batch that stopping cut short there may be files that were never committed."""
    return [value for file in committed_files(out) for value in pq.read_table(file).column("value").to_pylist()]


def missing(spark, batches, survivors, *, rows=ROWS):
    """Count, by batch, what the source had and the sink has not."""
    there = spark.createDataFrame([(value,) for value in survivors], "value BIGINT")
    offered = spark.range(len(batches) * rows).withColumnRenamed("id", "value")
    gone = offered.join(there, "value", "left_anti").groupBy(F.expr(f"value DIV {rows} AS batch")).count()
    counted = {row.batch: row["count"] for row in gone.collect()}
    return [counted.get(batch.batch_id, 0) for batch in batches]


def of_batch(survivors, batches, *, rows=ROWS):
    return [sum(1 for value in survivors if value // rows == batch.batch_id) for batch in batches]


def agree(spark, batches, survivors, *, rows=ROWS):
    """Hold the ledger against the sink, batch by batch, and against what the sink lacks."""
    assert [batch.batch_id for batch in batches] == list(range(len(batches)))
    assert len(survivors) == len(set(survivors))
    assert [batch.kept for batch in batches] == of_batch(survivors, batches, rows=rows)
    assert [batch.shed for batch in batches] == missing(spark, batches, survivors, rows=rows)
    assert sum(batch.shed for batch in batches) > 0


def test_a_shedder_and_a_recount_after_a_move_count_what_is_missing(spark, checkpoint, tmp_path):
    def start(checkpoint):
        shedder = always_shedding(checkpoint, ps.Uniform(keep=0.3))
        kept = numbers(spark).transform(shedder)
        return shedder.start(kept.writeStream.format("parquet").option("path", str(tmp_path / "out")))

    finish_batches(start(checkpoint), 3)
    ledger = Path(checkpoint, "penstock", "shed", "ledger")
    agree(spark, list(Ledger(ledger).batches()), committed(tmp_path / "out"))

    # What was committed and is not in the ledger is counted again: by the same draws, wherever the checkpoint is now.
    shutil.rmtree(ledger)
    moved = shutil.move(checkpoint, tmp_path / "moved")
    finish_batches(start(str(moved)), 1)
    ledger = Path(moved, "penstock", "shed", "ledger")
    again = sorted(Ledger(ledger).batches(), key=lambda batch: batch.batch_id)
    assert sum(batch.recounted for batch in again) >= 3
    agree(spark, again, committed(tmp_path / "out"))


def test_a_function_for_each_batch_counts_what_is_missing(spark, checkpoint, tmp_path):
    out = str(tmp_path / "out")
    shedder = always_shedding(checkpoint, ps.Priority(keep={"1": 0.9, "2": 0.0}, min_keep=0.2), key="digit")
    events = numbers(spark).withColumn("digit", F.expr("nullif(value % 10, 3)"))
    run = shedder.start_each_batch(events, lambda rows, _: rows.write.mode("append").parquet(out))
    batches = finish_batches(run, 3)
    written = [row.value for row in spark.read.parquet(out).select("value").collect()]
    agree(spark, batches, [value for value in written if value < len(batches) * ROWS])


def test_drops_of_outputs_count_what_each_lacks(spark, checkpoint):
    rows = 20_000
    batches = finish_batches(start_outputs(spark, checkpoint, fixed(**RATES), "counted"), 2)
    drawn = spark.range(len(batches) * rows).withColumn("drawn", row_hash([F.col("id")], stage_of(checkpoint)))
    passed = drawn.where(F.col("drawn") < threshold_of(max(RATES.values())))
    for name, belongs in (("every", "true"), ("tens", "id % 10 = 0"), ("mean", "true")):
        here = passed.where(belongs)
        kept = here.where(F.col("drawn") < threshold_of(RATES[name])).count()
        told = {part: sum(batch.outputs[name][part] for batch in batches) for part in ("offered", "kept", "shed")}
        assert told == {"offered": here.count(), "kept": kept, "shed": here.count() - kept}
    # Every survivor stands for as many rows, so the count that came out tells how many there were.
    every = next(row for row in answers_of(spark, "counted").collect() if row.output == "every")
    assert every.value * RATES["every"] == pytest.approx(sum(batch.outputs["every"]["kept"] for batch in batches))


def test_arcs_of_a_network_count_what_is_missing_at_the_end(spark, checkpoint, tmp_path):
    network = ps.Network(checkpoint=checkpoint, latency_seconds=60)
    source = network.source("rows", numbers(spark), row_id="value")
    source.filter("all", F.col("value") >= 0).output("out", columns=["value"])
    source.filter("none", F.col("value") < 0).output("nothing", columns=["value"])
    arcs = [arc for arc in (("", "rows"), ("rows", "all"), ("all", "out")) if arc in layout_of(network).arcs]
    drops = NetworkPlan(drops={arc: Drop(0.7) for arc in arcs}, reason="test")
    planned = ps.Plan(keep=0.7, reason="test", network=drops)
    for number in range(20):
        decision = Decision(batch_id=number, decided_at=time.time(), plan=planned, expected_tuples=None)
        planner_of(network).log.decide(number, lambda decision=decision: decision)
    out = str(tmp_path / "out")
    run = network.start(network.answers().writeStream.format("parquet").option("path", out))
    batches = finish_batches(run, 3)

    files = [str(file) for file in committed_files(out)]
    survivors = spark.read.parquet(*files).select(F.get_json_object("row", "$.value").cast("long").alias("value"))
    values = [row.value for row in survivors.collect()]
    told = [{count.arc: count for count in done.arcs} for done in run.network.batches]
    assert len(arcs) >= 2
    assert [counts[arcs[-1]].kept for counts in told] == of_batch(values, batches)
    assert [sum(counts[arc].shed for arc in arcs) for counts in told] == missing(spark, batches, values)
    # Of the batch as a whole: rows that are left on some arc behind the source, and rows that are left on none.
    assert all(batch.offered == batch.kept + batch.shed == ROWS for batch in batches)
    assert all(counts[arc].shed > 0 for counts in told for arc in arcs)


def test_an_operator_counts_what_is_missing(spark, checkpoint, tmp_path):
    out, rows = tmp_path / "out", 200
    batches = finish_batches(start_operator(spark, checkpoint, out), 3)
    agree(spark, batches, committed(out), rows=rows)


@pytest.mark.parametrize("policy", [ps.ConceptDriven(keep=0.1), ps.Uniform(keep=0.2), ps.KeepAll()])
def test_accounts_of_windows_count_what_each_window_lacks(spark, tmp_path, policy):
    feed = Feed(spark, tmp_path)
    feed.add(steady(range(0, 60)))
    feed.add([(200.0, "end", 0.0)])
    found = run_to_end(windows_of(feed, tmp_path, policy, slide_seconds=30, buckets=1), tmp_path)
    there = [int(number) for text in found.survivors for number in text.split(",")]
    accounts = found.drop_duplicates(["start", "bucket"])
    assert len(there) == len(set(there)) == accounts.kept.sum()
    gone = set(range(feed.number - 1)) - set(there)
    assert accounts.offered.sum() == feed.number - 1
    assert accounts["shed"].sum() == len(gone)
    assert (len(gone) > 0) == (not isinstance(policy, ps.KeepAll))
