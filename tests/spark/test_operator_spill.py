"""Rows that an operator had no time for: stored, read back once, and executed after all."""

import shutil
import time
import types
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import functions as F

import penstock as ps
from penstock.cli import main
from penstock.control.governor import Decision
from penstock.model.errors import OperatorError, SpillError
from penstock.model.plan import Plan
from penstock.policy.rows.load_aware import StrawMan
from penstock.spark.run import control
from penstock.spark.run.ledger import Ledger
from penstock.spark.spill import writer as spillwriter
from penstock.spark.spill.folder import SpillFolder
from penstock.spark.store.folder import folder_at
from penstock.spark.work import task as worktask
from penstock.spark.work.task import ITEM
from tests.spark.streams import finish_batches, numbers
from tests.spark.test_recovery import uncommit

pytestmark = [pytest.mark.spark, pytest.mark.slow]

ROWS = 200
RETURNS = "value BIGINT, at TIMESTAMP, seen STRING"


def slow(row):
    """Four milliseconds for even values: too much for a target of 0.4 s."""
    if row["value"] % 2 == 0:
        time.sleep(0.004)
    # What the function sees of a row is the same in the stream and in a backfill.
    return {"value": row["value"], "at": row["timestamp"], "seen": ",".join(row)}


def slow_slices(batch):
    time.sleep(0.002 * batch.num_rows)
    seen = [",".join(batch.schema.names)] * batch.num_rows
    return pa.table({"value": batch.column("value"), "at": batch.column("timestamp"), "seen": seen})


def operating(checkpoint, spill, function=slow, **options):
    options = {"key": "parity", "returns": RETURNS, "latency": 0.4, "checkpoint": checkpoint, **options}
    return ps.operator(function, spill=spill, **options)


def events(spark):
    return numbers(spark, rows_per_batch=ROWS).withColumn("parity", (F.col("value") % 2).cast("string"))


def run_some(spark, operator, out, batches):
    results = events(spark).transform(operator)
    return finish_batches(operator.start(results.writeStream.format("parquet").option("path", str(out))), batches)


def two_seconds(time="timestamp"):
    return F.window(time, "2 seconds")


def answers(results):
    """The rows of each window, in which there are two batches of a second each."""
    counted = results.groupBy(two_seconds("at").start.alias("start"))
    return counted.agg(F.sum("weight").alias("rows"), F.sum(F.col("weight") * F.col("value")).alias("total"))


def truth(batches):
    """What the windows of these batches hold, worked out without the query."""
    found = {}
    for value in range(ROWS * len(batches)):
        rows, total = found.get(value // (2 * ROWS), (0, 0))
        found[value // (2 * ROWS)] = rows + 1, total + value
    return found


def told(frame):
    return {int(row.start.timestamp()) // 2: (row.rows, row.total) for row in frame.collect()}


def shed_windows_of(batches):
    return {batch.batch_id // 2 for batch in batches if batch.shed}


def test_windows_are_made_exact_from_the_spill_alone(spark, checkpoint, tmp_path, monkeypatch, capsys):
    spill = ps.Spill(str(tmp_path / "spill"), rows="all")
    out = tmp_path / "out"
    batches = run_some(spark, operating(checkpoint, spill), out, 5)
    assert sum(batch.shed for batch in batches) > ROWS / 2
    for name in ("offsets", "sources", "penstock/operator/plans"):
        shutil.rmtree(Path(checkpoint, name), ignore_errors=True)
    alone = operating(checkpoint, spill)

    stored = alone.spilled()
    names = ["timestamp", "value", "parity", "shed", "sampled", "weight", "batch", "arc", "reason"]
    assert stored.columns == names
    by_batch = stored.groupBy("batch", "arc", "reason").agg(F.count("*"), F.count_if("shed"), F.count_if("sampled"))
    counted = {row[0]: tuple(row[1:]) for row in by_batch.collect()}
    assert {number: row[:4] for number, row in counted.items()} == {
        batch.batch_id: ("operator", batch.reason, ROWS, batch.shed) for batch in batches
    }
    # Rows that stand for others are sampled too, and where nothing was shed none does.
    assert all((row[4] > row[3]) if row[3] else row[4] == 0 for row in counted.values())
    results = spark.read.parquet(str(out)).select("value")
    kept = stored.where("NOT shed").select("value")
    assert kept.exceptAll(results).isEmpty()
    assert results.exceptAll(kept).isEmpty()

    done = alone.backfill(answers, window=two_seconds(), into=str(tmp_path / "into"))
    assert done.from_spill == done.batches
    assert done.shed == sum(batch.shed for batch in batches)
    assert done.batches > sum(batch.shed > 0 for batch in batches)  # the first shed nothing, but shares a window
    assert not (tmp_path / "into" / "rows").exists()
    exact = told(done.answers)
    assert set(exact) == shed_windows_of(batches)
    corrected = told(done.correct(answers(spark.read.parquet(str(out))), on=["start"]))
    assert corrected == truth(batches)
    assert exact.items() <= corrected.items()

    # A second time, from the command line, changes nothing.
    job = "def build(spark):\n    from tests.spark import test_operator_spill as t\n    import penstock as ps\n"
    job += f"    spill = ps.Spill({spill.path!r}, rows='all')\n"
    job += f"    return t.operating({checkpoint!r}, spill), t.answers, t.two_seconds()\n"
    (tmp_path / "operator_job.py").write_text(job)
    monkeypatch.chdir(tmp_path)
    assert main(["backfill", "operator_job:build", "--into", str(tmp_path / "into")]) == 0
    assert f"({done.batches} from the spill, 0 from the source)" in capsys.readouterr().out
    assert told(spark.read.parquet(str(tmp_path / "into" / "exact"))) == exact

    # The function fails in a backfill as it does in a query: with its own words.
    def broken(row):
        raise KeyError("no such user")

    with pytest.raises(OperatorError, match=r"^the operator raised KeyError: 'no such user'; mend it"):
        operating(checkpoint, spill, broken).backfill(answers, window=two_seconds(), into=str(tmp_path / "broken"))


def test_a_replay_is_read_once_and_the_source_gives_the_rest(spark, checkpoint, tmp_path):
    spill = str(tmp_path / "spill")
    options = {"policy": ps.Density(min_keep=0.1), "function": slow_slices, "batchwise": True, "chunk_tuples": 16}
    run_some(spark, operating(checkpoint, spill, **options), tmp_path / "first", 4)
    last = uncommit(checkpoint)
    operator = operating(checkpoint, spill, **options)
    run_some(spark, operator, tmp_path / "second", 1)
    batches = list(Ledger(Path(checkpoint) / "penstock" / "operator" / "ledger").batches())
    assert batches[last].shed > 0
    assert len(list(Path(spill).glob(f"query=*/batch={last}/run=*"))) == 2

    stored = operator.spilled()
    assert stored.where("NOT shed OR NOT sampled OR weight != 1").isEmpty()
    assert {row.batch: row["count"] for row in stored.groupBy("batch").count().collect()} == {
        batch.batch_id: batch.shed for batch in batches if batch.shed
    }
    # What decided then decides again, whatever would decide now.
    operator = operating(checkpoint, spill, **{**options, "policy": StrawMan(mean_seconds=1e-4), "latency": 60.0})
    events(spark).transform(operator)
    done = operator.backfill(answers, window=two_seconds(), into=str(tmp_path / "into"))
    assert done.from_spill == 0
    exact, expected = told(done.answers), truth(batches)
    assert exact == {number: expected[number] for number in shed_windows_of(batches)}
    # Decided again, the same rows are shed.
    again = spark.read.parquet(*map(str, (tmp_path / "into" / "rows").iterdir()))
    assert again.columns == stored.columns
    assert again.where("shed").exceptAll(stored).isEmpty()
    assert again.where("shed").count() == stored.count()
    written = {file: file.stat().st_mtime_ns for file in (tmp_path / "into" / "rows").rglob("*.parquet")}
    twice = operator.backfill(answers, window=two_seconds(), into=str(tmp_path / "into"))
    assert told(twice.answers) == exact
    assert {file: file.stat().st_mtime_ns for file in (tmp_path / "into" / "rows").rglob("*.parquet")} == written

    shutil.rmtree(Path(checkpoint, "offsets"))
    with pytest.raises(SpillError, match=r"has the \d+ rows that it shed \(spilled\(\) reads them\), but not the"):
        operator.backfill(answers, window=two_seconds(), into=str(tmp_path / "anew"))


def test_a_task_that_is_tried_again_leaves_one_copy_and_a_failed_one_none(spark, checkpoint, tmp_path, monkeypatch):
    context = types.SimpleNamespace(stageId=lambda: 3, partitionId=lambda: 1, attempt=0)
    context.taskAttemptId = lambda: context.attempt
    for module in (worktask, spillwriter):
        monkeypatch.setattr(module, "TaskContext", types.SimpleNamespace(get=lambda: context))
        monkeypatch.setattr(module, "current_batch_id", lambda: 7)
    folder_at(Path(checkpoint)).replace("metadata", '{"id": "q"}')
    spill = ps.Spill(str(tmp_path / "spill"), rows="all")
    spill.require_writable()

    calls = []

    def failing_once(row):
        calls.append(row)
        if len(calls) == 20:
            raise ValueError("a worker was lost here")
        return {"value": row["value"]}

    worker = ps.operator(
        failing_once, key="value", returns="value BIGINT", latency=5, checkpoint=checkpoint, spill=spill
    )
    # Half of the rows are tried at random.
    planner = worker._planner
    plan = Plan(keep=0.5, reason="half of them", work=planner.rule.plan())
    planner.log.decide(7, lambda: Decision(batch_id=7, decided_at=0.0, plan=plan))
    task = _task_of(worker, spill)
    values = pa.array(range(60))
    batch = pa.record_batch({"value": values, ITEM: values})

    def attempt():
        context.attempt += 1
        return [each for each in task(iter([batch.slice(0, 30), batch.slice(30)])) if "value" in each.schema.names]

    with pytest.raises(OperatorError, match="a worker was lost here"):
        attempt()
    assert not [file for file in (tmp_path / "spill").rglob("*part-*") if file.is_file()]
    first, second = attempt(), attempt()
    (run,) = SpillFolder(path=tmp_path / "spill" / "query=q").runs(7)
    (file,) = run.paths
    stored = pq.read_table(file).to_pylist()
    shed = {row["value"] for row in stored if row["shed"]}
    executed = {value for each in first[:-1] for value in each.column("value").to_pylist()}
    assert first[:-1] == second[:-1]
    assert [row["value"] for row in stored] == list(range(60))
    assert executed == set(range(60)) - shed
    assert 10 < len(shed) < 50
    assert (run.rows, run.shed) == (60, len(shed))
    assert len(list((tmp_path / "spill").rglob("*.parquet"))) == 2
    assert (stored[0]["batch"], stored[0]["arc"], stored[0]["reason"]) == (7, "operator", "half of them")

    # Whoever has seen enough and stops leaves no half of a file.
    shutil.rmtree(tmp_path / "spill" / "query=q")
    stopped = task(iter([batch, batch]))
    next(stopped)
    stopped.close()
    assert not [file for file in (tmp_path / "spill").rglob("*part-*") if file.is_file()]


def test_what_is_executed_after_all_weighs_one_and_errors_are_skipped_as_configured(spark, checkpoint):
    def odd_only(row):
        if row["value"] % 2 == 0:
            raise ValueError("not this one")
        return {"value": row["value"]}

    options = {"key": "value", "returns": "value BIGINT", "latency": 5, "checkpoint": checkpoint}
    batch = pa.record_batch({"value": range(4), "weight": [1.0, 2.5, 1.0, 1.0]})
    skipping = ps.operator(odd_only, on_error="skip", **options)._marks().task
    (result,) = skipping.execute_all(iter([batch]))
    assert result.to_pydict() == {"value": [1, 3], "weight": [2.5, 1.0]}  # weights that rows bring along stay
    (result,) = skipping.execute_all(iter([batch.select(["value"])]))
    assert result.to_pydict() == {"value": [1, 3], "weight": [1.0, 1.0]}
    with pytest.raises(OperatorError, match="not this one"):
        list(ps.operator(odd_only, **options)._marks().task.execute_all(iter([batch])))


def _task_of(worker, spill):
    from dataclasses import replace

    from pyspark.sql import types as T

    from penstock.spark.spill.writer import Part

    columns = T.StructType([T.StructField("value", T.LongType())])
    part = Part.of(columns, spill=spill, planner=worker._planner, weight="weight")
    return replace(worker._marks().task, execute=True, spill=part)


def test_old_batches_leave_the_spill_of_an_operator(spark, checkpoint, tmp_path, monkeypatch):
    monkeypatch.setattr(control, "PRUNE_EVERY_BATCHES", 1)
    operator = operating(checkpoint, ps.Spill(str(tmp_path / "spill"), rows="all", keep_batches=2), latency=60)
    batches = run_some(spark, operator, tmp_path / "out", 4)
    kept = {row.batch for row in operator.spilled().select("batch").distinct().collect()}
    assert kept == {batch.batch_id for batch in batches[-2:]}


def test_what_an_operator_cannot_spill_or_backfill_is_said_first(spark, checkpoint, tmp_path):
    spill = str(tmp_path / "spill")
    with pytest.raises(ps.InvalidInputError, match="has a column 'reason', where stored rows say what became of them"):
        events(spark).withColumn("reason", F.lit("")).transform(operating(checkpoint, spill))
    odd = events(spark).withColumn("odd", F.expr("INTERVAL '1' MONTH"))
    with pytest.raises(ps.InvalidInputError, match=r"the column 'odd' holds .*; cast or drop it"):
        odd.transform(operating(checkpoint, spill))
    plain = operating(checkpoint, None)
    with pytest.raises(ps.InvalidInputError, match=r"this operator has no spill; .*operator\(\.\.\., spill=\.\.\.\)"):
        plain.spilled()
    with pytest.raises(ps.InvalidInputError, match="nothing was shed yet; apply this operator to the stream"):
        plain.backfill(answers, window=two_seconds(), into=str(tmp_path / "into"))
    events(spark).transform(plain)
    with pytest.raises(ps.InvalidInputError, match="there is nothing to backfill"):
        plain.backfill(answers, window=two_seconds(), into=str(tmp_path / "into"))
    away = operating(checkpoint, spill)
    Path(spill).write_text("in the way")
    with pytest.raises(SpillError, match=r"cannot be written .*so the query was not started"):
        run_some(spark, away, tmp_path / "out", 1)
