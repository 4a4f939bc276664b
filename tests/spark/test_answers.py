"""Weighted aggregates in Spark: the same answers as the pure formulas, unbiased, and defined at the edges."""

import math

import numpy as np
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import functions as F

import penstock as ps
from penstock.estimate.answer import estimate
from penstock.estimate.moments import Moments
from penstock.model.errors import NotSupportedError, TargetMissedError
from penstock.spark.judge.sampling import WHOLE, row_hash, threshold_of
from penstock.spark.run.handle import own_error

pytestmark = pytest.mark.spark

SCHEMA = "g string, v double, weight double"


@pytest.fixture(scope="module")
def groups():
    """Groups that were shed at different rates, some with gaps, one tuple, or nothing shed."""
    random = np.random.default_rng(5)
    values = {
        "sampled": random.gamma(2, 3, size=900),
        "mixed": random.normal(size=800),
        "whole": random.normal(50, 5, size=30),
        "lone": np.array([7.0]),
        "few": np.array([1.0, 2.0, 3.0]),
        "gaps": np.array([4.0, math.nan, 6.0, math.inf]),
        "none": np.array([math.nan, math.nan]),
        "zero": np.tile([1.0, -1.0], 200),
    }
    weights = {name: np.full(len(v), 4.0) for name, v in values.items()}
    weights["mixed"] = random.choice([1.0, 2.5, 10.0], size=800)
    weights["whole"], weights["gaps"] = np.ones(30), np.ones(4)
    return {name: (values[name], weights[name]) for name in values}


def rows_of(spark, groups):
    rows = [
        (g, float(v), float(w)) for g, (values, weights) in groups.items() for v, w in zip(values, weights, strict=True)
    ]
    return spark.createDataFrame(rows, SCHEMA)


@pytest.mark.parametrize("method", ["normal", "hoeffding"])
def test_spark_answers_as_the_formulas_do(spark, groups, method):
    range_ = (-20.0, 90.0)
    asked = {
        "count": (ps.count("if(isnan(v) or abs(v) = double('inf'), null, v)", method=method), None),
        "sum": (ps.sum("v", method=method), None),
        "avg": (ps.avg("v", method=method, confidence=0.9), None),
        "variance": (ps.variance("v", method=method, within=range_), range_),
        "sum within": (ps.sum("v", method=method, within=range_), range_),
    }
    answered = rows_of(spark, groups).groupBy("g").agg(*(column.alias(name) for name, (column, _) in asked.items()))

    for row in answered.collect():
        moments = Moments.of(groups[row.g][0], weights=groups[row.g][1])
        for name, (_, within) in asked.items():
            aggregate = name.split()[0]
            confidence = 0.9 if name == "avg" else 0.95
            expected = estimate(moments, aggregate, method=method, within=within, confidence=confidence)
            for field, found in row[name].asDict().items():
                wanted = getattr(expected, field)
                same = wanted is found if wanted is None or found is None else math.isclose(wanted, found, rel_tol=1e-9)
                assert same, (row.g, name, field, wanted, found)


def test_an_aggregate_over_no_rows_is_defined(spark):
    row = spark.createDataFrame([], SCHEMA).agg(ps.count().alias("n"), ps.sum("v").alias("s")).first()

    nothing = {"lower": None, "upper": None, "relative_error": None, "share": None, "reliable": False}
    assert row.n.asDict() == {"value": 0.0, **nothing}
    assert row.s.asDict() == {"value": None, **nothing}


def test_nulls_are_left_out_of_values_and_counted_as_rows(spark):
    rows = spark.createDataFrame([(1.0, 1.0), (None, 1.0), (3.0, 1.0)], "v double, weight double")
    row = rows.agg(
        ps.count().alias("rows"), ps.count("v").alias("n"), ps.sum("v").alias("s"), ps.avg("v").alias("a")
    ).first()

    assert (row.rows.value, row.n.value, row.s.value, row.a.value) == (3, 2, 4, 2)
    assert row.a.lower == row.a.upper == 2


def test_sums_and_counts_by_group_are_unbiased_over_2000_seeds_behind_two_drops_and_after_a_join(spark):
    random = np.random.default_rng(1)
    left = spark.createDataFrame(
        [
            (i, int(k), float(v))
            for i, (k, v) in enumerate(zip(random.integers(0, 3, 90), random.gamma(1, 5, 90), strict=True))
        ],
        "id int, g int, v double",
    )
    right = spark.createDataFrame([(i, i % 3, 1.0 + i) for i in range(12)], "rid int, rg int, x double")
    seeds = spark.range(2000).withColumnRenamed("id", "seed")

    def kept(frame, columns, salt, keep):
        drawn = F.xxhash64(*columns, "seed", F.lit(salt)).bitwiseAND(F.lit(WHOLE - 1)) < threshold_of(keep)
        return frame.where(drawn)

    twice = kept(kept(left.crossJoin(seeds), ["id"], 1, 0.5), ["id"], 2, 0.6).withColumn("weight", F.lit(1 / 0.3))
    other = kept(right.crossJoin(seeds), ["rid"], 3, 0.7).withColumn("w2", F.lit(1 / 0.7))
    joined = twice.join(other, (F.col("g") == F.col("rg")) & (twice.seed == other.seed)).select(
        twice.seed, "g", (F.col("v") * F.col("x")).alias("v"), (F.col("weight") * F.col("w2")).alias("weight")
    )
    exact = left.join(right, F.col("g") == F.col("rg")).withColumn("v", F.col("v") * F.col("x"))
    for sampled, whole in ((twice, left), (joined, exact)):
        truth = {
            r.g: (r.n, r.s) for r in whole.groupBy("g").agg(F.count("*").alias("n"), F.sum("v").alias("s")).collect()
        }
        answers = sampled.groupBy("seed", "g").agg(ps.count().alias("n"), ps.sum("v").alias("s"))
        moments = (F.sum("n.value"), F.sum(F.col("n.value") ** 2), F.sum("s.value"), F.sum(F.col("s.value") ** 2))
        for row in answers.groupBy("g").agg(*moments).collect():
            # A seed that left a group without a row answered 0 for it.
            for position, expected in ((1, truth[row.g][0]), (3, truth[row.g][1])):
                mean, square = row[position] / 2000, row[position + 1] / 2000
                standard_error = math.sqrt((square - mean**2) / 2000)
                assert abs(mean - expected) < 3 * standard_error


def test_a_row_hash_of_another_seed_draws_another_sample(spark):
    drawn = spark.range(4000).select(*(row_hash([F.col("id")], seed) < WHOLE // 2 for seed in (1, 2)))
    both = sum(one and two for one, two in drawn.collect())
    assert abs(both - 1000) < 4 * math.sqrt(4000 * 0.25 * 0.75)


# --- Targets ---


def answer_to(spark, target, *, weight=4.0, rows=400):
    frame = spark.range(rows).selectExpr("2.0D AS v", f"{weight}D AS weight")
    return frame.agg(ps.sum("v", target=target).alias("s")).first().s


def test_an_answer_within_its_target_is_given_whatever_else_would_happen(spark):
    for otherwise in ("warn", "null", "stop"):
        answer = answer_to(spark, ps.MaxError(relative=0.2, confidence=0.99, otherwise=otherwise))
        assert answer.value == 3200
        assert 0.1 < answer.relative_error < 0.2


def test_an_answer_that_misses_its_target_can_be_given_or_made_null_and_keeps_its_bounds(spark):
    given = answer_to(spark, ps.MaxError(relative=0.01))
    nulled = answer_to(spark, ps.MaxError(relative=0.01, otherwise="null"))

    assert given.value == 3200
    assert nulled.value is None
    assert (nulled.lower, nulled.upper) == (given.lower, given.upper)


@pytest.mark.parametrize(("rows", "told"), [(400, "has a relative error of 0.0"), (3, "rests on too few tuples")])
def test_an_answer_that_misses_its_target_can_stop_the_query_with_our_own_error(spark, rows, told):
    with pytest.raises(PySparkException) as stopped:
        answer_to(spark, ps.MaxError(relative=0.01, otherwise="stop"), rows=rows)

    error = own_error(stopped.value)
    assert isinstance(error, TargetMissedError)
    assert str(error).startswith(f"sum(v) {told}")
    assert "at most 0.01 is allowed" in str(error)


def test_a_confidence_that_contradicts_the_target_is_refused():
    with pytest.raises(
        ps.InvalidInputError, match=r"^confidence is 0\.9 and that of the target is 0\.95; give it once"
    ):
        ps.sum("v", confidence=0.9, target=ps.MaxError(relative=0.1))
    with pytest.raises(ps.InvalidInputError, match=r"^confidence must be in \(0, 1\), got 2"):
        ps.avg("v", confidence=2)


# --- What weights cannot mend ---


def test_a_weighted_quantile_counts_values_as_often_as_they_weigh(spark):
    rows = spark.createDataFrame([(1.0, 1.5), (2.0, 1.5), (10.0, 12.0), (math.nan, 99.0)], "v double, weight double")
    answer = rows.agg(ps.quantile("v", 0.5).alias("q")).first().q

    assert (answer.value, answer.lower, answer.reliable) == (10.0, None, False)
    exact = rows.withColumn("weight", F.lit(1.0)).agg(ps.quantile("v", 0.5).alias("q")).first().q
    assert (exact.value, exact.lower, exact.upper, exact.reliable) == (2.0, 2.0, 2.0, True)


def test_distinct_counts_are_refused_with_the_way_out():
    with pytest.raises(NotSupportedError, match=r"cannot be counted from a sample: .* Shed by that column instead"):
        ps.count_distinct("user")
