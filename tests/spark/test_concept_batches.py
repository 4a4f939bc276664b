"""Keep rates by group in running queries: with the concept of the batches so far, and of the batch itself."""

import pytest
from pyspark.sql import functions as F

import penstock as ps
from tests.spark.streams import always_shedding, finish_batches, numbers

pytestmark = pytest.mark.spark

ROWS = 200_000
# Of ten rows three belong to one large group and two to another; the others are one group each: 100,000 a batch.
KEYS = (
    "CASE WHEN value % 10 < 3 THEN 'large' WHEN value % 10 < 5 THEN 'medium' ELSE 'small' END AS kind",
    "IF(value % 10 < 5, 0, value) AS number",
)


def keyed(spark, rows=ROWS):
    return numbers(spark, rows_per_batch=rows).selectExpr("value", "timestamp", *KEYS)


def wait_for_guidance(run, batches):
    """Let the controller catch up with the batches before, as it does where batches take longer than these."""
    watched = run.watch()
    return [next(watched) for _ in range(batches)]


def test_frequent_groups_get_rates_and_small_ones_are_kept_whole(spark, checkpoint, tmp_path):
    policy = ps.ConceptDriven(keep=0.6, rest_share=0.9)
    shedder = always_shedding(checkpoint, policy, key=["kind", "number"])
    counts = (
        keyed(spark)
        .transform(shedder)
        .withWatermark("timestamp", "0 seconds")
        .groupBy(F.window("timestamp", "1 second"), "kind", "number")
        .agg(ps.count().alias("tuples"), F.count("*").alias("kept"))
    )
    out = str(tmp_path / "out")
    writer = counts.writeStream.format("parquet").option("path", out).trigger(processingTime="3 seconds")
    run = shedder.start(writer)
    wait_for_guidance(run, 4)
    run.stop()

    plans = [shedder._planner.log.decision(batch.batch_id).plan for batch in run.batches]
    assert plans[0].key_keep == {}
    learned = plans[-1]
    large, medium = ps.compound_key("large", "0"), ps.compound_key("medium", "0")
    assert learned.keep_of(large) < learned.keep_of(medium) < 1
    assert learned.keep_of(ps.compound_key("small", "77")) == learned.keep == 1.0
    assert 0.56 < run.batches[-1].kept_share < 0.64
    answered = spark.read.parquet(out).select("window", "kind", "kept", "tuples.*")
    last = answered.agg(F.max("window")).first()[0].start
    small = answered.where((F.col("kind") == "small") & (F.col("window.start") == last))
    # All 100,000 small groups are there, each for itself: their answers are exact, and say so.
    exact = F.count_if(F.expr("reliable AND lower = value AND upper = value"))
    kept, counted, certain, groups = small.agg(F.sum("kept"), F.sum("value"), exact, F.count("*")).first()
    assert (kept, counted, certain, groups) == (100_000,) * 4
    # 60,000 rows at a rate of about 1/6 are counted to one per cent, and the bounds of the group say so.
    large = answered.where((F.col("kind") == "large") & (F.col("window.start") == last)).first()
    assert large.value == pytest.approx(60_000, rel=0.05)
    assert 1_000 < large.upper - large.lower < 4_000


def test_two_passes_know_the_groups_of_the_first_batch_and_lose_none(spark, checkpoint, tmp_path):
    policy = ps.ConceptDriven(keep=0.6, passes=2)
    shedder = always_shedding(checkpoint, policy, key=["kind", "number"])
    out = str(tmp_path / "out")

    def write(rows, batch_id):
        groups = rows.groupBy("kind", "number").agg(F.sum("weight").alias("tuples"), F.count("*").alias("kept"))
        groups.withColumn("batch", F.lit(batch_id)).write.mode("append").parquet(out)

    run = shedder.start_each_batch(keyed(spark), write)
    batches = finish_batches(run, 2)

    assert 0.595 < batches[0].kept_share < 0.605
    groups = spark.read.parquet(out).where("batch = 0")
    assert groups.count() == 100_002
    assert groups.where("kind = 'small' and kept != tuples").count() == 0
    kept = {row.kind: row.kept for row in groups.where("kind != 'small'").collect()}
    # What the small groups leave is shared alike.
    assert kept["large"] == pytest.approx(10_000, rel=0.05)
    assert kept["medium"] == pytest.approx(10_000, rel=0.05)


def test_two_passes_shed_the_same_rows_on_a_replay(spark, checkpoint, tmp_path):
    events = spark.range(20_000).select(
        F.col("id").alias("value"), F.when(F.col("id") % 100 < 95, F.lit(1)).otherwise(F.col("id")).alias("number")
    )
    from penstock.model.plan import ByGroup, Plan
    from penstock.spark.judge.marking import Marking
    from penstock.spark.judge.two_passes import mark_by_concept

    marking = Marking(row_id=("value",), key=("number",), arrival=None, weight="weight", seed=0, salt="test")

    def survivors(rows):
        marked = mark_by_concept(marking, rows, Plan(keep=0.1, reason="test"), ByGroup())
        return {row.value for row in marking.survivors(marked).select("value").collect()}

    first = survivors(events)

    assert survivors(events.repartition(7).orderBy(F.desc("value"))) == first
    assert len({value for value in first if value % 100 >= 95}) == 1_000
    assert 1_900 < len(first) < 2_100


def test_rows_without_a_key_are_a_group_of_their_own(spark):
    from penstock.model.plan import ByGroup, Plan
    from penstock.spark.judge.marking import Marking
    from penstock.spark.judge.two_passes import mark_by_concept

    events = spark.range(10_000).select(
        F.col("id").alias("value"), F.when(F.col("id") % 2 == 0, F.lit("even")).alias("parity")
    )
    marking = Marking(row_id=("value",), key=("parity",), arrival=None, weight="weight", seed=0, salt="test")
    marked = mark_by_concept(marking, events, Plan(keep=0.1, reason="test"), ByGroup())

    kept = {row.parity: row["count"] for row in marking.survivors(marked).groupBy("parity").count().collect()}

    assert kept[None] == pytest.approx(500, rel=0.2)
    assert kept["even"] == pytest.approx(500, rel=0.2)


def test_two_passes_give_more_to_groups_whose_values_spread_more(spark):
    from penstock.model.plan import ByGroup, Plan
    from penstock.spark.judge.marking import Marking
    from penstock.spark.judge.two_passes import count_groups

    # Fares of one route are all alike, of another they vary tenfold; some are missing, or not numbers.
    fares = F.when(F.col("id") % 20 == 0, F.lit(None)).when(F.col("id") % 20 == 1, F.lit(float("nan")))
    events = spark.range(10_000).select(
        F.col("id").alias("value"),
        F.when(F.col("id") < 5_000, "steady").otherwise("wild").alias("route"),
        fares.when(F.col("id") < 5_000, F.lit(10.0)).otherwise(F.col("id") % 10 + 1.0).alias("fare"),
    )
    marking = Marking(
        row_id=("value",), key=("route",), value="fare", arrival=None, weight="weight", seed=0, salt="test"
    )
    kept = {}
    for rule in ("equal", "neyman"):
        by_group = ByGroup(rule=rule, value="fare")
        quotas, _ = count_groups(marking, events, Plan(keep=0.1, reason="test"), by_group)
        kept[rule] = sorted(quotas.tuples.tolist())

    assert kept["equal"] == [500, 500]
    assert kept["neyman"] == [1, 999]


@pytest.mark.parametrize(
    ("policy", "options", "message"),
    [
        (ps.ConceptDriven(rule="neyman"), {"value": "value"}, "count it in the batch itself with passes=2"),
        (ps.ConceptDriven(rule="neyman", passes=2), {}, "give shed\\(value=...\\)"),
        (ps.ConceptDriven(max_tuples=10), {}, "are for windows"),
        (ps.ConceptDriven(relative_error=0.1), {}, "are for windows"),
    ],
)
def test_what_only_windows_can_do_is_refused(checkpoint, policy, options, message):
    with pytest.raises(ps.InvalidInputError, match=message):
        ps.shed(latency_seconds=5, checkpoint=checkpoint, key="value", policy=policy, **options)


def test_the_column_that_neyman_goes_by_must_be_there_and_numeric(spark, checkpoint):
    for value, message in (("fare", "value names the column 'fare', which"), ("timestamp", "known of numbers only")):
        shedder = ps.shed(latency_seconds=5, checkpoint=checkpoint, key="value", value=value)
        with pytest.raises(ps.InvalidInputError, match=message):
            numbers(spark).transform(shedder)


def test_two_passes_need_foreach_batch(spark, checkpoint):
    shedder = always_shedding(checkpoint, ps.ConceptDriven(keep=0.3, passes=2), key="value")

    with pytest.raises(ps.InvalidInputError, match="start_each_batch"):
        numbers(spark).transform(shedder)


def test_a_concept_needs_a_key(spark, checkpoint):
    shedder = always_shedding(checkpoint, ps.ConceptDriven(keep=0.3))

    with pytest.raises(ps.InvalidInputError, match="no key column"):
        numbers(spark).transform(shedder)
