"""Bad input gets a clear error before anything starts."""

from pathlib import Path

import pytest
from pyspark.sql import functions as F

import penstock as ps
from tests.spark.streams import finish_batches, numbers


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"latency_seconds": 0}, "latency_seconds must be finite and above 0, got 0; it is the time from arrival"),
        ({"latency_seconds": float("nan")}, "latency_seconds must be finite and above 0, got nan"),
        ({"late_share": 0}, r"late_share must be in \(0, 1\), got 0; it is the share of batches that may be late"),
        ({"latency_of": "newest"}, "latency_of must be 'oldest' or 'mean', got 'newest'"),
        ({"probe_tuples": 0}, "probe_tuples must be finite and above 0, got 0"),
        ({"grace_seconds": -1}, "grace_seconds must be finite and above 0, got -1"),
        ({"policy": "uniform"}, r"policy must have decide\(load\), got 'uniform'; for example Uniform\(\)"),
        ({"name": "a/b"}, "name must be letters, digits"),
        ({"row_id": ""}, "row_id takes column names, got ''"),
        ({"checkpoint": "gs://bucket/x"}, "is not in a store that is known to create a file for exactly one writer"),
        ({"checkpoint": ""}, "the checkpoint location is empty"),
    ],
)
def test_options_that_cannot_be_worked_with_are_refused(options, message):
    with pytest.raises(ps.PenstockError, match=message):
        ps.shed(**{"latency_seconds": 5, "checkpoint": "/nowhere", **options})


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ps.Uniform(keep=1.2), r"keep must be in \[0, 1\], got 1.2; it is the share of tuples that survive"),
        (lambda: ps.Uniform(keep=float("nan")), r"keep must be in \[0, 1\], got nan"),
        (lambda: ps.Priority(keep={}), r"keep must list at least one key and its rate; without any, use Uniform\(\)"),
        (lambda: ps.Priority(keep={"a": -0.1}), r"key_keep\['a'\] must be in \[0, 1\], got -0.1"),
        (lambda: ps.Priority(keep={7: 0.1}), r"key 7 of type int; keys are compared as text, so give str\(7\)"),
        (lambda: ps.Cost(fixed_seconds=0.1, kept_seconds=float("nan")), "kept_seconds must be finite and at least 0"),
    ],
)
def test_policies_and_costs_that_make_no_sense_are_refused(make, message):
    with pytest.raises(ps.InvalidInputError, match=message):
        make()


@pytest.mark.spark
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"row_id": "nope"}, "row_id names the column 'nope', which the stream does not have; it has timestamp, value"),
        ({"key": "nope"}, "key names the column 'nope'"),
        ({"arrival": "nope"}, "arrival names the column 'nope'"),
        ({"arrival": "value"}, "arrival names the column 'value' of type bigint; latency is measured from a timestamp"),
        ({"weight": "timestamp"}, "has a column 'timestamp' of type timestamp, where the weight of"),
        ({"policy": ps.Priority(keep={"a": 1.0})}, r"no key column was named; give shed\(key=...\)"),
    ],
)
def test_columns_that_do_not_fit_are_named_before_the_query_starts(spark, checkpoint, options, message):
    with pytest.raises(ps.InvalidInputError, match=message):
        numbers(spark).transform(ps.shed(latency_seconds=5, checkpoint=checkpoint, **options))


@pytest.mark.spark
def test_a_batch_data_frame_is_refused(spark, checkpoint):
    with pytest.raises(ps.InvalidInputError, match="works on a streaming DataFrame, and this one is a batch"):
        spark.range(3).transform(ps.shed(latency_seconds=5, checkpoint=checkpoint))


@pytest.mark.spark
def test_a_stream_of_maps_alone_needs_a_row_id(spark, checkpoint):
    maps = numbers(spark).select(F.create_map("value", "value").alias("m"))
    with pytest.raises(ps.InvalidInputError, match="no column of the stream can be hashed"):
        maps.transform(ps.shed(latency_seconds=5, checkpoint=checkpoint))


@pytest.mark.spark
def test_a_shedder_serves_one_stream(spark, checkpoint):
    shedder = ps.shed(latency_seconds=5, checkpoint=checkpoint)
    with pytest.raises(ps.InvalidInputError, match="nothing was shed yet"):
        shedder.start(numbers(spark).writeStream)
    numbers(spark).transform(shedder)
    with pytest.raises(ps.InvalidInputError, match="already applied to a stream"):
        numbers(spark).transform(shedder)


@pytest.mark.spark
def test_working_columns_of_the_user_are_not_overwritten(spark, checkpoint):
    taken = numbers(spark).withColumn("__penstock_kept", F.lit(1))
    with pytest.raises(ps.InvalidInputError, match="rename it, Penstock works with that name"):
        taken.transform(ps.shed(latency_seconds=5, checkpoint=checkpoint))


@pytest.mark.spark
def test_a_corrupt_plan_entry_is_refused_at_the_start_and_nothing_is_lost(spark, checkpoint):
    def start():
        shedder = ps.shed(latency_seconds=5, checkpoint=checkpoint, row_id="value")
        return shedder.start(numbers(spark).transform(shedder).writeStream.format("noop"))

    last = finish_batches(start(), 2)[-1].batch_id
    entry = Path(checkpoint) / "penstock" / "shed" / "plans" / f"{last}.json"
    whole = entry.read_text()
    entry.write_text(whole[:40])
    with pytest.raises(ps.PlanLogError, match=rf"{last}\.json is truncated or not JSON.*restore the file from a copy"):
        start()
    entry.write_text(whole)
    assert finish_batches(start(), 1)[0].offered == 5_000


@pytest.mark.spark
def test_a_plan_entry_that_goes_bad_while_the_query_runs_is_named_in_our_own_words(spark, checkpoint):
    shedder = ps.shed(latency_seconds=5, checkpoint=checkpoint, row_id="value")
    run = shedder.start(numbers(spark, rows_per_batch=10).transform(shedder).writeStream.format("noop"))
    first = next(run.watch())
    ahead = Path(checkpoint) / "penstock" / "shed" / "plans" / f"{first.batch_id + 20}.json"
    ahead.write_text("{ torn")
    with pytest.raises(ps.PlanLogError, match="must shed what it shed the first time, so restore the file from a copy"):
        run.await_termination(120)


@pytest.mark.spark
def test_a_shed_frame_cannot_be_run_as_a_batch(spark, checkpoint, tmp_path):
    shedder = ps.shed(latency_seconds=5, checkpoint=checkpoint, row_id="value")
    kept = numbers(spark).transform(shedder)
    with pytest.raises(Exception, match="writeStream"):
        kept.count()
