"""Rows that are stored while they are shed: all of them, once, and enough to make a burst exact without its source."""

import shutil
import time
from collections import Counter
from pathlib import Path

import pytest
from pyspark.sql import functions as F

import penstock as ps
from penstock.demo.bursty import bursty_stream
from penstock.model.arrivals import Arrivals
from penstock.model.errors import NotSupportedError, SpillError
from penstock.model.load import Cost
from penstock.spark.judge.sampling import row_hash, threshold_of
from penstock.spark.run import control
from tests.spark.streams import always_shedding, finish_batches, known_costs, numbers, stage_of
from tests.spark.test_backfill import a_second, all_rows, answers
from tests.spark.test_recovery import ledger_of, uncommit

pytestmark = pytest.mark.spark

ROWS = 5_000


def shedding(checkpoint, spill, **options):
    return always_shedding(checkpoint, ps.Uniform(keep=0.3), spill=spill, **options)


def run_some(shedder, events, batches=2):
    return finish_batches(shedder.start(events.transform(shedder).writeStream.format("noop")), batches)


def ids(frame):
    return sorted(row.value for row in frame.select("value").collect())


def dropped(spark, checkpoint, batches):
    """What the plan drops, worked out without the query."""
    everything = spark.range(len(batches) * ROWS).withColumnRenamed("id", "value")
    return everything.where(row_hash([F.col("value")], stage_of(checkpoint)) >= threshold_of(0.3))


def parts(path):
    return sorted(file.relative_to(path).parts[1:] for file in Path(path).rglob("part-*.parquet"))


def test_what_is_stored_is_just_what_the_plan_drops_with_batch_arc_and_reason(spark, checkpoint, tmp_path):
    shedder = shedding(checkpoint, str(tmp_path / "spill"))
    batches = run_some(shedder, numbers(spark), 3)
    stored = shedder.spilled()
    assert stored.columns == ["timestamp", "value", "shed", "sampled", "weight", "batch", "arc", "reason"]
    assert ids(stored) == ids(dropped(spark, checkpoint, batches))
    by_batch = {row.batch: row for row in stored.groupBy("batch", "arc", "reason").count().collect()}
    assert {b.batch_id: (b.shed, b.reason, "shed") for b in batches} == {
        number: (row["count"], row.reason, row.arc) for number, row in by_batch.items()
    }
    assert stored.where("batch != value DIV 5000 OR NOT shed OR NOT sampled OR weight != 1").isEmpty()

    shutil.rmtree(Path(checkpoint, "offsets"))
    with pytest.raises(SpillError, match=r"has the \d+ rows that it shed .* but not the \d+ it kept.*rows=\"all\""):
        shedder.backfill(lambda rows: rows.groupBy().sum("weight"), window=F.lit(0), into=str(tmp_path / "into"))


def test_a_replay_in_other_partitions_neither_doubles_nor_loses_rows(spark, checkpoint, tmp_path):
    spill = tmp_path / "spill"
    first = run_some(shedding(checkpoint, str(spill)), numbers(spark), 3)
    last = uncommit(checkpoint)
    shedder = shedding(checkpoint, str(spill))
    run_some(shedder, numbers(spark, partitions=3), 1)
    replayed = [names for names in parts(spill) if names[0] == f"batch={last}"]
    assert len({run for _, run, _ in replayed}) == 2
    assert len(replayed) == 2 + 3
    batches = list(ledger_of(checkpoint).batches())
    assert len(batches) >= len(first)
    assert ids(shedder.spilled()) == ids(dropped(spark, checkpoint, batches))

    # Either of the two is enough, and half of one is not taken for a whole.
    (query,) = spill.glob("query=*")
    two, three = sorted((query / f"batch={last}").iterdir(), key=lambda run: len(list(run.glob("part-*"))))
    next(two.glob("part-*")).unlink()
    assert ids(shedder.spilled()) == ids(dropped(spark, checkpoint, batches))
    next(three.glob("part-*")).unlink()
    with pytest.raises(SpillError, match=f"has not all rows of batches {last} that the ledger has"):
        shedder.spilled()


def test_behind_coalesce_no_row_is_lost_or_doubled(spark, checkpoint, tmp_path):
    """One task computes all partitions under one number, and some of them have as many rows, and shed as many."""
    shedder = shedding(checkpoint, ps.Spill(str(tmp_path / "spill"), rows="all"))
    events = numbers(spark, rows_per_batch=40, partitions=8)
    batches = finish_batches(shedder.start(events.transform(shedder).coalesce(1).writeStream.format("noop")), 2)
    # Perhaps another batch was under way when the query was stopped.
    stored = Counter(batch for batch, *_ in parts(tmp_path / "spill"))
    assert all(stored[f"batch={batch.batch_id}"] == 8 for batch in batches)
    assert ids(shedder.spilled()) == list(range(40 * len(batches)))
    assert shedder.spilled().where("shed").count() == sum(batch.shed for batch in batches)


@pytest.mark.slow
def test_a_burst_whose_source_is_gone_is_made_exact_from_the_spill_alone(spark, checkpoint, tmp_path):
    arrivals = Arrivals.of((1.5, 400), (1.5, 20_000), (2.5, 400))
    events = bursty_stream(spark, arrivals, epoch=time.time() + 1)
    # A millisecond a row, it says here: the burst is too much, the rest is not.
    known_costs(checkpoint, cost=Cost(fixed_seconds=0.0, kept_seconds=1e-3))
    spill = ps.Spill(str(tmp_path / "spill"), rows="all")
    options = {"latency_seconds": 5, "checkpoint": checkpoint, "row_id": "id", "arrival": "arrived", "spill": spill}
    shedder = ps.shed(**options)
    out = str(tmp_path / "out")
    kept = events.withWatermark("arrived", "1 second").transform(shedder)
    writer = answers(kept).writeStream.format("parquet").option("path", out)
    run = shedder.start(writer.trigger(processingTime="1 second"))
    for _ in run.watch():
        if run.status.offered == arrivals.total_tuples:
            break
    run.stop()
    assert run.status.shed > 0
    truth = {(row.start, row.campaign): row for row in answers(all_rows(spark, events, arrivals, tmp_path)).collect()}

    # Neither a stream, nor Spark's offsets, nor the plans.
    for name in ("offsets", "sources", "penstock/shed/plans"):
        shutil.rmtree(Path(checkpoint, name), ignore_errors=True)
    alone = ps.shed(**options)
    into = tmp_path / "backfill"
    done = alone.backfill(answers, window=a_second(), into=str(into))
    assert (done.shed, done.from_spill) == (run.status.shed, done.batches)
    assert not (into / "rows").exists()
    everything = alone.spilled()
    assert everything.count() == arrivals.total_tuples
    assert everything.where("shed").count() == run.status.shed
    sampled = {
        row.start for row in everything.where("sampled").select(a_second().start.alias("start")).distinct().collect()
    }
    exact = {(row.start, row.campaign): row for row in done.answers.collect()}
    assert {start for start, _ in exact} == sampled
    assert len(sampled) >= 2
    assert {key for key in truth if key[0] in sampled} == set(exact)
    for key, row in exact.items():
        assert row.clicks == truth[key].clicks
        assert row.revenue == pytest.approx(truth[key].revenue)
    for row in done.correct(spark.read.parquet(out), on=["start"]).collect():
        assert row.clicks == truth[row.start, row.campaign].clicks

    again = alone.backfill(answers, window=a_second(), into=str(into))
    assert {(row.start, row.campaign): row for row in again.answers.collect()} == exact
    assert (again.batches, again.rows, again.shed) == (done.batches, done.rows, done.shed)


def test_a_query_with_state_may_get_a_spill_later(spark, checkpoint, tmp_path):
    def run_it(spill):
        shedder = shedding(checkpoint, spill)
        counted = numbers(spark).transform(shedder).groupBy(F.col("value") % 3).agg(F.sum("weight"))
        return shedder, finish_batches(shedder.start(counted.writeStream.format("noop").outputMode("update")), 1)

    _, before = run_it(None)
    shedder, after = run_it(str(tmp_path / "spill"))
    assert {row.batch: row["count"] for row in shedder.spilled().groupBy("batch").count().collect()} == {
        batch.batch_id: batch.shed for batch in after
    }
    assert not {batch.batch_id for batch in before} & {batch.batch_id for batch in after}


def test_batches_that_go_to_a_function_are_spilled_too(spark, checkpoint, tmp_path):
    target = str(tmp_path / "out")
    shedder = shedding(checkpoint, ps.Spill(str(tmp_path / "spill"), rows="all"))

    def write(rows, batch_id):
        rows.coalesce(1).count()  # in one partition, then in two: two executions, each by itself whole
        rows.write.mode("append").parquet(target)

    batches = finish_batches(shedder.start_each_batch(numbers(spark), write), 2)
    stored = shedder.spilled()
    assert ids(stored.where("shed")) == ids(dropped(spark, checkpoint, batches))
    assert ids(stored.where("NOT shed")) == ids(spark.read.parquet(target))
    assert stored.count() == len(batches) * ROWS


def test_without_a_spill_no_row_passes_through_python(spark, checkpoint, tmp_path, capsys):
    plans = []
    for name, spill in (("none", None), ("some", str(tmp_path / "spill"))):
        numbers(spark).transform(shedding(f"{checkpoint}-{name}", spill)).explain()
        plans.append(capsys.readouterr().out)
    assert ["ArrowEvalPython" in plan for plan in plans] == [False, True]


def test_columns_of_every_kind_come_back_as_they_were(spark, checkpoint, tmp_path):
    kinds = """value, timestamp, cast(value AS DECIMAL(20, 3)) AS `a decimal`, cast(value AS STRING) AS text,
        cast(cast(value AS STRING) AS BINARY) AS bytes, date_add(DATE'2024-01-01', cast(value % 99 AS INT)) AS day,
        cast(timestamp AS TIMESTAMP_NTZ) AS local, if(value % 2 = 0, NULL, value % 7 = 0) AS flag,
        cast(value AS FLOAT) AS short, array(value, NULL) AS list, map(cast(value AS STRING), value) AS by_name,
        named_struct('inner', named_struct('deep.er', value), 'n', cast(value AS INT)) AS nested"""
    events = numbers(spark).selectExpr(*_split(kinds)).withWatermark("timestamp", "1 second")
    shedder = shedding(checkpoint, str(tmp_path / "spill"))
    run_some(shedder, events, 1)
    stored = shedder.spilled()
    again = stored.selectExpr("value", "timestamp").selectExpr(*_split(kinds))
    own = stored.select(*(F.col(f"`{name}`") for name in again.columns))
    assert own.schema.simpleString() == again.schema.simpleString()
    # Maps cannot be compared, their entries can.
    same = [frame.withColumn("by_name", F.map_entries("by_name")) for frame in (own, again)]
    assert same[0].exceptAll(same[1]).isEmpty()
    assert own.count() > ROWS / 2


def _split(text):
    """Cut at commas outside parentheses."""
    parts, depth = [""], 0
    for letter in text:
        depth += (letter == "(") - (letter == ")")
        if letter == "," and not depth:
            parts.append("")
        else:
            parts[-1] += letter
    return parts


def test_a_spill_that_cannot_be_written_stops_the_query_and_nothing_is_lost(spark, checkpoint, tmp_path):
    spill = tmp_path / "spill"
    run_some(shedding(checkpoint, str(spill)), numbers(spark), 1)
    committed = list(ledger_of(checkpoint).batches())
    (query,) = spill.glob("query=*")
    query.rename(tmp_path / "aside")
    query.write_text("in the way")
    with pytest.raises(SpillError, match=r"cannot be spilled to .*so the batch is not committed and nothing is lost"):
        run_some(shedding(checkpoint, str(spill)), numbers(spark), 2)
    assert list(ledger_of(checkpoint).batches()) == committed

    query.unlink()
    (tmp_path / "aside").rename(query)
    shedder = shedding(checkpoint, str(spill))
    run_some(shedder, numbers(spark), 2)
    assert ids(shedder.spilled()) == ids(dropped(spark, checkpoint, list(ledger_of(checkpoint).batches())))


def test_old_batches_leave_the_spill_and_that_is_counted(spark, checkpoint, tmp_path, monkeypatch):
    monkeypatch.setattr(control, "PRUNE_EVERY_BATCHES", 1)
    shedder = shedding(checkpoint, ps.Spill(str(tmp_path / "spill"), rows="all", keep_batches=2))
    batches = run_some(shedder, numbers(spark, rows_per_batch=100), 5)
    kept = {row.batch for row in shedder.spilled().select("batch").distinct().collect()}
    assert kept == {batch.batch_id for batch in batches[-2:]}
    shutil.rmtree(Path(checkpoint, "offsets"))
    # All rows are of one window, which lacks those of the batches that are gone.
    done = shedder.backfill(
        lambda rows: rows.groupBy("value").count(), window=F.lit(0).alias("all"), into=str(tmp_path / "into")
    )
    assert done.missing == tuple(batch.batch_id for batch in batches[:-2])
    assert [(gap.first, gap.last) for gap in done.gaps] == [(None, 0)]
    assert "had it and was pruned; keep more there" in done.gaps[0].reason
    assert done.answers.isEmpty()
    assert [row.window for row in done.approximate.collect()] == [0]
    shutil.rmtree(next((tmp_path / "spill").glob("query=*")))
    with pytest.raises(SpillError, match=r"batch 0 cannot be read again"):
        shedder.backfill(lambda rows: rows.groupBy().sum("weight"), window=F.lit(0), into=str(tmp_path / "into"))


def test_what_cannot_be_spilled_is_refused_before_anything_starts(spark, checkpoint, tmp_path):
    file = tmp_path / "file"
    file.touch()
    for path in (file, file / "below"):
        with pytest.raises(ps.InvalidInputError, match=f"cannot be a folder, for {file} is a file"):
            shedding(checkpoint, str(path))
    with pytest.raises(ps.InvalidInputError, match=r"spill is empty, got ''"):
        shedding(checkpoint, "")
    with pytest.raises(NotSupportedError, match=r"gs://bucket/spill is not in a store"):
        shedding(checkpoint, "gs://bucket/spill")
    with pytest.raises(ps.InvalidInputError, match="keep_batches must be a whole number of at least 1, got 0"):
        ps.Spill("/tmp/spill", keep_batches=0)
    for column, told in (
        ("reason", "has a column 'reason', where stored rows say what became of them"),
        ("Batch", "has a column 'Batch'"),
        ("VALUE", "has two columns"),
    ):
        events = numbers(spark).select("*", F.lit(1).alias(column))
        with pytest.raises(ps.InvalidInputError, match=told):
            shedding(checkpoint, str(tmp_path / "spill"), row_id="timestamp")(events)
    for kind in ("INTERVAL '1' MONTH", "parse_json('1')", "array(INTERVAL '1' DAY)", "NULL"):
        events = numbers(spark).selectExpr("*", f"{kind} AS odd")
        with pytest.raises(ps.InvalidInputError, match=r"the column 'odd' holds .*; cast or drop it"):
            shedding(checkpoint, str(tmp_path / "spill"))(events)
    away = ps.StorePath("s3a://penstock/spill", endpoint_url="http://127.0.0.1:9", key="a", secret="b")
    shedder = shedding(checkpoint, away)
    with pytest.raises(SpillError, match=r"cannot be written .*so the query was not started"):
        run_some(shedder, numbers(spark), 1)
    plain = shedding(checkpoint, None)
    with pytest.raises(ps.InvalidInputError, match=r"has no spill; name the folder it was run with"):
        plain.spilled()
    with pytest.raises(ps.InvalidInputError, match="no batch was committed"):
        shedding(checkpoint, str(tmp_path / "spill")).spilled()
