"""Windows of a user-defined function under control: a ledger that balances, and a latency target without a rate."""

import time

import numpy as np
import pandas as pd
import pytest
from pyspark.sql import functions as F

import penstock as ps
from penstock.demo.bursty import bursty_stream
from penstock.model.arrivals import Arrivals
from penstock.spark.run.ledger import Ledger
from tests.spark.streams import forget_last
from tests.spark.test_windows import Feed, answers, finish, steady, windows_of

pytestmark = [pytest.mark.spark, pytest.mark.slow]


def test_every_row_of_every_window_is_in_the_ledger_and_what_is_kept_is_what_the_function_got(spark, tmp_path):
    feed = Feed(spark, tmp_path)
    for first in (0, 20, 40):
        feed.add(steady(range(first, first + 20)))
    feed.add([(200.0, "end", 0.0)])
    batches = finish(windows_of(feed, tmp_path, ps.ConceptDriven(keep=0.1)), tmp_path)
    told = answers(spark, tmp_path)

    by_batch = told.drop_duplicates(["start", "bucket"]).groupby("batch")[["offered", "kept"]].sum()
    seen = told.assign(rows=told.survivors.str.split(",").str.len()).groupby("batch")["rows"].sum()
    entered = {batch.batch_id: batch for batch in batches}
    assert set(by_batch.index) <= set(entered)
    for number, batch in entered.items():
        expected = by_batch.loc[number] if number in by_batch.index else {"offered": 0, "kept": 0}
        assert (batch.offered, batch.kept, batch.shed) == (
            expected["offered"], expected["kept"], expected["offered"] - expected["kept"],
        )  # fmt: skip
        assert batch.kept == seen.get(number, 0)
    # Three windows hold each row; those of the last one are still open.
    assert sum(batch.offered for batch in batches) == 3 * (60 * 20 + 30)


def test_counts_that_died_with_the_driver_are_in_the_ledger_after_a_restart(spark, tmp_path):
    feed = Feed(spark, tmp_path)
    for first in (0, 25):
        feed.add(steady(range(first, first + 25)))
    feed.add([(200.0, "end", 0.0)])
    before = finish(windows_of(feed, tmp_path, ps.ConceptDriven(keep=0.1)), tmp_path)
    forget_last(Ledger(tmp_path / "checkpoint" / "penstock" / "windows" / "ledger"), 2)

    windows, told = windows_of(feed, tmp_path, ps.ConceptDriven(keep=0.1))
    run = windows.start(told.writeStream.format("noop"))
    run.stop()

    ledger = {row.batch_id: (row.offered, row.kept, row.shed) for row in run.ledger().collect()}
    assert {b.batch_id: (b.offered, b.kept, b.shed) for b in before}.items() <= ledger.items()


def slow_median(rows: pd.DataFrame) -> pd.DataFrame:
    """A median by campaign that takes its time: as a model does, for every row it is given."""
    prices = rows.groupby("campaign")["price"].median()
    ends_at = time.perf_counter() + len(rows) * 200e-6
    while time.perf_counter() < ends_at:
        np.sort(rows["price"].to_numpy())
    return pd.DataFrame({"campaign": prices.index, "median": prices.to_numpy()})


def test_a_median_by_key_under_three_times_the_load_holds_its_target_without_any_rate(spark, tmp_path):
    target = 10.0
    # Two buckets do 10,000 rows a second; in quiet a fifth of that comes, in the burst three times as much.
    arrivals = Arrivals.of((25, 2_000), (30, 30_000), (5, 2_000))
    windows = ps.shed_windows(
        slow_median,
        "campaign STRING, median DOUBLE",
        time="arrived",
        size_seconds=2,
        key="campaign",
        row_id="id",
        latency_seconds=target,
        checkpoint=str(tmp_path / "checkpoint"),
    )
    epoch = time.time() + 3
    clicks = bursty_stream(spark, arrivals, epoch=epoch).select("id", "arrived", "campaign", "price")
    medians = clicks.withWatermark("arrived", "0 seconds").transform(windows)
    writer = medians.writeStream.format("parquet").option("path", str(tmp_path / "out"))
    with windows.start(writer.trigger(processingTime="1 second")) as run:
        run.await_termination(3 + arrivals.total_seconds)
    batches = [batch for batch in run.batches if batch.offered]

    burst = [b for b in batches if b.started_at and epoch + 25 + target < b.started_at < epoch + 55]
    latencies = np.array([batch.latency_seconds for batch in burst])
    # What it would take to answer all: three seconds of work a second, for thirty seconds.
    assert np.quantile(latencies, 0.9) <= target, [(b.offered, b.kept, b.latency_seconds, b.reason) for b in burst]
    assert all(batch.kept == batch.offered for batch in batches if batch.started_at < epoch + 20)
    assert 0.1 < sum(b.kept for b in burst) / sum(b.offered for b in burst) < 0.7
    shed = spark.read.parquet(str(tmp_path / "out")).select("window", "shed.*").distinct()
    offered, kept = shed.agg(F.sum("offered"), F.sum("kept")).first()
    assert (offered, kept) == (sum(b.offered for b in batches), sum(b.kept for b in batches))


def test_a_batch_that_is_replayed_is_shed_by_the_policy_it_was_planned_with(spark, tmp_path):
    feed = Feed(spark, tmp_path)
    for first in (0, 25):
        feed.add(steady(range(first, first + 25)))
    finish(windows_of(feed, tmp_path, ps.ConceptDriven(keep=0.1)), tmp_path)
    commits = tmp_path / "checkpoint" / "commits"
    last = max(int(path.name) for path in commits.iterdir() if path.name.isdigit())
    before = answers(spark, tmp_path)
    before = before[before.batch == last]
    assert not before.empty
    (commits / str(last)).unlink()
    (commits / f".{last}.crc").unlink(missing_ok=True)
    feed.add([(300.0, "end", 0.0)])

    finish(windows_of(feed, tmp_path, ps.ConceptDriven(keep=0.6)), tmp_path)
    after = answers(spark, tmp_path)
    columns = ["start", "user", "survivors", "tuples", "offered", "kept"]
    replayed = after[after.batch == last]
    assert replayed[columns].values.tolist() == before[columns].values.tolist()
    # The windows that are new are shed by the policy that is new.
    fresh = after[(after.batch > last) & (after.user != "end")]
    assert fresh.kept.sum() > 0.4 * fresh.offered.sum()
