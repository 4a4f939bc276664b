import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import functions as F

from penstock.model.plan import Plan
from penstock.spark.judge.sampling import (
    NO_KEY,
    WHOLE,
    KeyTable,
    compound_key,
    hashed_group,
    hashed_key,
    key_hash,
    listed_threshold,
    row_hash,
    stage_seed,
    table_of,
    threshold_of,
)


@pytest.mark.spark
def test_keys_hash_the_same_in_python_and_in_spark(spark):
    keys = ["", "a", "vip", "søren", "日本", "x" * 1000, "0", "🙂"]
    frame = spark.createDataFrame([(key, key[::-1]) for key in keys], "a string, b string")
    hashed = frame.select(hashed_key([F.col("a")]).alias("one"), hashed_key([F.col("a"), F.col("b")]).alias("two"))
    rows = hashed.collect()
    assert [row.one for row in rows] == [key_hash(key) for key in keys]
    assert [row.two for row in rows] == [key_hash(compound_key(key, key[::-1])) for key in keys]


@pytest.mark.spark
def test_numbers_are_keys_by_the_text_that_spark_casts_them_to(spark):
    (row,) = spark.sql("select 17L as k").select(hashed_key([F.col("k")]).alias("h")).collect()
    assert row.h == key_hash("17")


@pytest.mark.spark
def test_a_null_key_has_no_hash_and_so_no_rate_of_its_own(spark):
    (row,) = (
        spark.sql("select cast(null as string) as a, 'x' as b")
        .select(hashed_key([F.col("a")]).alias("one"), hashed_key([F.col("a"), F.col("b")]).alias("two"))
        .collect()
    )
    assert (row.one, row.two) == (None, None)


@pytest.mark.spark
def test_rows_with_a_null_in_their_key_are_one_group(spark):
    rows = [(None, None), ("a", None), ("b", None), (None, "a"), ("a", "b")]
    hashed = spark.createDataFrame(rows, "a string, b string").select(hashed_group([F.col("a"), F.col("b")]).alias("h"))
    assert [row.h for row in hashed.collect()] == [NO_KEY] * 4 + [key_hash(compound_key("a", "b"))]


@pytest.mark.spark
def test_null_in_an_id_is_a_value_like_any_other(spark):
    ids = [(1, None), (None, 1), (None, None), (1, 1), (0, None), (1, None)]
    drawn = spark.createDataFrame(ids, "a int, b int").select(row_hash([F.col("a"), F.col("b")], 7).alias("h"))
    hashes = [row.h for row in drawn.collect()]
    assert len(set(hashes)) == 5
    assert hashes[0] == hashes[-1]


@pytest.mark.spark
def test_nulls_are_told_apart_in_rows_of_many_columns(spark):
    columns = [F.when(F.col("id") != number, F.lit(1)) for number in range(130)]
    hashes = [row.h for row in spark.range(130).select(row_hash(columns, 7).alias("h")).collect()]
    assert len(set(hashes)) == 130


def test_every_stage_has_a_seed_of_its_own():
    salts, parts, seeds = (
        ("/a/penstock/shed", "/b/penstock/shed", "/a/penstock/other"),
        ((), ("left",), ("right",)),
        range(9),
    )
    found = [stage_seed(salt, *within, seed=seed) for salt in salts for within in parts for seed in seeds]
    assert len(set(found)) == len(salts) * len(parts) * len(seeds)
    assert all(-(2**63) <= each < 2**63 for each in found)
    assert stage_seed("/a", "left", seed=1) == stage_seed("/a", "left", seed=1)


@pytest.mark.spark
@pytest.mark.parametrize("keep", [0.1, 0.5])
def test_two_stages_draw_independently(spark, keep):
    rows = 400_000
    first, second = (stage_seed(salt, seed=0) for salt in ("/a/penstock/shed", "/b/penstock/shed"))
    below = [row_hash([F.col("id")], stage) < threshold_of(keep) for stage in (first, second)]
    both = spark.range(rows).where(below[0] & below[1]).count()
    share = keep * keep
    assert abs(both / rows - share) < 4 * (share * (1 - share) / rows) ** 0.5


@given(st.dictionaries(st.text(max_size=8).filter(lambda k: "\x1f" not in k), st.floats(0, 1), max_size=400))
@settings(max_examples=60, deadline=None)
def test_every_listed_key_sits_in_one_of_its_two_slots(rates):
    table = KeyTable.build(rates)
    mask = len(table.hashes) - 1
    assert len(table.hashes) & mask == 0
    for key, keep in rates.items():
        hashed = key_hash(key)
        slots = [slot for slot in {hashed & mask, (hashed >> 32) & mask} if table.hashes[slot] == hashed]
        assert [table.thresholds[slot] for slot in slots] == [threshold_of(keep)]


def test_a_table_of_a_hundred_thousand_keys_stays_small():
    table = KeyTable.build({f"user-{number}": 0.5 for number in range(100_000)})
    assert len(table.hashes) <= 2**19
    assert np.count_nonzero(table.hashes) == 100_000


@pytest.mark.spark
def test_listed_keys_find_their_rate_and_others_find_none(spark):
    table = table_of(Plan(keep=0.1, key_keep={str(key): key / 1000 for key in range(1000)}, reason="test"))
    literals = spark.createDataFrame(
        [(table.hashes.tolist(), table.thresholds.tolist())], "h array<long>, t array<long>"
    )
    looked_up = (
        spark.range(-5, 1005)
        .withColumn("hash", hashed_key([F.col("id")]))
        .crossJoin(literals)
        .select("id", listed_threshold(F.col("hash"), F.col("h"), F.col("t")).alias("threshold"))
        .collect()
    )
    assert {row.id: row.threshold for row in looked_up} == {
        key: threshold_of(key / 1000) if 0 <= key < 1000 else None for key in range(-5, 1005)
    }


@pytest.mark.spark
@pytest.mark.parametrize("keep", [0.001, 0.1, 0.5, 0.97])
def test_the_share_below_a_threshold_is_the_keep_rate(spark, keep):
    rows = 400_000
    below = spark.range(rows).where(row_hash([F.col("id")], 3) < threshold_of(keep)).count()
    standard_error = (keep * (1 - keep) / rows) ** 0.5
    assert abs(below / rows - keep) < 4 * standard_error


@pytest.mark.spark
def test_another_seed_keeps_other_rows(spark):
    half = threshold_of(0.5)
    both = spark.range(100_000).where((row_hash([F.col("id")], 1) < half) & (row_hash([F.col("id")], 2) < half)).count()
    assert abs(both / 100_000 - 0.25) < 0.01


def test_the_whole_range_is_kept_at_one_and_nothing_at_zero():
    assert threshold_of(1.0) == WHOLE
    assert threshold_of(0.0) == 0
