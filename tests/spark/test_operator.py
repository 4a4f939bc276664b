"""Python operators that hold their latency: counts, weights, errors, replays, partitions."""

import json
import time
from pathlib import Path
from urllib.parse import urlparse

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import functions as F

import penstock as ps
from penstock.model.errors import InvalidInputError, OperatorError, PlanLogError
from penstock.policy.rows.load_aware import FullKnowledge
from penstock.sketch.hashing import NULL_ITEM, HashFamily, item_of
from penstock.spark.judge.sampling import key_hash
from penstock.spark.run.ledger import Ledger
from penstock.spark.work.columns import Columns
from penstock.spark.work.task import ITEM
from tests.spark.streams import finish_batches, forget_last, numbers
from tests.spark.test_recovery import uncommit

pytestmark = pytest.mark.spark

ROWS = 200
# So short that four milliseconds a row are too much: budgets fall to their least.
TIGHT = 0.4


def slow(row):
    """Four milliseconds for even values, next to nothing for odd ones."""
    if row["value"] % 2 == 0:
        time.sleep(0.004)
    return {"value": row["value"], "double": 2 * row["value"]}


def start(spark, checkpoint, out, function=slow, *, rows=ROWS, stream=None, **options):
    worker = ps.operator(
        function,
        **{
            "key": "parity",
            "returns": "value BIGINT, double BIGINT",
            "latency": TIGHT,
            "checkpoint": checkpoint,
            **options,
        },
    )
    events = stream if stream is not None else numbers(spark, rows_per_batch=rows)
    events = events.withColumn("parity", (F.col("value") % 2).cast("string"))
    return worker.start(events.transform(worker).writeStream.format("parquet").option("path", str(out)))


def committed_files(out):
    """Read the sink's log by hand: Spark refuses one that lacks the batches of another run.

    The folder itself may still hold files of the batch that stopping cut short.
    """
    logs = [file.read_text().splitlines() for file in Path(out, "_spark_metadata").glob("[0-9]*")]
    return sorted({Path(urlparse(json.loads(line)["path"]).path) for log in logs for line in log[1:]})


def rows_of(out):
    files = [pq.read_table(file).to_pydict() for file in committed_files(out)]
    return {value: weight for file in files for value, weight in zip(file["value"], file["weight"], strict=True)}


def by_batch(written):
    found = {}
    for value, weight in written.items():
        found.setdefault(value // ROWS, {})[value] = weight
    return found


def test_items_are_the_same_in_spark_as_in_python(spark):
    frame = spark.createDataFrame([("de", 17), ("fr", -3), (None, 5), ("de", None), ("", 0)], "country STRING, age INT")
    columns = Columns(key=("country", "age"), arrival=None, utility=None, true_cost=None)

    items = [row[ITEM] % 2**64 for row in columns.add(frame).collect()]

    assert items == [item_of("de", "17"), item_of("fr", "-3"), NULL_ITEM, NULL_ITEM, item_of("", "0")]
    on_driver = HashFamily(rows=4, columns=55, seed=3).columns_of(np.array(items, dtype=np.uint64)).T.tolist()

    def in_worker(batches):
        for batch in batches:
            items = batch.column(0).to_numpy().view(np.uint64)
            yield pa.record_batch({"columns": HashFamily(rows=4, columns=55, seed=3).columns_of(items).T.tolist()})

    found = columns.add(frame).select(ITEM).mapInArrow(in_worker, "columns ARRAY<BIGINT>").collect()
    assert [row["columns"] for row in found] == on_driver


def test_keys_of_operators_and_of_rates_hash_alike():
    """Written down twice, so that a query without operators need not load numba."""
    assert key_hash(ps.compound_key("de", "mobile")) % 2**64 == item_of("de", "mobile")
    assert key_hash("17") % 2**64 == item_of("17")


def test_while_the_load_fits_every_row_comes_through_with_weight_one(spark, checkpoint, tmp_path):
    def fast(row):
        return {"value": row["value"], "double": 2 * row["value"]}

    batches = finish_batches(start(spark, checkpoint, tmp_path / "out", fast, latency=60), 3)

    written = spark.read.parquet(str(tmp_path / "out")).where(F.col("value") < 3 * ROWS).collect()
    assert sorted((row.value, row.double, row.weight) for row in written) == [(n, 2 * n, 1.0) for n in range(3 * ROWS)]
    assert all((batch.offered, batch.kept, batch.shed, batch.failed) == (ROWS, ROWS, 0, 0) for batch in batches[:3])


def test_load_aware_sheds_what_does_not_fit_and_weighs_the_rest(spark, checkpoint, tmp_path):
    batches = finish_batches(start(spark, checkpoint, tmp_path / "out"), 5)

    assert batches[0].shed == 0
    assert batches[0].reason == "costs not learned yet: keeping all"
    assert sum(batch.shed for batch in batches[2:5]) > ROWS
    written = by_batch(rows_of(tmp_path / "out"))
    for batch in batches:
        assert batch.offered == batch.kept + batch.shed == ROWS
        assert len(written[batch.batch_id]) == batch.kept
        assert sum(written[batch.batch_id].values()) == pytest.approx(ROWS)
    assert "for a budget of" in batches[3].reason


def test_density_keeps_the_cheap_and_learns_which_they_are(spark, checkpoint, tmp_path):
    run = start(spark, checkpoint, tmp_path / "out", policy=ps.Density(min_keep=0.1))
    batches = finish_batches(run, 8)

    late = {value: weight for value, weight in rows_of(tmp_path / "out").items() if 3 * ROWS <= value < 8 * ROWS}
    cheap = sum(value % 2 for value in late)
    assert sum(batch.shed for batch in batches[3:8]) > 50
    assert cheap > 2 * (len(late) - cheap)
    assert set(late.values()) <= {1.0, 10.0}
    even, odd = run.operator.workshop.pair.estimate(np.array([item_of("0"), item_of("1")], dtype=np.uint64))
    assert even > 3 * odd


def test_two_partitions_have_two_backlogs_and_only_the_loaded_one_sheds(spark, checkpoint, tmp_path):
    def slow_in_one(row):
        if row["part"] == 0:
            time.sleep(0.004)
        return {"value": row["value"], "double": row["part"]}

    stream = numbers(spark, rows_per_batch=ROWS).withColumn("part", F.spark_partition_id())
    run = start(spark, checkpoint, tmp_path / "out", slow_in_one, stream=stream, key="part", latency=0.6)
    batches = finish_batches(run, 6)

    written = spark.read.parquet(str(tmp_path / "out")).where(f"value >= {3 * ROWS} AND value < {6 * ROWS}").collect()
    light = sum(row.double for row in written)
    assert light == 3 * ROWS // 2
    assert len(written) - light == sum(batch.kept for batch in batches[3:6]) - light < light
    assert set(run.operator.workshop.learned().partitions) == {0, 1}


def test_a_replayed_batch_sheds_the_same_rows_although_costs_are_known_better_by_then(spark, checkpoint, tmp_path):
    for policy in (ps.LoadAware(), ps.Density()):
        place = f"{checkpoint}-{policy.RULE}"
        first, second = tmp_path / f"first-{policy.RULE}", tmp_path / f"second-{policy.RULE}"
        finish_batches(start(spark, place, first, policy=policy), 4)
        last = uncommit(place)
        finish_batches(start(spark, place, second, policy=policy), 2)

        before, again = by_batch(rows_of(first))[last], by_batch(rows_of(second))[last]
        assert 0 < len(before) < ROWS
        assert again == before


def test_counts_that_died_with_the_driver_are_made_again_without_executing(spark, checkpoint, tmp_path):
    finish_batches(start(spark, checkpoint, tmp_path / "out"), 4)
    ledger = Ledger(Path(checkpoint) / "penstock" / "operator" / "ledger")
    whole = list(ledger.batches())
    forget_last(ledger, 2)

    def never(row):
        raise AssertionError("a recount executes nothing")

    worker = start(spark, checkpoint, tmp_path / "more", never, on_error="skip")
    worker.stop()

    mended = {batch.batch_id: batch for batch in Ledger(ledger.path).batches()}
    for batch in whole:
        assert (mended[batch.batch_id].offered, mended[batch.batch_id].kept) == (batch.offered, batch.kept)
    assert [b.batch_id for b in mended.values() if b.recounted] == [b.batch_id for b in whole[-2:]]


def test_an_operator_that_raises_fails_the_query_with_the_reason(spark, checkpoint, tmp_path):
    def broken(row):
        raise KeyError("no such user")

    run = start(spark, checkpoint, tmp_path / "out", broken)

    with pytest.raises(OperatorError, match=r"raised KeyError: 'no such user'; .*on_error='skip'"):
        run.await_termination(60)


def test_errors_that_are_skipped_and_rows_without_result_are_counted(spark, checkpoint, tmp_path):
    def moody(row):
        if row["value"] % 10 == 0:
            raise ValueError("not this one")
        return None if row["value"] % 10 == 1 else {"value": row["value"], "double": 0}

    run = start(spark, checkpoint, tmp_path / "out", moody, on_error="skip", latency=60)
    (batch, *_) = finish_batches(run, 1)

    assert (batch.offered, batch.kept, batch.shed, batch.failed) == (ROWS, ROWS, 0, ROWS // 10)
    written = [value for value in rows_of(tmp_path / "out") if value < ROWS]
    assert len(written) == ROWS - 2 * ROWS // 10
    assert next(Ledger(Path(run.ledger_path)).batches()).failed == ROWS // 10


def test_an_operator_that_returns_nothing_at_all_still_counts_and_learns(spark, checkpoint, tmp_path):
    def silent(row):
        time.sleep(0.001)

    run = start(spark, checkpoint, tmp_path / "out", silent, latency=60)
    batches = finish_batches(run, 2)

    assert all(batch.kept == ROWS for batch in batches[:2])
    assert run.operator.workshop.pair.executed >= 2 * ROWS


@pytest.mark.parametrize(
    ("result", "message"),
    [
        ({"value": 1}, "a row without double"),
        ({"value": "x", "double": 1}, "does not fit returns="),
        (7, "does not fit"),
    ],
)
def test_a_result_that_does_not_fit_is_named(spark, checkpoint, tmp_path, result, message):
    run = start(spark, checkpoint, tmp_path / "out", lambda row: result)

    with pytest.raises(OperatorError, match=message):
        run.await_termination(60)


def test_null_keys_are_one_key_and_null_times_do_no_harm(spark, checkpoint, tmp_path):
    stream = numbers(spark, rows_per_batch=ROWS)
    nulled = stream.withColumn("timestamp", F.when(F.col("value") % 3 > 0, F.col("timestamp")))
    nulled = nulled.withColumn("kind", F.when(F.col("value") % 4 > 0, F.lit("some")))

    run = start(spark, checkpoint, tmp_path / "out", stream=nulled, key=["kind", "parity"], arrival="timestamp")
    batches = finish_batches(run, 3)

    assert all(batch.offered == batch.kept + batch.shed == ROWS for batch in batches)
    assert run.operator.workshop.pair.counts(np.array([NULL_ITEM], dtype=np.uint64))[0] > 0


def test_a_batchwise_operator_gets_slices_with_their_weights(spark, checkpoint, tmp_path):
    def doubled(batch):
        assert batch.num_rows <= 16
        assert "weight" in batch.schema.names
        time.sleep(0.0005 * batch.num_rows)
        values = batch.column("value").to_pylist()
        if values[0] == 0:
            return None
        return pa.table({"value": values, "double": [2 * value for value in values], "more": values})

    run = start(spark, checkpoint, tmp_path / "out", doubled, batchwise=True, chunk_tuples=16)
    batches = finish_batches(run, 3)

    written = by_batch(rows_of(tmp_path / "out"))
    assert len(written[0]) == ROWS - 16  # the first slice of one partition was answered with nothing
    assert all(len(written.get(batch.batch_id, ())) == batch.kept for batch in batches[1:3])
    assert run.operator.workshop.pair.executed > 0


def test_a_batchwise_operator_must_keep_rows_or_weights(spark, checkpoint, tmp_path):
    run = start(
        spark,
        checkpoint,
        tmp_path / "out",
        lambda batch: batch.slice(0, 1).select(["value"]),
        batchwise=True,
        returns="value BIGINT",
    )

    with pytest.raises(OperatorError, match="rows can only be weighed if there are as many"):
        run.await_termination(60)


def test_weights_multiply_with_those_that_rows_bring_along(spark, checkpoint, tmp_path):
    stream = numbers(spark, rows_per_batch=ROWS).withColumn("weight", F.lit(2.5))

    finish_batches(start(spark, checkpoint, tmp_path / "out", stream=stream, latency=60), 1)

    assert {weight for value, weight in rows_of(tmp_path / "out").items() if value < ROWS} == {2.5}


def test_a_damaged_plan_is_named_before_the_batch_is_replayed(spark, checkpoint, tmp_path):
    finish_batches(start(spark, checkpoint, tmp_path / "out"), 3)
    last = uncommit(checkpoint)
    entry = Path(checkpoint) / "penstock" / "operator" / "plans" / f"{last}.json"
    entry.write_text(json.dumps(json.loads(entry.read_text()) | {"keep": 0.9}))

    with pytest.raises(PlanLogError, match="checksum is off"):
        start(spark, checkpoint, tmp_path / "more")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"key": ()}, "costs are learned by key"),
        ({"on_error": "ignore"}, "on_error must be 'fail' or 'skip'"),
        ({"chunk_tuples": 0}, "chunk_tuples must be a whole number of at least 1"),
        ({"latency": 0}, "latency must be finite and above 0, got 0"),
        ({"name": "a/b"}, "it names a folder"),
        ({"policy": FullKnowledge()}, "true_cost="),
    ],
)
def test_options_without_meaning_are_refused(options, message):
    with pytest.raises(InvalidInputError, match=message):
        ps.operator(slow, **{"key": "k", "returns": "v INT", "latency": 1, "checkpoint": "/tmp/none", **options})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"key": "user"}, "key names the column 'user'"),
        ({"arrival": "value"}, "of type bigint; latency is measured from a timestamp"),
        ({"returns": "weight DOUBLE"}, "other than the weight"),
        ({"returns": "what is this?"}, "is no list of columns"),
    ],
)
def test_a_stream_that_does_not_fit_is_refused_before_it_starts(spark, checkpoint, options, message):
    worker = ps.operator(
        slow, **{"key": "value", "returns": "v INT", "latency": 1, "checkpoint": checkpoint, **options}
    )

    with pytest.raises(InvalidInputError, match=message):
        numbers(spark).transform(worker)
