"""The demo's query: verify each click, then count and price clicks by campaign and window."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pandas as pd
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from penstock.demo.bursty import click_columns
from penstock.model.arrivals import Arrivals
from penstock.spark.answers import aggregates as bounded

WINDOW_SECONDS = 5
AGGREGATES = ("clicks", "revenue")
# Iterated SHA-256, as when a token is checked: work that no optimiser can skip, about 100 microseconds a click.
VERIFY_ROUNDS = 150


def clicks_in_batches(spark: SparkSession, *, rows_per_batch: int) -> DataFrame:
    """Clicks that Spark itself makes, the same number in every batch; for measuring, where no timetable is wanted."""
    source = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", rows_per_batch)
    return clicks_from(source.option("numPartitions", 2).load())


def clicks_from(numbers: DataFrame) -> DataFrame:
    """Make a click of every number: ``value`` and ``timestamp`` become id, time, campaign and price."""
    return numbers.selectExpr(
        "value as id",
        "timestamp as arrived",
        "concat('campaign-', pmod(xxhash64(value), 50)) as campaign",
        "pmod(xxhash64(value, 1), 1000) / 1000.0D as price",
    )


def verified(clicks: DataFrame) -> DataFrame:
    """Keep clicks whose token checks out; this is what makes the query costly."""
    return clicks.where(_token(F.concat_ws("-", "id", "campaign")) != F.lit(""))


def answers(clicks: DataFrame, *, weight: Column) -> DataFrame:
    """Count and price the clicks of each campaign in windows of five seconds, as weights say."""
    return _by_window(clicks, F.sum(weight).alias("clicks"), F.sum(weight * F.col("price")).alias("revenue"))


def answers_with_bounds(clicks: DataFrame) -> DataFrame:
    """Give the same answers for a stream that was shed from, with bounds, and count the rows that they rest on."""
    counted, priced = bounded.count().alias("clicks"), bounded.sum("price").alias("revenue")
    return _by_window(clicks, counted, priced, F.count(F.lit(1)).alias("rows"))


def truth(arrivals: Arrivals, *, epoch: float, seed: int, kept_shares: npt.NDArray[np.float64]) -> pd.DataFrame:
    """Count every click that arrives, by window and campaign; and tell the mean of what was kept of their batches."""
    ids = np.arange(arrivals.total_tuples, dtype=np.int64)
    campaign, price = click_columns(ids, seed)
    micros = ((epoch + arrivals.arrival_seconds(ids)) * 1e6).astype(np.int64)
    window = micros // (WINDOW_SECONDS * 1_000_000) * WINDOW_SECONDS
    frame = pd.DataFrame({"window_start": window, "campaign": campaign, "price": price, "kept_share": kept_shares})
    return frame.groupby(["window_start", "campaign"], as_index=False).agg(
        clicks=("price", "size"), revenue=("price", "sum"), kept_share=("kept_share", "mean")
    )


def _by_window(clicks: DataFrame, *aggregates: Column) -> DataFrame:
    window = F.window("arrived", f"{WINDOW_SECONDS} seconds").getField("start")
    return verified(clicks).groupBy(window.alias("window_start"), "campaign").agg(*aggregates)


def _token(text: Column) -> Column:
    return F.aggregate(F.sequence(F.lit(1), F.lit(VERIFY_ROUNDS)), text, lambda digest, _: F.sha2(digest, 256))
