"""Replay a stream through Spark's window operator and take the time of every window."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from lab.reproduce.cod_streams import Stream
from penstock.policy.contract import Policy
from penstock.policy.strata.groups import Floats
from penstock.spark.windows.shedding import shed_windows

ANSWER = "key STRING, answer DOUBLE"
GIVES_UP_SECONDS = 400.0


def weighted_median(rows: pd.DataFrame) -> pd.DataFrame:
    """The user-defined function: median of the value by key, each row counting for its weight."""
    ordered = rows.sort_values("value")
    groups = ordered.groupby("key", sort=False)["weight"]
    passed = groups.cumsum() >= groups.transform("sum") / 2
    middle = ordered[passed.to_numpy()].drop_duplicates("key")
    return pd.DataFrame({"key": middle["key"], "answer": middle["value"]})


def bootstrapped_mean(rows: pd.DataFrame) -> pd.DataFrame:
    """A heavy scalar aggregate: upper end of the 95 % interval of the mean, from 50 resamples of the window."""
    random = np.random.default_rng(len(rows))
    values, weights = rows["value"].to_numpy(), rows["weight"].to_numpy()
    means = []
    for _ in range(50):
        drawn = weights * random.poisson(1.0, len(values))
        means.append(float(drawn @ values / max(drawn.sum(), 1e-12)))
    return pd.DataFrame({"key": ["all"], "answer": [float(np.percentile(means, 97.5))]})


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Replayed:
    """What a replay took.

    ``window_seconds`` has the time from the watermark's arrival to the answer of each full window, the slowest bucket
    counting; ``batch_seconds`` and ``batch_rows`` tell of the micro-batches.
    """

    window_seconds: Floats
    batch_seconds: Floats
    batch_rows: Floats
    kept_share: float

    @property
    def mean(self) -> float:
        """Mean window latency."""
        return float(self.window_seconds.mean())

    @property
    def p95(self) -> float:
        """95th percentile of the window latency."""
        return float(np.percentile(self.window_seconds, 95))


def write_panes(stream: Stream, folder: Path, *, windows: int, copies: int = 1) -> int:
    """Write the busiest stretch of the stream as one file per slide of its window; return the number of rows.

    Each tuple is written ``copies`` times, at the same time and with the same key: a faster stream of the same shape.
    """
    slides = round(stream.size_seconds / stream.slide_seconds)
    edges = np.arange(stream.seconds[0], stream.seconds[-1] - stream.slide_seconds + 1, stream.slide_seconds)
    edges = np.floor(edges / stream.slide_seconds) * stream.slide_seconds
    starts = np.searchsorted(stream.seconds, np.append(edges, edges[-1] + stream.slide_seconds))
    panes = min(windows + slides - 1, len(edges))
    per_run = np.convolve(np.diff(starts), np.ones(panes), mode="valid")
    first = int(np.argmax(per_run)) if len(per_run) else 0
    rows = 0
    for place in range(first, first + panes):
        span = slice(int(starts[place]), int(starts[place + 1]))
        rows += _write_pane(stream, span, folder / f"{place:06d}.parquet", copies=copies)
    # A lone row far ahead moves the watermark past every window.
    end = np.array([stream.seconds[int(starts[first + panes]) - 1] + 10 * stream.size_seconds])
    _write(folder / f"{first + panes:06d}.parquet", end, np.array(["end"]), np.zeros(1), np.array([-1]))
    return rows


def replay(
    spark: Any,
    stream: Stream,
    folder: Path,
    policy: Policy,
    *,
    function: Callable[[pd.DataFrame], pd.DataFrame] = weighted_median,
    skip_windows: int = 1,
    panes_per_batch: int = 1,
) -> Replayed:
    """Run the files of :func:`write_panes` through a query, and take its times.

    The first ``skip_windows`` full windows are left out: workers start and caches fill.
    """
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as scratch:
        checkpoint, out = f"{scratch}/checkpoint", f"{scratch}/out"
        events = (
            spark.readStream.schema("at TIMESTAMP, key STRING, value DOUBLE, id BIGINT")
            .option("maxFilesPerTrigger", panes_per_batch)
            .parquet(str(folder))
            .withWatermark("at", "0 seconds")
        )
        windows = shed_windows(
            function,
            ANSWER,
            time="at",
            size_seconds=stream.size_seconds,
            slide_seconds=stream.slide_seconds,
            key=() if not stream.keys.any() else "key",
            row_id="id",
            policy=policy,
            latency_seconds=GIVES_UP_SECONDS,
            checkpoint=checkpoint,
        )
        writer = events.transform(windows).writeStream.format("parquet").option("path", out)
        with windows.start(writer.trigger(availableNow=True)) as run:
            run.await_termination(GIVES_UP_SECONDS)
            reports = [report for report in run.query.recentProgress if "addBatch" in report["durationMs"]]
        told = spark.read.parquet(out).select("window.start", "shed.*").toPandas()
    told = told.drop_duplicates(["start", "bucket"])
    by_window = told.groupby("start").agg(seconds=("seconds", "max"), offered=("offered", "sum"), kept=("kept", "sum"))
    slides = round(stream.size_seconds / stream.slide_seconds)
    # The first and the last windows hold only some of their panes.
    full = by_window.iloc[slides - 1 + skip_windows : len(by_window) - (slides - 1)]
    return Replayed(
        window_seconds=full["seconds"].to_numpy(),
        batch_seconds=np.array([report["durationMs"]["triggerExecution"] / 1e3 for report in reports]),
        batch_rows=np.array([float(report["numInputRows"]) for report in reports]),
        kept_share=float(full["kept"].sum() / full["offered"].sum()),
    )


def _write_pane(stream: Stream, span: slice, path: Path, *, copies: int) -> int:
    keys = np.array([f"key-{key:08d}" for key in stream.keys[span].tolist()], dtype=object)
    ids = np.arange(span.start * copies, span.stop * copies)
    _write(
        path,
        np.repeat(stream.seconds[span], copies),
        np.repeat(keys, copies),
        np.repeat(stream.values[span], copies),
        ids,
    )
    return len(ids)


def _write(path: Path, seconds: Floats, keys: Any, values: Floats, ids: Any) -> None:
    micros = (seconds * 1e6).astype(np.int64)
    columns = {
        "at": pa.array(micros, type=pa.timestamp("us", tz="UTC")),
        "key": pa.array(keys.tolist(), type=pa.string()),
        "value": pa.array(values),
        "id": pa.array(ids.astype(np.int64)),
    }
    pq.write_table(pa.table(columns), path)
    # Spark reads files in the order in which they were changed.
    os.utime(path, (int(path.stem) + 1e9, int(path.stem) + 1e9))
