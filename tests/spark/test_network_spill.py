"""What a network drops is stored with its arc, and enough of it to make all answers exact afterwards."""

import json
import shutil
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import penstock as ps
from penstock.cli import main
from penstock.control.governor import Decision
from penstock.model.errors import PlanLogError, SpillError
from penstock.model.network_plan import Drop, NetworkPlan
from penstock.model.plan import Plan
from penstock.spark.compile.layout import layout_of, planner_of
from penstock.spark.run.ledger import Ledger
from tests.spark.test_network import events

pytestmark = [pytest.mark.spark, pytest.mark.slow]

ROWS = 600


def plan_drops(network, drops, batch_ids):
    """Plan batches ahead: these get the drops, the others fit."""
    assert set(drops) <= set(layout_of(network).arcs)
    for number in batch_ids:
        plan = NetworkPlan(drops=drops, reason=f"burst in batch {number}", row=1)
        decision = Decision(
            batch_id=number,
            decided_at=time.time(),
            plan=Plan(keep=0.5, reason=plan.reason, network=plan),
            expected_tuples=None,
        )
        planner_of(network).log.decide(number, lambda decision=decision: decision)


def run_some(network, path, count):
    writer = network.answers().writeStream.format("parquet").option("path", str(path))
    run = network.start(writer.trigger(processingTime="200 milliseconds"))
    watched = run.watch()
    for _ in range(count):
        next(watched)
    run.stop()
    return run


def branching(checkpoint, frame, **options):
    """Windows, rows and pairs, all behind one filter."""
    network = ps.Network(checkpoint=checkpoint, latency_seconds=600, probe_tuples=10**9, **options)
    source = network.source("events", frame, row_id="id", event_time="at", watermark="0 seconds")
    shared = source.filter("shared", F.col("kind") > 1)
    shared.aggregate("summed", window_seconds=4, slide_seconds=2, by="kind", of=F.col("value")).output("sums")
    doubled = shared.map("doubled", twice=F.col("value") * 2)
    doubled.output("rows", columns=["id", "twice"])
    left, right = doubled.filter("left", F.col("value") % 10 == 3), shared.filter("right", F.col("kind") < 5)
    pairs = left.join("pairs", right, on="value", within_seconds=1.0)
    pairs.output("pairs out", columns=["id", "twice", "right_id"])
    pairs.filter("forward", F.col("id") < F.col("right_id")).output("forward out", columns=["id", "right_id"])
    return network


TOUCHED = 1
DROPS = {
    ("", "events"): Drop(0.8),
    ("shared", "summed"): Drop(0.5),
    ("shared", "doubled"): Drop(0.6),
    ("pairs", "forward"): Drop(0.5),
}


def arc_ledger(run):
    """Rows dropped by batch and arc, where there were any."""
    rows = run.network.arc_ledger().collect()
    return {(row.batch_id, arc): counts.shed for row in rows for arc, counts in row.arcs.items() if counts.shed}


def by_arc(spilled):
    return {(row.batch, row.arc): row["count"] for row in spilled.groupBy("batch", "arc").count().collect()}


@pytest.fixture(scope="module")
def burst(spark, tmp_path_factory):
    """Drops in batch 1, all rows spilled; Spark's offsets and the plans are gone."""
    folder = tmp_path_factory.mktemp("burst")
    spill = ps.Spill(str(folder / "spill"), rows="all")
    network = branching(str(folder / "checkpoint"), events(spark, rows_per_batch=ROWS), spill=spill)
    plan_drops(network, DROPS, [TOUCHED])
    run = run_some(network, folder / "out", 4)
    for name in ("offsets", "commits", "penstock/network/plans"):
        shutil.rmtree(folder / "checkpoint" / name)
    return network, run, spark.read.parquet(str(folder / "out"))


def test_every_drop_is_stored_once_with_its_arc_and_the_row_as_it_was_there(burst):
    network, run, _ = burst
    stored = network.spilled().cache()
    own = ["shed", "sampled", "weight", "batch", "arc", "reason", "source"]
    columns = ["id", "at", "kind", "value", "twice"]
    assert stored.columns == [*columns, *(f"right_{name}" for name in columns), *own]
    drops = stored.where("shed")
    assert by_arc(drops) == arc_ledger(run)
    assert {batch for batch, _ in arc_ledger(run)} == {TOUCHED}
    assert {row.reason for row in drops.collect()} == {"burst in batch 1"}
    assert drops.where("NOT sampled OR source IS NOT NULL OR batch != greatest(id, right_id) DIV 600").isEmpty()
    # Weighted by the drops above; columns that other branches made are not there.
    told = drops.groupBy("arc").agg(F.collect_set(F.round("weight", 6)).alias("w"), F.count("twice").alias("twice"))
    right, left = 1.25, round(1.25 / 0.6, 6)
    assert {row.arc: (sorted(row.w), row.twice > 0) for row in told.collect()} == {
        "-> events": ([1.0], False),
        "shared -> summed": ([right], False),
        "shared -> doubled": ([right], False),
        # With a partner of batch 0 on the left, on the right, or none.
        "pairs -> forward": ([right, left, round(1.25 * 1.25 / 0.6, 6)], True),
    }
    came = stored.where("NOT shed")
    assert sorted(row.id for row in came.collect()) == list(range(ROWS * len(run.batches)))
    assert came.where("arc IS NOT NULL OR source != 'events' OR twice IS NOT NULL OR batch != id DIV 600").isEmpty()


def test_windows_rows_and_pairs_become_exact_from_the_spill_alone(spark, burst, tmp_path):
    network, run, approximate = burst
    done = network.backfill(into=str(tmp_path / "into"))
    # Batches 0 and 2 share a pane, or pairs, with the one that was touched.
    assert (done.batches, done.from_spill, done.rows) == (3, 3, 3 * ROWS)
    assert done.shed == sum(arc_ledger(run).values())
    truth = Truth(spark, len(run.batches))
    corrected = done.correct(approximate).collect()
    before, after = given(approximate.collect(), truth.ids), given(corrected, truth.ids)
    assert set(after) == {"rows", "pairs out", "forward out"}
    for output, expected in truth.rows().items():
        assert after[output] == expected
        assert before[output] != expected

    panes = {
        (int(row.start.timestamp()), json.loads(row.key)["kind"]): (row.rows, row.weight, row.total)
        for row in corrected
        if row.start is not None and row.end.timestamp() <= truth.end_seconds
    }
    starts = {start for start, _ in panes}
    assert 10 in starts
    assert panes == {key: sums for key, sums in truth.panes().items() if key[0] in starts}
    assert not approximate.where("start = timestamp_seconds(10) AND weight > rows").isEmpty()

    assert not (tmp_path / "into" / "rows").exists()


def answers_of(into):
    """What a backfill has left, to be compared with another one."""
    session = SparkSession.getActiveSession()
    return [sorted(map(str, session.read.parquet(str(into / name)).collect())) for name in ("exact", "delivered")]


class Truth:
    """What all rows of some batches give, worked out without a network."""

    def __init__(self, spark, batches):
        self.ids = ROWS * batches
        self.end_seconds = 10 + batches
        found = spark.range(self.ids).selectExpr("id", "id % 7 AS kind", "pmod(xxhash64(id), 100) AS value").collect()
        self.shared = sorted((row for row in found if row.kind > 1), key=lambda row: row.id)

    def rows(self):
        left = [row for row in self.shared if row.value % 10 == 3]
        right = [row for row in self.shared if row.kind < 5]
        pairs = sorted(
            (one.id, other.id, 1.0)
            for one in left
            for other in right
            if one.value == other.value and abs(one.id // ROWS - other.id // ROWS) <= 1
        )
        return {
            "rows": [(row.id, -1, 1.0) for row in self.shared],
            "pairs out": pairs,
            "forward out": [(one, other, weight) for one, other, weight in pairs if one < other],
        }

    def panes(self):
        found = {}
        for row in self.shared:
            key = (10 + row.id // ROWS // 2 * 2, row.kind)
            rows, weight, total = found.get(key, (0, 0.0, 0.0))
            found[key] = (rows + 1, weight + 1, total + row.value)
        return found


def given(answers, ids):
    """Ids, of pairs both, and weights that outputs gave, of the rows below a number."""
    found = {}
    for row in (row for row in answers if row.start is None):
        fields = json.loads(row.row)
        one, other = fields["id"], fields.get("right_id", -1)
        if max(one, other) < ids:
            found.setdefault(row.output, []).append((one, other, row.weight))
    return {output: sorted(rows) for output, rows in found.items()}


def united(checkpoint, spark, **options):
    """Two sources that do not come alike, taken together."""
    network = ps.Network(checkpoint=checkpoint, latency_seconds=600, probe_tuples=10**9, **options)
    one = network.source("one", events(spark, rows_per_batch=700), row_id="id", event_time="at")
    other = network.source("other", events(spark, rows_per_batch=350).drop("value"), row_id="id", event_time="at")
    both = one.filter("ones", F.col("kind") == 1).union("both", other)
    both.output("rows", columns=["id", "value"])
    both.aggregate("counted", window_seconds=2, by="kind").output("counts")
    return network


def test_two_sources_are_read_again_once_and_what_is_gone_is_named(spark, checkpoint, tmp_path, monkeypatch, capsys):
    network = united(checkpoint, spark, spill=str(tmp_path / "spill"))
    with pytest.raises(ps.InvalidInputError, match=r"no batch was committed on .* there is nothing to backfill"):
        network.backfill(into=str(tmp_path / "into"))
    with pytest.raises(ps.InvalidInputError, match=r"no batch was committed on .* nothing was spilled"):
        network.spilled()
    plan_drops(network, {("", "other"): Drop(0.5), ("both", "rows"): Drop(0.4)}, (0, 1))
    run = run_some(network, tmp_path / "out", 2)
    assert by_arc(network.spilled()) == arc_ledger(run)

    done = network.backfill(into=str(tmp_path / "into"))
    assert (done.batches, done.rows, done.from_spill) == (2, 2 * (700 + 350), 0)
    ones = [number for number in range(2 * 700) if number % 7 == 1]
    approximate = spark.read.parquet(str(tmp_path / "out"))
    corrected = done.correct(approximate).collect()
    found = [json.loads(row.row) for row in corrected if row.start is None]
    # The query may have done a batch more before it was stopped.
    assert sorted(row["id"] for row in found if "value" in row and row["id"] < 2 * 700) == ones
    assert sorted(row["id"] for row in found if "value" not in row)[: 2 * 350] == list(range(2 * 350))
    assert approximate.where("start IS NULL").count() < len(found)
    counts = {}
    for row in (row for row in corrected if row.start is not None):
        counts[json.loads(row.key)["kind"]] = counts.get(json.loads(row.key)["kind"], 0) + row.weight
    assert counts == {kind: (len(ones) if kind == 1 else 0) + 2 * 50 for kind in range(7)}

    first = answers_of(tmp_path / "into")
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "into" / "rows").rglob("*.parquet")}
    shutil.rmtree(Path(checkpoint, "offsets"))
    monkeypatch.setitem(sys.modules, "burst_job", SimpleNamespace(build=lambda _: network))
    assert main(["backfill", "burst_job:build", "--into", str(tmp_path / "into")]) == 0
    told = f"2 batches (0 from the spill, 2 from the source): 2,100 rows, of which {done.shed:,} had been shed"
    assert told in capsys.readouterr().out
    assert answers_of(tmp_path / "into") == first
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "into" / "rows").rglob("*.parquet")} == before
    with pytest.raises(SpillError, match=r"Of its 1050 rows the spill .* has 0 rows as they came and \d+ drops"):
        network.backfill(into=str(tmp_path / "elsewhere"))
    bare = united(checkpoint, spark)
    with pytest.raises(PlanLogError, match=r"batch 0 cannot be read again: .*Network\(spill=Spill\("):
        bare.backfill(into=str(tmp_path / "elsewhere"))
    with pytest.raises(ps.InvalidInputError, match=r"this network has no spill; name the folder"):
        bare.spilled()
    shutil.rmtree(Path(checkpoint, "penstock/network/plans"))
    with pytest.raises(PlanLogError, match=r"the plans of batches 0, 1 are gone, so nobody can tell"):
        bare.backfill(into=str(tmp_path / "elsewhere"))


def test_a_batch_that_is_gone_stops_no_other_and_its_panes_and_rows_stay_as_they_are(spark, checkpoint, tmp_path):
    network = ps.Network(
        checkpoint=checkpoint,
        latency_seconds=600,
        probe_tuples=10**9,
        spill=ps.Spill(str(tmp_path / "spill"), rows="all"),
    )
    few = events(spark, rows_per_batch=100)
    source = network.source("events", few, row_id="id", event_time="at", watermark="0 seconds")
    ones = source.filter("ones", F.col("kind") < 5)
    ones.output("rows", columns=["id"])
    ones.aggregate("counted", window_seconds=2).output("counts")
    plan_drops(network, {("", "events"): Drop(0.5)}, (1, 5))
    run_some(network, tmp_path / "out", 7)
    shutil.rmtree(Path(checkpoint, "offsets"))
    shutil.rmtree(next((tmp_path / "spill").glob("query=*/batch=1")))
    approximate = spark.read.parquet(str(tmp_path / "out"))

    done = network.backfill(into=str(tmp_path / "into"))
    assert done.missing == (1,)
    (gap,) = done.gaps
    assert [gap.first.timestamp(), gap.last.timestamp()] == [10, 12]
    assert {row.start.timestamp() for row in done.answers.where("start IS NOT NULL").collect()} == {14}
    truth = [number for number in range(700) if number % 7 < 5]

    def told(answers):
        rows = [row.asDict() for row in answers.collect()]
        ids = {json.loads(row["row"])["id"] for row in rows if row["start"] is None}
        panes = {row["start"].timestamp(): row["weight"] for row in rows if row["start"] is not None}
        return {at: {each for each in ids if each // 100 == at} for at in (0, 1, 5)}, panes

    (first_rows, first_panes), (rows, panes) = told(approximate), told(done.correct(approximate))
    expected = {at: {number for number in truth if number // 100 == at} for at in (0, 1, 5)}
    assert first_rows[5] < rows[5] == expected[5]
    assert rows[1] == first_rows[1] < expected[1]
    assert rows[0] == expected[0]
    assert panes[14] == sum(number // 100 in (4, 5) for number in truth)
    assert {start: panes[start] for start in (10, 12)} == {start: first_panes[start] for start in (10, 12)}

    done = network.backfill(into=str(tmp_path / "into"), since="1970-01-01 00:00:14Z", until="1970-01-01 00:00:16Z")
    assert (done.gaps, done.batches, done.approximate.count()) == ((), 2, 0)


def test_what_cannot_be_stored_is_refused_before_anything_starts(spark, checkpoint, tmp_path, capsys):
    def network(spill, frame, **made):
        built = ps.Network(checkpoint=checkpoint, spill=spill)
        source = built.source("events", frame, row_id="id", event_time="at")
        (source.map("made", **made) if made else source).output("rows")
        return built

    spill = str(tmp_path / "spill")
    for name in ("source", "Weight", "batch"):
        with pytest.raises(ps.InvalidInputError, match=f"has a column '{name}', where stored rows say what became"):
            network(spill, events(spark).withColumn(name, F.lit(1))).answers()
        with pytest.raises(ps.InvalidInputError, match=f"has a column '{name}', where stored rows say what became"):
            network(None, events(spark), **{name: F.lit(1)}).backfill(into=spill)
    with pytest.raises(ps.InvalidInputError, match=r"the column 'odd' holds .*; cast or drop it"):
        network(spill, events(spark), odd=F.expr("INTERVAL '1' MONTH")).answers()
    with pytest.raises(ps.InvalidInputError, match="spill is empty, got ''"):
        network("", events(spark))
    refused = network(str(tmp_path / "file"), events(spark))
    (tmp_path / "file").touch()
    with pytest.raises(SpillError, match=r"cannot be written .*so the query was not started"):
        refused.start(refused.answers().writeStream.format("noop"))
    kept = network(None, events(spark))
    batch = ps.Batch(batch_id=0, offered=9, kept=9, shed=0, keep=1.0, reason="it fits")
    Ledger(planner_of(kept).log.path / "ledger").append(batch)
    with pytest.raises(ps.InvalidInputError, match=r"nothing was shed on .*: there is nothing to backfill"):
        kept.backfill(into=str(tmp_path / "into"))
    plans = []
    for chosen in (None, spill):
        network(chosen, events(spark)).answers().explain()
        plans.append(capsys.readouterr().out)
    assert ["ArrowEvalPython" in plan for plan in plans] == [False, True]
