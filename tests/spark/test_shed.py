"""Shedding inside real streaming queries."""

import json
import threading
import time
from itertools import pairwise
from pathlib import Path

import pytest
from pyspark.sql import functions as F

import penstock as ps
from penstock.demo.bursty import bursty_stream
from penstock.model.arrivals import Arrivals
from penstock.model.load import Cost
from penstock.spark.plan.column import RATE_TYPE, batch_column
from penstock.spark.plan.log import PlanLog
from tests.spark.streams import always_shedding, draw_alike, finish_batches, known_costs, numbers

pytestmark = pytest.mark.spark


def to_parquet(frame, path):
    return frame.writeStream.format("parquet").outputMode("append").option("path", str(path))


def test_nothing_is_shed_while_the_load_fits_and_every_weight_is_one(spark, checkpoint, tmp_path):
    shedder = ps.shed(latency_seconds=60, checkpoint=checkpoint, row_id="value")
    kept = numbers(spark, rows_per_batch=500).transform(shedder)
    batches = finish_batches(shedder.start(to_parquet(kept, tmp_path / "out")), 4)
    assert all(batch.shed == 0 and batch.keep == 1 for batch in batches)
    rows = spark.read.parquet(str(tmp_path / "out"))
    assert rows.count() == sum(batch.offered for batch in batches)
    assert {row.weight for row in rows.select("weight").distinct().collect()} == {1.0}


def test_survivors_carry_the_inverse_of_their_keep_rate_and_counts_balance(spark, checkpoint, tmp_path):
    shedder = always_shedding(checkpoint, ps.Uniform(keep=0.25))
    kept = numbers(spark).transform(shedder)
    assert kept.columns == ["timestamp", "value", "weight"]
    batches = finish_batches(shedder.start(to_parquet(kept, tmp_path / "out")), 4)
    rows = spark.read.parquet(str(tmp_path / "out"))
    assert {row.weight for row in rows.select("weight").distinct().collect()} == {4.0}
    assert [batch.offered for batch in batches] == [5_000] * len(batches)
    assert rows.count() == sum(batch.kept for batch in batches)
    total = sum(batch.offered for batch in batches)
    weighed = rows.agg(F.sum("weight")).first()[0]
    assert abs(weighed / total - 1) < 4 * (3 / total) ** 0.5  # four standard errors of a count at keep 1/4


def test_any_stateful_operator_may_follow(spark, checkpoint):
    shedder = always_shedding(checkpoint, ps.Uniform(keep=0.5), arrival="timestamp")
    kept = numbers(spark).transform(shedder)
    counted = kept.groupBy((F.col("value") % 10).alias("digit")).agg(F.sum("weight").alias("n"))
    writer = counted.writeStream.outputMode("complete").format("memory").queryName("digits")
    batches = finish_batches(shedder.start(writer), 4)
    weighed = {row.digit: row.n for row in spark.table("digits").collect()}
    assert set(weighed) == set(range(10))
    assert sum(weighed.values()) == 2 * sum(batch.kept for batch in batches[: len(batches)])


def test_two_drops_in_series_multiply_their_weights(spark, checkpoint, tmp_path):
    shedder = always_shedding(checkpoint, ps.Uniform(keep=0.5))
    sampled = numbers(spark).where("value % 4 = 0").withColumn("weight", F.lit(4.0))
    finish_batches(shedder.start(to_parquet(sampled.transform(shedder), tmp_path / "out")), 2)
    weights = spark.read.parquet(str(tmp_path / "out")).select("weight").distinct().collect()
    assert {row.weight for row in weights} == {8.0}


def test_a_plan_changes_in_the_running_query_without_a_restart(spark, checkpoint):
    """Four thousand rows fit; from the second batch on there are a hundred times as many, and the plan follows."""
    known_costs(checkpoint)
    shedder = ps.shed(latency_seconds=20, checkpoint=checkpoint, row_id="value", policy=ps.Uniform(keep=0.1))
    copies = F.when(F.col("value") < 4_000, 1).otherwise(100)
    swelling = numbers(spark, rows_per_batch=4_000).withColumn("copy", F.explode(F.sequence(F.lit(1), copies)))
    # Without a pause between batches the next may be planned before the controller has seen the last one.
    run = shedder.start(swelling.transform(shedder).writeStream.format("noop").trigger(processingTime="10 seconds"))
    batches = finish_batches(run, 3)
    assert [batch.keep for batch in batches[:3]] == [1.0, 1.0, 0.1], [batch.reason for batch in batches]
    assert [batch.offered for batch in batches[:3]] == [4_000, 400_000, 400_000]
    assert abs(batches[2].kept_share - 0.1) < 0.02
    assert run.query.exception() is None


def test_a_plan_is_asked_for_once_in_a_batch_not_once_per_row(spark, checkpoint, tmp_path):
    """Spark inlines subqueries that it finds simple enough; then every row would go through Python."""
    calls = tmp_path / "calls"

    def to_row(decision):
        with calls.open("a") as file:
            file.write(f"{decision.batch_id}\n")
        return {"threshold": 0}

    known_costs(checkpoint)
    planner = ps.shed(latency_seconds=5, checkpoint=checkpoint, row_id="value")._planner
    planned = numbers(spark).withColumn(
        "threshold", batch_column(spark, planner, to_row, sql_type=RATE_TYPE)["threshold"]
    )
    query = planned.writeStream.format("noop").option("checkpointLocation", checkpoint).start()
    while query.isActive and not (query.lastProgress and query.lastProgress["batchId"] >= 2):
        time.sleep(0.1)
    query.stop()
    asked = calls.read_text().split()
    assert asked == [str(batch_id) for batch_id in range(len(asked))]
    assert len(asked) >= 3


@pytest.mark.parametrize("keys", [100, 10_000])
def test_each_key_is_kept_at_its_own_rate(spark, checkpoint, keys):
    """All keys of one rate together: with 10,000 keys a single one has too few rows to tell."""
    rates = {str(key): (key % 10) / 10 for key in range(keys)}
    shedder = always_shedding(checkpoint, ps.Priority(keep=rates), row_id="id", key="user")
    events = numbers(spark, rows_per_batch=200_000).select(
        F.col("value").alias("id"), F.pmod(F.xxhash64("value"), F.lit(keys + 1)).alias("user")
    )
    counted = events.transform(shedder).groupBy("user").agg(F.count("*").alias("kept"), F.sum("weight").alias("n"))
    writer = counted.writeStream.outputMode("complete").format("memory").queryName(f"users_{keys}")
    batches = finish_batches(shedder.start(writer), 3)
    offered = sum(batch.offered for batch in batches)
    told = {row.user: row for row in spark.table(f"users_{keys}").collect()}
    per_key = offered / (keys + 1)
    for tenth in range(1, 10):
        keep = tenth / 10
        group = [told[key] for key in range(keys) if key % 10 == tenth and key in told]
        rows = per_key * keys / 10
        kept_share = sum(row.kept for row in group) / rows
        assert abs(kept_share - keep) < 5 * (1 / rows) ** 0.5 + 0.01, (tenth, kept_share)
        assert abs(sum(row.n for row in group) / rows - 1) < 0.05
    assert not [key for key in told if key is not None and key < keys and key % 10 == 0]  # keep 0 drops all
    if keys == 100:
        for key in range(1, keys):
            share = told[key].kept / per_key if key in told else 0.0
            assert abs(share - rates[str(key)]) < 6 * (1 / per_key) ** 0.5 + 0.01
    assert all(batch.listed_offered > 0.9 * batch.offered for batch in batches)


def test_null_keys_get_the_common_rate(spark, checkpoint, tmp_path):
    shedder = always_shedding(checkpoint, ps.Priority(keep={"7": 0.0}, min_keep=0.5), key="user")
    events = numbers(spark).withColumn("user", F.when(F.col("value") % 2 == 0, F.lit(7)))
    finish_batches(shedder.start(to_parquet(events.transform(shedder), tmp_path / "out")), 2)
    rows = spark.read.parquet(str(tmp_path / "out"))
    assert rows.where("user is not null").count() == 0
    assert {row.weight for row in rows.select("weight").distinct().collect()} == {2.0}


def test_compound_keys_are_listed_by_all_their_columns(spark, checkpoint, tmp_path):
    policy = ps.Priority(keep={ps.compound_key("1", "de"): 1.0}, min_keep=0.0)
    shedder = always_shedding(checkpoint, policy, key=["user", "country"])
    known_costs(checkpoint, cost=Cost(fixed_seconds=0.0, kept_seconds=1e-2))
    events = numbers(spark).selectExpr("value", "value % 2 as user", "if(value % 3 = 0, 'de', 'fr') as country")
    finish_batches(shedder.start(to_parquet(events.transform(shedder), tmp_path / "out")), 2)
    kept = spark.read.parquet(str(tmp_path / "out")).select("user", "country").distinct().collect()
    assert [(row.user, row.country) for row in kept] == [(1, "de")]


def test_without_a_row_id_whole_rows_are_hashed(spark, checkpoint):
    shedder = always_shedding(checkpoint, ps.Uniform(keep=0.5), row_id=())
    events = numbers(spark).withColumn("tags", F.create_map(F.lit("a"), F.lit(1)))  # maps cannot be hashed
    batches = finish_batches(shedder.start(events.transform(shedder).writeStream.format("noop")), 2)
    assert all(0.4 < batch.kept_share < 0.6 for batch in batches)


def test_latency_is_measured_from_the_arrival_column(spark, checkpoint):
    events = spark.readStream.format("rate").option("rowsPerSecond", 500).load()
    shedder = ps.shed(latency_seconds=30, checkpoint=checkpoint, row_id="value", arrival="timestamp")
    batches = finish_batches(shedder.start(events.transform(shedder).writeStream.format("noop")), 3)
    measured = [batch for batch in batches if batch.offered]
    assert measured
    for batch in measured:
        assert 0 < batch.mean_latency_seconds <= batch.latency_seconds


def test_each_batch_sheds_with_the_plan_as_literals(spark, checkpoint):
    written = {}

    def write(rows, batch_id):
        written[batch_id] = {row.weight: row["count"] for row in rows.groupBy("weight").count().collect()}

    shedder = always_shedding(checkpoint, ps.Uniform(keep=0.25))
    batches = finish_batches(shedder.start_each_batch(numbers(spark), write), 3)
    assert batches
    for batch in batches:
        assert written[batch.batch_id] == {4.0: batch.kept}
        assert batch.offered == 5_000


def test_each_batch_knows_rates_per_key(spark, checkpoint):
    written = {}

    def write(rows, batch_id):
        written[batch_id] = {row.user: row["count"] for row in rows.groupBy("user").count().collect()}

    rates = {str(key): key / 4 for key in range(4)}
    shedder = always_shedding(checkpoint, ps.Priority(keep=rates), key="user")
    events = numbers(spark, rows_per_batch=40_000).withColumn("user", F.pmod(F.xxhash64("value"), F.lit(4)))
    batches = finish_batches(shedder.start_each_batch(events, write, trigger={"processingTime": "0 seconds"}), 2)
    kept = written[batches[0].batch_id]
    assert 0 not in kept
    for key in (1, 2, 3):
        assert abs(kept[key] / 10_000 - key / 4) < 0.04


def test_both_mechanisms_keep_the_same_rows(spark, tmp_path):
    kept = {}
    for name in ("in_plan", "literals"):
        if kept:
            draw_alike(tmp_path / "in_plan", tmp_path / name)
        shedder = always_shedding(str(tmp_path / name), ps.Uniform(keep=0.3))
        out = str(tmp_path / f"{name}.parquet")
        if name == "in_plan":
            run = shedder.start(to_parquet(numbers(spark).transform(shedder), out))
        else:
            run = shedder.start_each_batch(
                numbers(spark), lambda rows, _, out=out: rows.write.mode("append").parquet(out)
            )
        finish_batches(run, 3)
        kept[name] = {row.value for row in spark.read.parquet(out).where("value < 15000").select("value").collect()}
    assert kept["in_plan"] == kept["literals"]
    assert 4_000 < len(kept["literals"]) < 5_000


def test_a_function_that_runs_no_action_is_named(spark, checkpoint, monkeypatch):
    monkeypatch.setattr("penstock.spark.judge.each_batch.METRICS_SECONDS", 1.0)
    shedder = ps.shed(latency_seconds=5, checkpoint=checkpoint, row_id="value")
    run = shedder.start_each_batch(numbers(spark), lambda rows, batch_id: None)
    with pytest.raises(Exception, match="ran no action on the rows of batch 0"):
        run.await_termination(60)
    waiting = [thread for thread in threading.enumerate() if thread.name == "penstock-counts"]
    assert all(thread.daemon for thread in waiting), "a thread that waits for counts would keep the process alive"


def test_late_rows_are_counted_when_shed_or_kept_and_dropped_by_the_watermark_alone(spark, checkpoint):
    # From the third batch on, every tenth row is from the first second, which its watermark has passed by then.
    at = F.when((F.col("value") >= 10_000) & (F.col("value") % 10 == 0), F.lit(0)).otherwise(F.col("value") / 1000)
    shedder = always_shedding(checkpoint, ps.Uniform(keep=0.5))
    shed = numbers(spark).withColumn("at", F.timestamp_seconds(at)).transform(shedder)
    windows = (
        shed.withWatermark("at", "1 second").groupBy(F.window("at", "1 second")).agg(F.sum("weight").alias("rows"))
    )
    run = shedder.start(windows.writeStream.format("memory").queryName("late_rows").outputMode("append"))
    batches = finish_batches(run, 6)

    dropped = sum(
        operator["numRowsDroppedByWatermark"]
        for report in run.query.recentProgress
        for operator in report["stateOperators"]
    )
    assert dropped > 0
    assert [batch.offered for batch in batches if batch.offered] == [5_000] * len([b for b in batches if b.offered])
    assert all(batch.kept + batch.shed == batch.offered for batch in batches)
    answers = {row.window.start.timestamp(): row.rows for row in spark.table("late_rows").collect()}
    assert len(answers) >= 10
    # A window is told once, without the late rows: those of the first second, and nine tenths of a second later on.
    expected = {second: 1000 if second < 10 else 900 for second in answers}
    assert {s: rows for s, rows in answers.items() if not 0.85 * expected[s] < rows < 1.15 * expected[s]} == {}


def test_a_source_that_tells_its_latest_offset_shows_the_backlog(spark, checkpoint):
    arrivals = Arrivals.of((60, 4_000))
    shedder = ps.shed(latency_seconds=60, checkpoint=checkpoint, row_id="id")
    clicks = bursty_stream(spark, arrivals, epoch=time.time() - 1).transform(shedder)
    batches = finish_batches(shedder.start(clicks.writeStream.format("noop")), 4)
    backlogs = [batch.backlog_tuples for batch in batches]
    assert None not in backlogs
    # What waits when a batch ends arrived while it ran, and becomes the next batch, with what came since.
    for before, after in pairwise(batches):
        assert 0 <= before.backlog_tuples <= after.offered
    assert max(backlogs) > 0


def test_the_ledger_holds_every_committed_batch(spark, checkpoint):
    shedder = always_shedding(checkpoint, ps.Uniform(keep=0.5))
    run = shedder.start(numbers(spark).transform(shedder).writeStream.format("noop"))
    batches = finish_batches(run, 5)
    entered = run.ledger().orderBy("batch_id").collect()
    assert [row.batch_id for row in entered] == [batch.batch_id for batch in batches]
    assert all(row.offered == row.kept + row.shed for row in entered)
    assert [row.batch_id for row in run.ledger(last=2).orderBy("batch_id").collect()] == [
        batch.batch_id for batch in batches[-2:]
    ]
    (newest, *_) = sorted(Path(run.ledger_path).iterdir(), reverse=True)
    assert json.loads(newest.read_text())["batch_id"] == batches[-1].batch_id
    status = run.status
    assert (status.batches, status.offered) == (len(batches), 5_000 * len(batches))
    assert "stopped:" in str(status)


def test_plans_are_pruned_with_sparks_own_log(spark, checkpoint, monkeypatch):
    monkeypatch.setattr("penstock.spark.run.control.PRUNE_EVERY_BATCHES", 5)
    spark.conf.set("spark.sql.streaming.minBatchesToRetain", "3")
    try:
        shedder = always_shedding(checkpoint, ps.Uniform(keep=0.5))
        run = shedder.start(numbers(spark, rows_per_batch=10).transform(shedder).writeStream.format("noop"))
        batches = finish_batches(run, 22)
    finally:
        spark.conf.unset("spark.sql.streaming.minBatchesToRetain")
    planned = PlanLog(_path(checkpoint)).batch_ids()
    assert planned[-1] >= batches[-1].batch_id
    assert planned[0] > 5
    assert len({row.batch_id for row in run.ledger().collect()}) == len(batches)  # the ledger keeps all


def _path(checkpoint):
    from pathlib import Path

    return Path(checkpoint) / "penstock" / "shed"
