"""User-defined functions over sliding windows, on live queries: every row where it belongs, and nowhere else."""

import json
import os
import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pandas as pd
import pytest
from pyspark.sql import functions as F

import penstock as ps
from penstock.spark.windows.blocks import LABELS
from tests.spark.streams import draw_alike

pytestmark = pytest.mark.spark

START = datetime(2024, 1, 1, tzinfo=UTC)
SCHEMA = "at TIMESTAMP, user STRING, number BIGINT, price DOUBLE"


def median_by_user(rows: pd.DataFrame) -> pd.DataFrame:
    grouped = rows.groupby("user", dropna=False)
    return pd.DataFrame(
        {
            "user": grouped["price"].median().index,
            "median": grouped["price"].median().to_numpy(),
            "tuples": grouped["weight"].sum().to_numpy(),
            "survivors": grouped["number"].apply(lambda numbers: ",".join(map(str, sorted(numbers)))).to_numpy(),
        }
    )


ANSWER = "user STRING, median DOUBLE, tuples DOUBLE, survivors STRING"


class Feed:
    """A stream of files that the test writes one by one."""

    def __init__(self, spark, folder: Path) -> None:
        self.folder = folder / "in"
        self.folder.mkdir()
        self.spark = spark
        self.number = 0

    def add(self, rows: list[tuple[float, str | None, float]]) -> None:
        """Append rows of (seconds, user, price) as one file."""
        numbers = range(self.number, self.number + len(rows))
        lines = [
            json.dumps(
                {"at": (START + timedelta(seconds=at)).isoformat(), "user": user, "number": number, "price": price}
            )
            for number, (at, user, price) in zip(numbers, rows, strict=True)
        ]
        path = self.folder / f"{self.number:06d}.json"
        path.write_text("\n".join(lines))
        # Spark reads files in the order in which they were changed.
        os.utime(path, (1_700_000_000 + self.number, 1_700_000_000 + self.number))
        self.number += max(1, len(rows))

    def stream(self, watermark: str = "0 seconds"):
        read = self.spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).json(str(self.folder))
        return read.withWatermark("at", watermark)


def run_to_end(answered, folder: Path):
    """Take in every file, then stop; return the answers as pandas."""
    finish(answered, folder)
    return answers(answered[1].sparkSession, folder)


def finish(answered, folder: Path) -> list[ps.Batch]:
    """Start what :func:`windows_of` gave, take in every file, and stop."""
    windows, told = answered

    def write(rows, batch_id):
        # A batch that is replayed writes over what it wrote before.
        rows.write.mode("overwrite").parquet(str(folder / "out" / f"batch={batch_id}"))

    run = windows.start(told.writeStream.foreachBatch(write))
    run.query.processAllAvailable()
    run.stop()
    return run.batches


def answers(spark, folder: Path) -> pd.DataFrame:
    read = spark.read.parquet(str(folder / "out")).select(
        ((F.unix_micros("window.start") - F.lit(int(START.timestamp() * 1e6))) / 1e6).alias("start"), "*"
    )
    columns = ("start", "user", "median", "tuples", "survivors", "shed.*", "batch")
    return read.select(*columns).orderBy("start", "user").toPandas()


def windows_of(feed: Feed, folder: Path, policy, *, watermark="0 seconds", **options):
    given = {"size_seconds": 30, "slide_seconds": 10, "key": "user", "row_id": "number", **options}
    windows = ps.shed_windows(
        given.pop("function", median_by_user),
        given.pop("returns", ANSWER),
        time="at",
        policy=policy,
        latency_seconds=600,
        checkpoint=str(folder / "checkpoint"),
        **given,
    )
    return windows, feed.stream(watermark).transform(windows)


def steady(seconds: range, per_second: int = 20) -> list[tuple[float, str | None, float]]:
    """One large group, and a small one with a row every two seconds."""
    rows: list[tuple[float, str | None, float]] = []
    for second in seconds:
        rows += [(second + part / per_second, "large", float(part)) for part in range(per_second)]
        if second % 2 == 0:
            rows.append((second + 0.5, "small", 7.0))
    return rows


def test_bucket_labels_spread_over_the_partitions(spark):
    hashed = ", ".join(f"pmod(hash({label}), 8)" for label in LABELS)

    assert list(spark.sql(f"SELECT {hashed}").first()) == list(range(8))


@pytest.fixture
def elsewhere(spark):
    """A session whose clock is neither that of the data nor off by whole hours."""
    spark.conf.set("spark.sql.session.timeZone", "Asia/Kolkata")
    yield
    spark.conf.set("spark.sql.session.timeZone", "UTC")


def test_windows_hold_the_rows_that_sparks_own_windows_hold(spark, tmp_path, elsewhere):
    feed = Feed(spark, tmp_path)
    for first in (0, 25):
        feed.add(steady(range(first, first + 25)))
    feed.add([(200.0, "end", 0.0)])
    mine = run_to_end(windows_of(feed, tmp_path, ps.KeepAll(), buckets=2), tmp_path)
    batch = spark.read.schema(SCHEMA).json(str(feed.folder)).where("user != 'end'")
    native = (
        batch.groupBy(F.window("at", "30 seconds", "10 seconds"), "user")
        .agg(F.median("price").alias("median"), F.count("*").cast("double").alias("tuples"))
        .select((F.unix_timestamp("window.start") - int(START.timestamp())).alias("start"), "user", "median", "tuples")
        .orderBy("start", "user")
        .toPandas()
    )

    compared = mine[["start", "user", "median", "tuples"]].reset_index(drop=True)
    pd.testing.assert_frame_equal(compared, native, check_dtype=False)
    assert (mine.offered == mine.kept).all()
    assert (mine.missing_groups == 0).all()


def test_small_groups_are_kept_whole_and_large_ones_to_the_budget(spark, tmp_path):
    feed = Feed(spark, tmp_path)
    feed.add(steady(range(0, 60)))
    feed.add([(200.0, "end", 0.0)])

    found = run_to_end(windows_of(feed, tmp_path, ps.ConceptDriven(keep=0.1)), tmp_path)
    middle = found[found.start == 10].set_index("user")

    # 615 rows a window, 61 of them kept: 15 of the small group, 46 of the large.
    assert middle.loc["small", "tuples"] == 15
    assert len(middle.loc["small", "survivors"].split(",")) == 15
    assert len(middle.loc["large", "survivors"].split(",")) == 46
    assert middle.loc["large", "tuples"] == pytest.approx(600)
    by_bucket = found[found.start == 10].drop_duplicates("bucket")
    assert (by_bucket.offered.sum(), by_bucket.kept.sum(), by_bucket.missing_groups.sum()) == (615, 61, 0)
    assert middle.loc["large", "overlap"] == 1.0


@pytest.mark.parametrize(
    ("value", "overlaps", "distances"),
    [(None, [None] * 3, [None] * 3), ("price", [None, 1.0, 0.0], [None, 0.0, pytest.approx(0.8)])],
)
def test_windows_without_a_key_tell_how_their_values_moved_or_that_nobody_knows(
    spark, tmp_path, value, overlaps, distances
):
    feed = Feed(spark, tmp_path)
    # Two windows of 1 and 3, then one of 9 and 11: the means are 8 apart, the deviations 1 each.
    for first, prices in ((0, (1.0, 3.0)), (10, (1.0, 3.0)), (20, (9.0, 11.0))):
        feed.add([(first + number, "a", price) for number, price in enumerate(prices)])
    feed.add([(100.0, "end", 0.0)])

    options = {"size_seconds": 10, "slide_seconds": 10, "key": (), "value": value}
    found = run_to_end(windows_of(feed, tmp_path, ps.KeepAll(), **options), tmp_path)
    shown = found.astype(object).where(found.notna(), None)

    assert shown.start.tolist() == [0.0, 10.0, 20.0]
    assert shown.overlap.tolist() == overlaps
    assert shown.distance.tolist() == distances


def test_uniform_goes_the_same_way_and_keeps_its_share(spark, tmp_path):
    feed = Feed(spark, tmp_path)
    feed.add(steady(range(0, 60), per_second=100))
    feed.add([(200.0, "end", 0.0)])

    found = run_to_end(windows_of(feed, tmp_path, ps.Uniform(keep=0.2)), tmp_path)
    whole = found[found.start == 10].drop_duplicates("bucket")

    assert whole.offered.sum() == 3_015
    assert whole.kept.sum() == pytest.approx(603, rel=0.2)
    assert found[(found.start == 10) & (found.user == "large")].tuples.item() == pytest.approx(3_000, rel=0.2)


def test_late_rows_join_the_windows_that_are_still_open_and_no_other(spark, tmp_path):
    feed = Feed(spark, tmp_path)
    feed.add([(5.0, "a", 1.0), (15.0, "a", 1.0)])
    feed.add([(41.0, "a", 1.0)])  # the watermark is now 41: windows that end at 40 and before are answered
    feed.add([(42.0, "a", 1.0)])
    feed.add([(16.0, "b", 1.0), (5.0, "b", 1.0)])  # 16 is late for the window [10, 40), 5 for all of its own
    feed.add([(25.0, "b", 1.0)])  # in time for [20, 50)
    feed.add([(300.0, "end", 0.0)])

    found = run_to_end(windows_of(feed, tmp_path, ps.KeepAll(), buckets=1), tmp_path)

    assert [(row.start, row.tuples) for row in found[found.user == "b"].itertuples()] == [(20.0, 1.0)]
    assert found.late.max() == 2
    blocks = tmp_path / "checkpoint" / "penstock" / "windows" / "blocks"
    assert not list(blocks.glob(f"{int(START.timestamp() * 1e6)}/*")), "the block of late rows is left behind"
    assert found[found.user == "a"].start.tolist() == [-20, -10, 0, 10, 20, 30, 40]


def test_windows_without_rows_have_no_answer_and_do_no_harm(spark, tmp_path):
    feed = Feed(spark, tmp_path)
    feed.add([(5.0, "a", 1.0)])
    feed.add([(1005.0, "a", 2.0)])
    feed.add([(2000.0, "end", 0.0)])

    found = run_to_end(
        windows_of(feed, tmp_path, ps.ConceptDriven(keep=0.5), size_seconds=10, slide_seconds=10), tmp_path
    )

    assert found[found.user == "a"].start.tolist() == [0.0, 1000.0]
    # Half a row cannot be kept: a window that is not empty keeps one.
    assert found[found.user == "a"].kept.tolist() == [1, 1]


def test_blocks_are_removed_once_no_window_needs_them(spark, tmp_path):
    feed = Feed(spark, tmp_path)
    for first in (0, 60):
        feed.add(steady(range(first, first + 60), per_second=2))
    run_to_end(windows_of(feed, tmp_path, ps.KeepAll()), tmp_path)
    feed.add([(125.0, "large", 0.0)])
    run_to_end(windows_of(feed, tmp_path, ps.KeepAll()), tmp_path)

    panes = [
        path
        for path in (tmp_path / "checkpoint" / "penstock" / "windows" / "blocks").iterdir()
        if path.name != "windows"
    ]

    # The watermark was near 120 before the last file came: windows that end by 110 had been answered, and the pane at
    # 80 was the last that none of the others needs.
    assert min(int(path.name) / 1e6 - START.timestamp() for path in panes) == 90


def test_a_batch_that_is_replayed_gives_the_same_windows_from_the_same_rows(spark, tmp_path):
    feed = Feed(spark, tmp_path)
    for first in (0, 25):
        feed.add(steady(range(first, first + 25)))
    policy = ps.ConceptDriven(keep=0.1)
    run_to_end(windows_of(feed, tmp_path, policy), tmp_path)
    checkpoint = tmp_path / "checkpoint"
    # As if the driver had died before the last commit: the batch is replayed, and with it the state before it is used.
    last = max(int(path.name) for path in (checkpoint / "commits").iterdir() if path.name.isdigit())
    before = answers(spark, tmp_path)
    assert not before[before.batch == last].empty
    (checkpoint / "commits" / str(last)).unlink()
    (checkpoint / "commits" / f".{last}.crc").unlink(missing_ok=True)
    feed.add([(300.0, "end", 0.0)])
    resumed = run_to_end(windows_of(feed, tmp_path, policy), tmp_path)
    whole = tmp_path / "whole"
    whole.mkdir()
    draw_alike(checkpoint, whole / "checkpoint", name="windows")
    shutil.copytree(feed.folder, whole / "in", copy_function=shutil.copy2)
    again = Feed.__new__(Feed)
    again.spark, again.folder = spark, whole / "in"
    uninterrupted = run_to_end(windows_of(again, whole, policy), whole)

    columns = ["start", "user", "survivors", "tuples", "offered", "kept"]
    pd.testing.assert_frame_equal(resumed[columns], uninterrupted[columns], check_dtype=False)
    replayed = before[before.batch == last][columns].reset_index(drop=True)
    pd.testing.assert_frame_equal(resumed[resumed.batch == last][columns].reset_index(drop=True), replayed)


def test_two_streams_are_joined_on_what_they_have_in_common(spark, tmp_path):
    left, right = Feed(spark, _folder(tmp_path, "left")), Feed(spark, _folder(tmp_path, "right"))
    for feed, only in ((left, "left only"), (right, "right only")):
        rows = [(part / 100, "shared", float(part)) for part in range(500)]
        rows += [(part / 100, "rare", 1.0) for part in range(3)] + [(part / 100, only, 1.0) for part in range(500)]
        feed.add(rows)
        feed.add([(200.0, "end", 0.0)])

    def size_and_sum(one: pd.DataFrame, other: pd.DataFrame) -> pd.DataFrame:
        pairs = ps.join_pairs(one, other, on="user")
        total = (pairs["price_left"] * pairs["weight"]).groupby(pairs["user"]).sum()
        return pd.DataFrame(
            {"user": total.index, "total": total.to_numpy(), "pairs": pairs.groupby("user")["weight"].sum()}
        )

    joined = ps.shed_join(
        size_and_sum,
        "user STRING, total DOUBLE, pairs DOUBLE",
        time="at",
        size_seconds=10,
        key="user",
        value="price",
        row_id="number",
        policy=ps.ConceptDriven(keep=0.1),
        latency_seconds=600,
        checkpoint=str(tmp_path / "checkpoint"),
    )
    finish((joined, left.stream().transform(joined, right.stream())), tmp_path)
    found = spark.read.parquet(str(tmp_path / "out")).select("user", "total", "pairs", "shed.*").toPandas()

    by_user = found[found.user != "end"].set_index("user")
    assert set(by_user.index) == {"shared", "rare"}
    assert by_user.loc["shared", "pairs"] == pytest.approx(250_000)
    assert by_user.loc["rare", "pairs"] == pytest.approx(9)
    assert by_user.loc["shared", "total"] == pytest.approx(500 * 499 * 500 / 2, rel=0.25)
    by_bucket = found[found.user != "end"].drop_duplicates("bucket")
    assert by_bucket.kept.sum() <= 200


def _folder(path: Path, name: str) -> Path:
    (path / name).mkdir()
    return path / name


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"key": "nobody"}, "key names the column 'nobody'"),
        ({"slide_seconds": 60}, "slide_seconds must be at most size_seconds"),
        ({"size_seconds": 0.00001}, "size_seconds must be whole milliseconds, got 1e-05"),
        ({"buckets": 9}, "buckets must be a whole number of at least 1 and of at most 8, got 9"),
        ({"returns": "user STRING, kept LONG"}, "returns has the column 'kept'"),
    ],
)
def test_what_cannot_work_is_refused_before_anything_starts(spark, tmp_path, options, message):
    with pytest.raises(ps.InvalidInputError, match=message):
        windows_of(Feed(spark, tmp_path), tmp_path, ps.KeepAll(), **options)


def test_windows_take_as_many_streams_as_they_were_made_for(spark, tmp_path):
    feed = Feed(spark, tmp_path)
    windows, _ = windows_of(feed, tmp_path, ps.KeepAll())
    with pytest.raises(ps.InvalidInputError, match="already applied to a stream"):
        feed.stream().transform(windows)
    joined = ps.shed_join(
        ps.join_pairs,
        "user STRING",
        time="at",
        size_seconds=10,
        key="user",
        latency_seconds=5,
        checkpoint=str(tmp_path),
    )
    with pytest.raises(ps.InvalidInputError, match="windows over 2 streams got 1; give both"):
        feed.stream().transform(joined)
    with pytest.raises(ps.InvalidInputError, match="no stream was given yet"):
        joined.start(feed.stream().writeStream)


def test_a_query_of_windows_without_its_controller_is_refused(spark, tmp_path):
    feed = Feed(spark, tmp_path)
    feed.add([(1.0, "a", 1.0)])
    _, told = windows_of(feed, tmp_path, ps.KeepAll())
    query = told.writeStream.format("noop").option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    with pytest.raises(Exception, match="nobody controls the windows 'windows'"):
        query.processAllAvailable()


def test_a_function_that_breaks_its_schema_is_named(spark, tmp_path):
    feed = Feed(spark, tmp_path)
    feed.add([(1.0, "a", 1.0)])
    feed.add([(100.0, "a", 1.0)])
    windows = windows_of(feed, tmp_path, ps.KeepAll(), function=lambda rows: rows[["user"]])

    with pytest.raises(Exception, match="must return a DataFrame with the columns user, median"):
        run_to_end(windows, tmp_path)
