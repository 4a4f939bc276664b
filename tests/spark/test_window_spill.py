"""Windows whose rows are stored when they are answered, and answered again from all of them."""

import json
import re
import shutil
from datetime import UTC, timedelta
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import functions as F
from pyspark.sql import types as T

import penstock as ps
from penstock.model.errors import NotSupportedError, SpillError
from penstock.policy.strata.windows import Survivors
from penstock.spark.backfill.result import Backfilled
from penstock.spark.spill.window_writer import WindowSpill, stored_windows
from penstock.spark.store.folder import folder_at
from penstock.spark.windows.blocks import Stored
from tests.spark.test_windows import ANSWER, START, Feed, answers, finish, median_by_user, steady, windows_of

pytestmark = [pytest.mark.spark, pytest.mark.slow]

# Windows of 615 rows are too much, those at the edges, of 205, are not.
POLICY = ps.ConceptDriven(max_tuples=300)


def backfill(spark, tmp_path, function=median_by_user, **options):
    options = {"checkpoint": str(tmp_path / "checkpoint"), "into": str(tmp_path / "into"), **options}
    return ps.backfill_windows(spark, str(tmp_path / "spill"), function, ANSWER, **options)


def files(tmp_path):
    return sorted(str(path.relative_to(tmp_path / "spill")) for path in (tmp_path / "spill").rglob("*.parquet"))


def truth(rows, start):
    """Users of the window with their numbers, worked out without the query."""
    found = {}
    for number, (at, user, _) in enumerate(rows):
        if start <= at < start + 30:
            found.setdefault(user, []).append(str(number))
    return {user: (float(len(numbers)), ",".join(sorted(numbers, key=int))) for user, numbers in found.items()}


def told(frame):
    seconds = ((F.unix_micros("window.start") - F.lit(int(START.timestamp() * 1e6))) / 1e6).alias("start")
    found = {}
    for row in frame.select(seconds, "user", "tuples", "survivors").collect():
        found.setdefault(row.start, {})[row.user] = (row.tuples, row.survivors)
    return found


def test_windows_that_shed_are_made_exact_from_the_spill_alone(spark, tmp_path):
    feed = Feed(spark, tmp_path)
    rows = steady(range(0, 40))
    feed.add(rows)
    feed.add([(200.0, "end", 0.0)])
    spill = ps.Spill(str(tmp_path / "spill"), rows="all")
    finish(windows_of(feed, tmp_path, POLICY, spill=spill, buckets=2), tmp_path)
    found = answers(spark, tmp_path)
    by_bucket = found.drop_duplicates(["start", "bucket"]).set_index(["start", "bucket"])

    stored = spark.read.parquet(str(tmp_path / "spill"))
    own = ["at", "user", "number", "price", "shed", "window_start", "window_end", "bucket", "batch", "arc", "reason"]
    assert stored.columns[: len(own)] == own
    counted = stored.groupBy("window_start", "bucket", "arc", "reason").agg(F.count("*"), F.count_if("shed")).collect()
    assert len(counted) == len(by_bucket)
    for start, bucket, arc, reason, offered, shed in counted:
        account = by_bucket.loc[(start.timestamp() - START.timestamp(), bucket)]
        assert (offered, offered - shed, arc) == (account.offered, account.kept, "window")
        assert reason == f"ConceptDriven kept {account.kept} of {account.offered} rows of {account.groups} groups"
    first = files(tmp_path)

    # A batch that is replayed puts the same files in the same place.
    commits = tmp_path / "checkpoint" / "commits"
    last = max(int(path.name) for path in commits.iterdir() if path.name.isdigit())
    assert any(re.search(rf"part-\d+-{last}-", name) for name in first)
    (commits / str(last)).unlink()
    (commits / f".{last}.crc").unlink(missing_ok=True)
    ages = {name: (tmp_path / "spill" / name).stat().st_mtime_ns for name in first}
    finish(windows_of(feed, tmp_path, POLICY, spill=spill, buckets=2), tmp_path)
    assert files(tmp_path) == first
    assert any((tmp_path / "spill" / name).stat().st_mtime_ns > ages[name] for name in first)

    shutil.rmtree(feed.folder)
    shutil.rmtree(tmp_path / "checkpoint" / "penstock")
    approximate = spark.read.parquet(str(tmp_path / "out")).drop("batch")
    done = backfill(spark, tmp_path)
    exact = told(done.answers)
    shed = {row.start for row in found.itertuples() if row.offered > row.kept}
    assert set(exact) == shed == {-10, 0, 10, 20}
    corrected = told(done.correct(approximate, on=["window"]))
    assert corrected == {start: truth(rows, start) for start in (-20, -10, 0, 10, 20, 30)}
    assert told(approximate) != corrected
    account = done.answers.select("shed.*").distinct().toPandas()
    assert (account.offered == account.kept).all()
    accounts = by_bucket.reset_index()
    accounts = accounts[accounts.start.isin(shed)]
    assert (done.rows, done.shed) == (accounts.offered.sum(), accounts.offered.sum() - accounts.kept.sum())

    # A second time changes nothing.
    assert told(backfill(spark, tmp_path, answers=approximate).answers) == exact


def test_windows_that_are_gone_stop_no_other_and_are_named(spark, tmp_path):
    feed = Feed(spark, tmp_path)
    # So many users that both buckets have some.
    feed.add(steady(range(0, 40)) + [(second + 0.7, f"user {second}", 1.0) for second in range(0, 40, 2)])
    feed.add([(200.0, "end", 0.0)])
    spill = ps.Spill(str(tmp_path / "spill"), rows="all")
    finish(windows_of(feed, tmp_path, POLICY, spill=spill, buckets=2), tmp_path)
    approximate = spark.read.parquet(str(tmp_path / "out")).drop("batch")
    exact = told(backfill(spark, tmp_path, answers=approximate).answers)
    assert set(exact) == {-10, 0, 10, 20}

    # A stretch of time is answered alone.
    since, until = START + timedelta(seconds=0), START + timedelta(seconds=20)
    part = backfill(spark, tmp_path, since=since.isoformat(), until=until)
    assert told(part.answers) == {start: exact[start] for start in (0, 10)}

    # A window that is gone is missed where the answers are at hand, and stops no other.
    (tmp_path / "spill").rename(tmp_path / "aside")
    shutil.copytree(tmp_path / "aside", tmp_path / "spill", ignore=shutil.ignore_patterns(f"window={start_micros(10)}"))
    done = backfill(spark, tmp_path, answers=approximate)
    (gap,) = done.gaps
    assert gap.first == gap.last
    assert gap.first.astimezone(UTC) == START + timedelta(seconds=10)
    assert "has nothing of the window that starts at" in gap.reason
    assert [row.start for row in done.approximate.collect()] == [gap.first]
    assert told(done.answers) == {start: answer for start, answer in exact.items() if start != 10}
    assert told(done.correct(approximate, on=["window"]))[10] == told(approximate)[10]
    # So is one that has lost a part, which is told by the batch that answered it.
    next((tmp_path / "spill").glob(f"query=*/window={start_micros(20)}/part-0-*")).unlink()
    done = backfill(spark, tmp_path)
    assert len(done.missing) == 1
    assert re.search(r"has \d+ of 420 rows of the window that starts at", done.gaps[0].reason)
    assert set(told(done.answers)) == {-10, 0}
    with pytest.raises(ps.InvalidInputError, match="answers must have the columns 'window' and 'shed'"):
        backfill(spark, tmp_path, answers=approximate.drop("shed"))


def test_a_window_that_comes_out_empty_loses_its_first_answer(spark):
    first = spark.createDataFrame([(0, 1.0), (1, 2.0)], "window INT, found DOUBLE")
    done = {"answers": first.where("false"), "batches": 1, "rows": 1, "shed": 1}
    windows = first.where("window = 0").select("window")
    assert [row.window for row in Backfilled(**done, windows=windows).correct(first, on=["window"]).collect()] == [1]
    assert Backfilled(**done).correct(first, on=["window"]).count() == 2


def start_micros(seconds):
    return int((START + timedelta(seconds=seconds)).timestamp() * 1e6)


def stored_block(values):
    codes = np.zeros(len(values), dtype=np.int32)
    return Stored(rows=pa.table({"id": values}), keys=np.array([1]), codes=codes, hashes=codes.astype(np.int64))


def left_of(kept, offered):
    weights = [np.ones(len(each)) for each in kept]
    count = sum(map(len, kept))
    return Survivors(
        rows=kept, weights=weights, offered=offered, kept=count, groups=1, missing_groups=0, missing_tuples=0
    )


def test_only_what_was_shed_is_stored_unless_all_is_asked_for(spark, tmp_path):
    folder_at(tmp_path / "checkpoint").replace("metadata", json.dumps({"id": "q"}))
    folder_at(tmp_path / "checkpoint" / "commits").replace("4", "v1")
    columns = T.StructType([T.StructField("id", T.LongType())])
    spill = ps.Spill(str(tmp_path / "spill"))
    writer = WindowSpill.of(columns, spill=spill, checkpoint=tmp_path / "checkpoint", policy=ps.KeepAll())
    blocks = [stored_block([0, 1, 2]), stored_block([3, 4])]
    place = {"start": 0, "end": 10, "batch_id": 4}

    writer.store([blocks], [left_of([np.array([0]), np.array([0, 1])], 5)], bucket=0, whole=8, **place)
    writer.store([blocks[:1]], [left_of([np.array([0, 1, 2])], 3)], bucket=1, whole=8, **place)
    writer.store([[]], [left_of([], 0)], bucket=2, whole=8, **place)
    folder = tmp_path / "spill" / "query=q" / "window=0"
    assert sorted(path.name for path in folder.iterdir()) == ["part-0-4-2-2-5-8.parquet", "part-1-4-0-0-3-8.parquet"]
    assert pq.read_table(folder / "part-0-4-2-2-5-8.parquet").column("id").to_pylist() == [1, 2]
    assert pq.read_table(folder / "part-1-4-0-0-3-8.parquet").num_rows == 0

    # A later attempt with another policy takes the place of one that was not committed.
    writer.store([blocks], [left_of([np.array([0]), np.array([0])], 5)], bucket=0, whole=8, **place)
    assert [part.shed for part in stored_windows(folder.parent)[0] if part.bucket == 0] == [3]
    options = {"checkpoint": str(tmp_path / "checkpoint"), "into": str(tmp_path / "into")}
    with pytest.raises(SpillError, match=r"3 of 8 rows of .* and no window .* was it made with rows=\"shed\""):
        ps.backfill_windows(spark, spill, median_by_user, ANSWER, **options)

    # The bucket that shed is gone altogether: nobody may take the window for one that is whole.
    next(folder.glob("part-0-*")).unlink()
    with pytest.raises(SpillError, match=r"0 of 8 rows of the window that starts at 1970-01-01 00:00:00"):
        ps.backfill_windows(spark, spill, median_by_user, ANSWER, **options)
    # What a batch stored that was never committed has no answer to correct.
    Path(tmp_path, "checkpoint", "commits", "4").rename(Path(tmp_path, "checkpoint", "commits", "3"))
    with pytest.raises(ps.InvalidInputError, match=r"no window of the query .* that shed rows"):
        ps.backfill_windows(spark, spill, median_by_user, ANSWER, **options)
    with pytest.raises(ps.InvalidInputError, match=r"no batch was committed on .*other yet"):
        ps.backfill_windows(spark, spill, median_by_user, ANSWER, **options | {"checkpoint": str(tmp_path / "other")})


def test_what_cannot_be_spilled_is_refused_before_anything_starts(spark, tmp_path):
    feed = Feed(spark, tmp_path)
    spill = str(tmp_path / "spill")
    with pytest.raises(NotSupportedError, match="keep_batches=5 is not for windows"):
        windows_of(feed, tmp_path, POLICY, spill=ps.Spill(spill, keep_batches=5))
    stream = feed.stream()
    for name in ("bucket", "reason"):
        feed.stream = lambda _, name=name: stream.withColumn(name, F.lit(1))
        with pytest.raises(ps.InvalidInputError, match=f"has a column {name!r}, where stored rows say what became"):
            windows_of(feed, tmp_path, POLICY, spill=spill)


def test_a_join_is_made_exact_from_both_sides(spark, tmp_path):
    feeds = []
    for side in ("left", "right"):
        (tmp_path / side).mkdir()
        feed = Feed(spark, tmp_path / side)
        rows = [(part / 100, "shared", float(part)) for part in range(200)] + [(1.0, "rare", 1.0)] * 3
        feed.add(rows + [(part / 100, f"{side} only", 1.0) for part in range(100)])
        feed.add([(200.0, "end", 0.0)])
        feeds.append(feed)

    def pairs_and_total(one, other):
        pairs = ps.join_pairs(one, other, on="user")
        total = float((pairs["price_left"] * pairs["weight"]).sum())
        return pd.DataFrame({"pairs": [pairs["weight"].sum()], "total": [total]})

    schema = "pairs DOUBLE, total DOUBLE"
    spill = ps.Spill(str(tmp_path / "spill"), rows="all")
    joined = ps.shed_join(
        pairs_and_total,
        schema,
        time="at",
        size_seconds=10,
        key="user",
        row_id="number",
        policy=ps.ConceptDriven(keep=0.2),
        latency_seconds=600,
        checkpoint=str(tmp_path / "checkpoint"),
        spill=spill,
    )
    right = feeds[1].stream().withColumn("more", F.lit("right"))
    finish((joined, feeds[0].stream().transform(joined, right)), tmp_path)
    approximate = spark.read.parquet(str(tmp_path / "out")).drop("batch")
    shed = approximate.select("window", "shed.bucket", "shed.offered", "shed.kept").distinct()
    dropped = sum(row.offered - row.kept for row in shed.collect())
    parts = [part for each in stored_windows(next((tmp_path / "spill").glob("query=*"))).values() for part in each]
    assert {part.side for part in parts} == {"left", "right"}
    assert {part.whole for part in parts} == {606}
    assert sum(part.offered for part in parts) == 606
    right = spark.read.parquet(*[str(path) for path in (tmp_path / "spill").rglob("right-*.parquet")])
    assert right.columns[-5:] == ["bucket", "side", "batch", "arc", "reason"]
    assert right.where("more = 'right' AND side = 'right'").count() == 303

    done = ps.backfill_windows(
        spark, spill, pairs_and_total, schema, checkpoint=str(tmp_path / "checkpoint"), into=str(tmp_path / "into")
    )
    assert (done.rows, done.shed) == (606, sum(part.shed for part in parts))
    assert done.shed >= dropped > 0
    exact = done.correct(approximate, on=["window"]).agg(F.sum("pairs"), F.sum("total")).first()
    assert tuple(exact) == (200 * 200 + 3 * 3, 200 * sum(range(200)) + 3 * 3)
    assert approximate.agg(F.sum("total")).first()[0] != exact[1]

    next((tmp_path / "spill").rglob("left-*.parquet")).unlink()
    with pytest.raises(SpillError, match="of 606 rows"):
        ps.backfill_windows(
            spark, spill, pairs_and_total, schema, checkpoint=str(tmp_path / "checkpoint"), into=str(tmp_path / "no")
        )
