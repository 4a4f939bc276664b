"""Sums of weights hold the truth on average, through any number of stages and jobs.

Each check takes 200 draws of the same rows by the judge of a running query, and asks whether their mean lies within
three standard errors of the number of rows. It fails where two stages share their draws, and a test shows that.
"""

import time
from functools import reduce
from itertools import pairwise

import numpy as np
import pytest
from pyspark.sql import functions as F

import penstock as ps
from penstock.control.governor import Decision
from penstock.model.network_plan import Drop, NetworkPlan
from penstock.spark.answers.outputs import Windows, answer_outputs
from penstock.spark.compile import stages
from penstock.spark.compile.ground import Ground
from penstock.spark.compile.layout import layout_of
from penstock.spark.compile.query import compile_network
from penstock.spark.compile.stages import PLAN
from penstock.spark.judge.marking import Marking
from penstock.spark.judge.sampling import KeyTable, key_hash, row_hash, threshold_of
from penstock.spark.plan.column import PlanColumns
from penstock.spark.plan.log import PlanLog
from tests.spark.streams import finish_batches, known_costs, numbers

pytestmark = pytest.mark.spark

SEEDS, ROWS = 200, 500


@pytest.fixture(autouse=True, scope="module")
def interpreted(spark):
    """Every seed is a literal, for which Spark would compile code of its own: that takes longer than to do without."""
    settings = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}
    before = {name: spark.conf.get(name) for name in settings}
    for name, value in settings.items():
        spark.conf.set(name, value)
    yield
    for name, value in before.items():
        spark.conf.set(name, value)


def off_by(sums, truth):
    """How many standard errors the mean of the sums is off."""
    assert len(sums) == SEEDS
    return abs(np.mean(sums) - truth) / (np.std(sums, ddof=1) / SEEDS**0.5)


def numbered(spark):
    """Rows of three groups, one of them without a key."""
    group = F.expr("CASE id % 3 WHEN 0 THEN 'a' WHEN 1 THEN 'b' END")
    return spark.range(0, ROWS, numPartitions=1).withColumn("group", group).localCheckpoint()


def sums_of(spark, survive, *, by="'all'"):
    """Sum the weights of what survives under each seed, by group."""
    rows = numbered(spark)
    found = {}
    for first in range(0, SEEDS, 25):
        kept = (survive(rows, seed).withColumn("seed", F.lit(seed)) for seed in range(first, first + 25))
        together = reduce(lambda one, other: one.union(other), kept)
        for row in together.groupBy("seed", F.expr(by).alias("by")).agg(F.sum("weight").alias("sum")).collect():
            found.setdefault(row.by, {})[row.seed] = row.sum
    return {group: [sums.get(seed, 0.0) for seed in range(SEEDS)] for group, sums in found.items()}


def one_stage(rows, seed, *, salt, keep, rates=None):
    """Shed by the judge of a query of this salt."""
    key = () if rates is None else ("group",)
    marking = Marking(row_id=("id",), key=key, arrival=None, weight="weight", seed=seed, salt=salt)
    table = None
    if rates is not None:
        laid_out = KeyTable.build(rates)
        table = tuple(F.array(*map(F.lit, each.tolist())) for each in (laid_out.hashes, laid_out.thresholds))
    return marking.survivors(marking.mark(rows, threshold=F.lit(threshold_of(keep)), table=table))


def two_stages(rows, seed, *, salts):
    first = one_stage(rows, seed, salt=salts[0], keep=0.5)
    return one_stage(first, seed, salt=salts[1], keep=0.4)


def test_one_stage_is_unbiased(spark):
    sums = sums_of(spark, lambda rows, seed: one_stage(rows, seed, salt="first", keep=0.3))
    assert off_by(sums["all"], ROWS) < 3


def test_two_stages_in_a_row_are_unbiased_with_the_same_seed(spark):
    sums = sums_of(spark, lambda rows, seed: two_stages(rows, seed, salts=("first", "second")))
    assert off_by(sums["all"], ROWS) < 3


def test_two_stages_that_share_their_draws_fail_this_check_by_far(spark):
    """What passes the first passes the second too, unless its rate is lower: weights multiply for nothing."""
    sums = sums_of(spark, lambda rows, seed: two_stages(rows, seed, salts=("same", "same")))
    assert off_by(sums["all"], ROWS) > 30
    assert np.mean(sums["all"]) == pytest.approx(2 * ROWS, rel=0.1)


def test_groups_with_rates_of_their_own_and_rows_without_a_key_are_unbiased(spark):
    def survive(rows, seed):
        first = one_stage(rows, seed, salt="first", keep=0.3, rates={"a": 0.7, "b": 0.1})
        return one_stage(first, seed, salt="second", keep=0.5)

    sums = sums_of(spark, survive, by="`group`")
    for number, group in enumerate(("a", "b", None)):
        assert off_by(sums[group], len(range(number, ROWS, 3))) < 3


def test_within_a_stage_a_lower_rate_keeps_a_part_of_what_a_higher_one_keeps(spark):
    rows = numbered(spark)
    kept = [
        {row.id for row in one_stage(rows, 1, salt="first", keep=keep).collect()} for keep in (0.1, 0.3, 0.30001, 0.9)
    ]
    assert all(fewer <= more for fewer, more in pairwise(kept))
    assert len(kept[0]) < len(kept[1]) < len(kept[3])


# What a network or the outputs behind a shedder make of 200 copies of the rows, which draw apart by their ids: as good
# as 200 seeds, and compiled once.


def copies(spark, rows=100):
    at = F.timestamp_seconds(F.lit(1_700_000_000)).alias("at")
    copied = spark.range(0, SEEDS * rows, numPartitions=1)
    return copied.selectExpr("id", f"id % {SEEDS} AS copy", f"id DIV {SEEDS} AS number").select("*", at)


def by_copy(weights):
    """Sum up (copy, weight) by copy."""
    return np.bincount([copy for copy, _ in weights], weights=[weight for _, weight in weights], minlength=SEEDS)


def declared(spark):
    """A stream of such rows, for networks are made of streams."""
    return numbers(spark).selectExpr("value AS id", "value AS copy", "value AS number", "timestamp AS at")


def run_network(network, frames, keep):
    """Run a network over rows that are there, with these drops; give the weights that come out, by output and copy."""
    layout = layout_of(network)
    plan = NetworkPlan(drops={arc: Drop(rate) for arc, rate in keep.items()}, reason="test")
    assert set(keep) <= set(layout.arcs)
    thresholds = F.array(*(F.lit(threshold_of(plan.keep(arc))) for arc in layout.arcs))
    ranges = F.expr(f"array_repeat(CAST(array() AS array<struct<low: double, high: double>>), {len(layout.arcs)})")
    drops = F.struct(thresholds.alias("thresholds"), ranges.alias("ranges"))
    answers = compile_network(network, Ground(frames=frames, with_plan=lambda frame: frame.withColumn(PLAN, drops)))
    copy = F.get_json_object("row", "$.copy").cast("int").alias("copy")
    rows = answers.select("output", copy, "weight").collect()
    return {
        output: by_copy([(row.copy, row.weight) for row in rows if row.output == output])
        for output in {row.output for row in rows}
    }


def salted_network(folder):
    """A network with the same draws wherever the test runs."""
    PlanLog(folder / "penstock" / "network").pin_sampling({"salt": "network"})
    return ps.Network(checkpoint=str(folder), latency_seconds=5)


def a_path(spark, folder):
    network = salted_network(folder)
    source = network.source("rows", declared(spark), row_id="id", event_time="at")
    source.filter("some", F.col("number") >= 0).output("out", columns=["copy"])
    other = source.filter("others", F.col("number") < 0)
    other.output("nothing", columns=["copy"])
    drops = {("", "rows"): 0.5, ("rows", "some"): 0.5, ("some", "out"): 0.5}
    layout = layout_of(network)
    return network, {arc: keep for arc, keep in drops.items() if arc in layout.arcs}


def test_drops_in_a_row_on_one_path_of_a_network_are_unbiased(spark, tmp_path):
    network, drops = a_path(spark, tmp_path)
    assert len(drops) >= 2
    sums = run_network(network, {"rows": copies(spark)}, drops)["out"]
    assert off_by(sums, 100) < 3


def test_arcs_that_share_their_draws_fail_this_check_by_far(spark, tmp_path, monkeypatch):
    monkeypatch.setattr(stages, "row_hash", lambda row_id, _: row_hash(row_id, 0))
    network, drops = a_path(spark, tmp_path)
    sums = run_network(network, {"rows": copies(spark)}, drops)["out"]
    assert off_by(sums, 100) > 30


def test_pairs_of_a_join_are_unbiased_with_drops_above_and_below_it(spark, tmp_path):
    network = salted_network(tmp_path)
    left = network.source("left", declared(spark), row_id="id", event_time="at")
    right = network.source("right", declared(spark), row_id="id", event_time="at")
    pairs = left.join("pairs", right, on=["copy", "number"], within_seconds=1)
    pairs.filter("some", F.col("number") >= 0).output("out", columns=["copy"])
    pairs.output("all", columns=["copy"])
    below = [arc for arc in layout_of(network).arcs if arc == ("pairs", "some")]
    drops = {("", "left"): 0.6, ("", "right"): 0.6, **dict.fromkeys(below, 0.5)}
    # Rows of both sides have the same ids.
    sums = run_network(network, {"left": copies(spark), "right": copies(spark)}, drops)
    assert below
    assert off_by(sums["out"], 100) < 3
    assert off_by(sums["all"], 100) < 3


def test_outputs_behind_a_shedder_are_unbiased_though_their_samples_are_nested(spark):
    marking = Marking(row_id=("id",), key=(), arrival=None, weight="weight", seed=0, salt="first")
    rates = {"much": 0.6, "little": 0.2}
    table = KeyTable.build(rates)
    plan = PlanColumns(
        threshold=F.lit(threshold_of(0.6)),
        table=tuple(F.array(*map(F.lit, each.tolist())) for each in (table.hashes, table.thresholds)),
    )
    assert key_hash("much") in table.hashes.tolist()
    kept = marking.survivors(marking.mark(copies(spark), threshold=plan.threshold, table=None))
    outputs = [ps.WindowAggregate(name=name, group="copy") for name in rates]
    answered = answer_outputs(
        kept, plan=plan, marking=marking, outputs=outputs, windows=Windows(time="at", length="1 hour"), metrics="drops"
    )
    rows = answered.select("output", F.col("group").cast("int").alias("copy"), "answer.value").collect()
    for name in rates:
        assert off_by(by_copy([(row.copy, row.value) for row in rows if row.output == name]), 100) < 3


def test_two_jobs_in_a_row_through_parquet_are_unbiased_with_default_settings(spark, tmp_path):
    def run(name, events, batches):
        checkpoint = tmp_path / name / "checkpoint"
        known_costs(str(checkpoint))
        shedder = ps.shed(latency_seconds=5, checkpoint=str(checkpoint))
        for number in range(5):
            half = Decision(
                batch_id=number, decided_at=time.time(), plan=ps.Plan(keep=0.5, reason="test"), expected_tuples=None
            )
            PlanLog(checkpoint / "penstock" / "shed").decide(number, lambda half=half: half)
        out = str(tmp_path / name / "out")
        writer = events.transform(shedder).writeStream.format("parquet").option("path", out)
        return out, finish_batches(shedder.start(writer), batches)

    first, batches = run("first", numbers(spark), 2)
    arrived = spark.read.parquet(first)
    events = spark.readStream.schema(arrived.schema).parquet(first)
    second, (batch, *_) = run("second", events, 1)

    rows = sum(each.offered for each in batches)
    assert batch.offered == arrived.count() == sum(each.kept for each in batches)
    # Six standard errors of one draw: half of the rows, and each that is left counts for four.
    assert abs(batch.kept - batch.offered / 2) < 6 * (batch.offered / 4) ** 0.5
    weighed, survivors = spark.read.parquet(second).agg(F.sum("weight"), F.count("*")).first()
    assert survivors == batch.kept
    assert abs(weighed - rows) < 6 * (rows * 3) ** 0.5
