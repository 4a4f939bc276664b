"""A batch that was planned and not committed keeps the same rows, whatever the query is started with the next time."""

import json
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyspark.sql import functions as F

import penstock as ps
from penstock.model.errors import PlanLogError
from penstock.policy.rows.load_aware import Learning, StrawMan
from penstock.spark.plan.log import PlanLog
from penstock.spark.plan.work_planner import WorkPlanner
from penstock.spark.run.ledger import ArcLedger, Ledger
from tests.spark.streams import always_shedding, finish_batches, forget_from, numbers
from tests.spark.test_network import ROWS as EVENTS
from tests.spark.test_network import events, overloaded, run_batches
from tests.spark.test_operator import ROWS as CALLS
from tests.spark.test_operator import by_batch, committed_files, rows_of, slow
from tests.spark.test_operator import start as start_operator

pytestmark = pytest.mark.spark

ROWS = 5_000


def log_of(checkpoint, name):
    return PlanLog(Path(checkpoint) / "penstock" / name)


def rewind(checkpoint, name, batch_id):
    """Leave the checkpoint as if the driver had been killed just before the commit of a batch."""
    own = Path(checkpoint, "penstock", name)
    first_gone = {
        Path(checkpoint, "commits"): batch_id,
        Path(checkpoint, "offsets"): batch_id + 1,
        own / "plans": batch_id + 1,
        own / "counts": batch_id,
    }
    for folder, first in first_gone.items():
        for file in folder.glob("*"):
            number = file.name.removeprefix(".").removesuffix(".crc").removesuffix(".json")
            if number.isdigit() and int(number) >= first:
                file.unlink()
    forget_from(Ledger(own / "ledger"), batch_id)
    forget_from(ArcLedger(own / "arcs"), batch_id)


def keyed(spark):
    """Numbers with a key of a few large groups and many small ones, and two columns that spread otherwise."""
    return numbers(spark, rows_per_batch=ROWS).selectExpr(
        "value",
        "CASE WHEN value % 10 < 4 THEN 'a' WHEN value % 10 < 7 THEN 'b' ELSE concat('s', value % 200) END AS kind",
        "IF(value % 10 < 4, value % 100, 1) AS fare",
        "IF(value % 10 < 4, 1, value % 100) AS tip",
    )


def survivors_in_query(spark, checkpoint, out, batches, *, policy, latency_seconds=5, **options):
    shedder = shedder_of(checkpoint, policy, latency_seconds, **options)
    kept = keyed(spark).transform(shedder)
    run = shedder.start(kept.writeStream.format("parquet").option("path", str(out)))
    finish_batches(run, batches)
    found = {}
    for file in committed_files(out):
        rows = pq.read_table(file).to_pydict()
        for value, weight in zip(rows["value"], rows["weight"], strict=True):
            found.setdefault(value // ROWS, {})[value] = weight
    return found


def survivors_each_batch(spark, checkpoint, out, batches, *, policy, latency_seconds=5, **options):
    shedder = shedder_of(checkpoint, policy, latency_seconds, **options)
    found = {}

    def write(rows, batch_id):
        found[batch_id] = {row.value: row.weight for row in rows.select("value", "weight").collect()}

    finish_batches(shedder.start_each_batch(keyed(spark), write), batches)
    return found


def shedder_of(checkpoint, policy, latency_seconds, **options):
    shedder = always_shedding(checkpoint, policy, key="kind", **options)
    planner = shedder._planner
    shedder._planner = replace(planner, governor=replace(planner.governor, latency_seconds=latency_seconds))
    return shedder


IN_QUERY, EACH_BATCH = survivors_in_query, survivors_each_batch
TWO_PASSES = ps.ConceptDriven(keep=0.3, passes=2)


@pytest.mark.parametrize(
    ("run", "change"),
    [
        pytest.param(
            IN_QUERY,
            (
                {"policy": ps.Uniform(keep=0.4)},
                {"policy": ps.Priority(keep={"a": 1.0, "s7": 0.0}), "latency_seconds": 50},
            ),
            id="uniform, then priority",
        ),
        pytest.param(
            IN_QUERY,
            (
                {"policy": ps.Priority(keep={"a": 0.9, "s7": 0.0})},
                {"policy": ps.Priority(keep={"a": 0.1, "b": 0.5}), "latency_seconds": 1},
            ),
            id="priority, then other rates",
        ),
        pytest.param(
            IN_QUERY,
            ({"policy": ps.Priority(keep={"a": 0.9})}, {"policy": ps.ConceptDriven(keep=0.6)}),
            id="priority, then a concept",
        ),
        pytest.param(
            EACH_BATCH, ({"policy": ps.Uniform(keep=0.4)}, {"policy": TWO_PASSES}), id="uniform, then two passes"
        ),
        pytest.param(
            EACH_BATCH,
            ({"policy": TWO_PASSES}, {"policy": ps.Uniform(keep=0.8), "latency_seconds": 50}),
            id="two passes, then uniform",
        ),
        pytest.param(
            EACH_BATCH,
            (
                {"policy": TWO_PASSES},
                {"policy": ps.ConceptDriven(keep=0.02, passes=2, rule="proportional", wins="coverage")},
            ),
            id="two passes, then another rule",
        ),
        pytest.param(
            EACH_BATCH,
            (
                {"policy": ps.ConceptDriven(keep=0.3, passes=2, rule="neyman"), "value": "fare"},
                {"policy": ps.ConceptDriven(keep=0.3, passes=2, rule="neyman"), "value": "tip"},
            ),
            id="two passes by a value, then by another",
        ),
    ],
)
def test_a_replayed_batch_keeps_the_same_rows_and_weights_although_the_policy_has_changed(
    spark, checkpoint, tmp_path, run, change
):
    then, now = change
    before = run(spark, checkpoint, tmp_path / "then", 2, **then)[1]
    rewind(checkpoint, "shed", 1)
    after = run(spark, checkpoint, tmp_path / "now", 2, **now)

    assert 0 < len(before) < ROWS
    assert after[1] == before
    # The batch after it is shed by what is in force now: of the rows that both saw, others survive.
    assert {value - ROWS: weight for value, weight in after[2].items()} != before
    assert shares_by_kind(after[2]) != pytest.approx(shares_by_kind(before), abs=0.02)


def shares_by_kind(kept):
    """Share of the rows of a batch that survives, of the two large groups and of the small ones."""
    of = [[value for value in kept if low <= value % 10 < high] for low, high in ((0, 4), (4, 7), (7, 10))]
    return [len(values) / ROWS for values in of]


@pytest.mark.parametrize("now", [ps.Uniform(keep=0.9), ps.ConceptDriven(keep=0.9, passes=2, rule="proportional")])
def test_counts_that_were_lost_are_made_again_by_the_policy_of_the_plan(spark, checkpoint, tmp_path, now):
    survivors_each_batch(spark, checkpoint, tmp_path / "then", 3, policy=TWO_PASSES)
    own = Path(checkpoint, "penstock", "shed")
    whole = {batch.batch_id: batch for batch in Ledger(own / "ledger").batches()}
    for file in [*own.glob("ledger/*"), *own.glob("counts/*")]:
        file.unlink()
    survivors_each_batch(spark, checkpoint, tmp_path / "now", 1, policy=now)

    again = {batch.batch_id: batch for batch in Ledger(own / "ledger").batches() if batch.recounted}
    assert again.keys() == whole.keys()
    assert {n: (b.offered, b.kept) for n, b in again.items()} == {n: (b.offered, b.kept) for n, b in whole.items()}
    assert all(batch.kept < 0.4 * batch.offered for batch in again.values())


def test_a_batch_planned_for_two_passes_is_not_replayed_in_one_and_the_error_names_the_cure(
    spark, checkpoint, tmp_path
):
    survivors_each_batch(spark, checkpoint, tmp_path / "then", 2, policy=TWO_PASSES)
    rewind(checkpoint, "shed", 1)
    shedder = shedder_of(checkpoint, ps.Uniform(keep=0.9), 5)
    run = shedder.start(keyed(spark).transform(shedder).writeStream.format("noop"))
    with pytest.raises(PlanLogError, match=r"batch 1 was planned .*passes=2.*start_each_batch"):
        run.await_termination(60)
    assert log_of(checkpoint, "shed").batch_ids() == [0, 1]
    # As it says: started that way the batch is replayed, and then any other way will do.
    assert len(survivors_each_batch(spark, checkpoint, tmp_path / "now", 1, policy=ps.Uniform(keep=0.9))[1]) < ROWS / 2


MAXIMUM = ps.MaximumLatency(seconds=3.0)


@pytest.mark.parametrize(
    ("then", "now"),
    [
        ({"policy": ps.LoadAware()}, {"policy": ps.Density(min_keep=0.3), "latency": MAXIMUM}),
        ({"policy": ps.Density(min_keep=0.1)}, {"policy": StrawMan(mean_seconds=0.002), "latency": 9.0}),
        (
            {"policy": ps.Density(learning=Learning(eps=0.01, eager=True)), "utility": "worth"},
            {"policy": ps.LoadAware(learning=Learning(eps=0.1)), "utility": "worth"},
        ),
    ],
    ids=["load-aware, then density", "density, then straw man", "sketches of another size"],
)
def test_an_operator_replays_a_batch_by_the_rule_of_its_plan(spark, checkpoint, tmp_path, then, now):
    def start(out, **options):
        stream = numbers(spark, rows_per_batch=CALLS).withColumn("worth", F.col("value") % 3 + 1)
        return start_operator(spark, checkpoint, tmp_path / out, slow, stream=stream, **options)

    batch_id = 3
    finish_batches(start("then", **then), batch_id + 1)
    before = by_batch(rows_of(tmp_path / "then"))[batch_id]
    rewind(checkpoint, "operator", batch_id)
    finish_batches(start("now", **now), 3)
    after = by_batch(rows_of(tmp_path / "now"))

    assert 0 < len(before) < CALLS
    assert after[batch_id] == before
    kinds = [log_of(checkpoint, "operator").decision(batch_id + n).plan.work.policy["kind"] for n in range(2)]
    assert kinds == [type(then["policy"]).__name__, type(now["policy"]).__name__]


def test_an_operator_counts_again_what_was_lost_by_the_rule_of_the_plan(spark, checkpoint, tmp_path):
    finish_batches(start_operator(spark, checkpoint, tmp_path / "then", policy=ps.Density(min_keep=0.1)), 4)
    ledger = Path(checkpoint, "penstock", "operator", "ledger")
    whole = {batch.batch_id: batch for batch in Ledger(ledger).batches()}
    for file in ledger.glob("*"):
        file.unlink()
    start_operator(spark, checkpoint, tmp_path / "now", policy=StrawMan(mean_seconds=1e-4), latency=60.0).stop()

    again = {batch.batch_id: batch for batch in Ledger(ledger).batches() if batch.batch_id in whole}
    assert {n: (b.offered, b.kept) for n, b in again.items()} == {n: (b.offered, b.kept) for n, b in whole.items()}
    assert any(batch.shed for batch in again.values())


def test_an_operator_refuses_to_replay_by_a_column_that_it_no_longer_has(spark, checkpoint, tmp_path):
    stream = numbers(spark, rows_per_batch=CALLS).withColumn("worth", F.col("value") % 3 + 1)
    density = {"policy": ps.Density(), "stream": stream}
    finish_batches(start_operator(spark, checkpoint, tmp_path / "then", **density, utility="worth"), 4)
    rewind(checkpoint, "operator", 3)
    run = start_operator(spark, checkpoint, tmp_path / "now", **density)
    with pytest.raises(PlanLogError, match=r"batch 3 was decided by Density with utility='worth'.*go back"):
        run.await_termination(60)


def dying_planner(planner, *, batch_id, after):
    """A planner that fails at the entry of a batch, before or after; its class is local: workers get it by value."""

    class DyingPlanner(WorkPlanner):
        @property
        def log(self):
            return DyingLog(self.checkpoint / "penstock" / self.name)

    class DyingLog(PlanLog):
        def _enter(self, decision):
            if decision.batch_id == batch_id and not after:
                raise RuntimeError("the worker was lost before the entry")
            entered = super()._enter(decision)
            if decision.batch_id == batch_id:
                raise RuntimeError("the worker was lost after the entry")
            return entered

    return DyingPlanner(checkpoint=planner.checkpoint, name=planner.name, target=planner.target, rule=planner.rule)


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_a_worker_lost_at_the_entry_of_an_operator_leaves_none_or_a_whole_one(spark, checkpoint, tmp_path, after):
    stream = numbers(spark, rows_per_batch=CALLS).withColumn("parity", (F.col("value") % 2).cast("string"))
    worker = ps.operator(slow, key="parity", returns="value BIGINT, double BIGINT", latency=0.4, checkpoint=checkpoint)
    worker._planner = dying_planner(worker._planner, batch_id=2, after=after)
    run = worker.start(stream.transform(worker).writeStream.format("noop"))
    with pytest.raises(Exception, match="the worker was lost"):
        run.await_termination(60)
    run.stop()
    log = log_of(checkpoint, "operator")
    assert committed(checkpoint) == {0, 1}
    assert log.batch_ids() == [0, 1, *([2] if after else [])]

    finish_batches(start_operator(spark, checkpoint, tmp_path / "out", policy=ps.Density()), 2)
    assert committed(checkpoint) >= {0, 1, 2, 3}
    assert committed(checkpoint) <= set(log.batch_ids())
    kinds = [log.decision(batch_id).plan.work.policy["kind"] for batch_id in range(4)]
    assert kinds == ["LoadAware", "LoadAware", "LoadAware" if after else "Density", "Density"]
    assert {file.name for file in log.path.iterdir()} >= {"plans", "guidance.json"}
    assert not {"work", "pairs", "learned.json"} & {file.name for file in log.path.iterdir()}


def committed(checkpoint):
    return {int(file.name) for file in Path(checkpoint, "commits").glob("[0-9]*")}


def a_network(spark, checkpoint, shedding, latency_seconds):
    network = ps.Network(checkpoint=checkpoint, latency_seconds=latency_seconds, shedding=shedding)
    source = network.source("events", events(spark), row_id="id")
    graph = ps.ValueGraph.of((0, 75, 0.2), (75, 100, 1.0))
    hashed = source.map("hashed", digest=F.sha2(F.col("id").cast("string"), 256), seconds_per_tuple=1e-4)
    valued = hashed.filter("valued", F.col("kind") > 1, seconds_per_tuple=1e-6)
    valued.output("rows", columns=["id"], value={"value": graph})
    return network


@pytest.mark.parametrize(("then", "now"), [("semantic", "uniform"), ("random", "semantic")])
def test_a_network_replays_a_batch_by_its_drops_although_it_sheds_otherwise_by_now(
    spark, checkpoint, tmp_path, then, now
):
    def rows(out):
        found = {}
        for file in committed_files(out):
            table = pq.read_table(file).to_pydict()
            for row, weight in zip(table["row"], table["weight"], strict=True):
                number = json.loads(row)["id"]
                found.setdefault(number // EVENTS, {})[number] = weight
        return found

    network = a_network(spark, checkpoint, then, latency_seconds=5)
    overloaded(network, seconds_per_tuple=6.0 / EVENTS)
    run_batches(network, tmp_path / "then", 1)
    before = rows(tmp_path / "then")[0]
    rewind(checkpoint, "network", 0)
    changed = a_network(spark, checkpoint, now, latency_seconds=4)
    overloaded(changed, seconds_per_tuple=6.0 / EVENTS)
    run_batches(changed, tmp_path / "now", 2)

    first, second = (log_of(checkpoint, "network").decision(number).plan.network for number in (0, 1))
    assert first.sheds
    assert any(drop.ranges for drop in first.drops.values()) == (then == "semantic")
    assert 0 < len(before) < EVENTS
    assert rows(tmp_path / "now")[0] == before
    assert second.drops != first.drops
