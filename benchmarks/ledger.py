"""``python -m benchmarks.ledger``: a ledger as long as a year of one-second batches, opened and read.

Each figure is from a process of its own, which had the imports done before the clock started.
"""

from __future__ import annotations

import argparse
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa

from penstock.model.batch import Batch
from penstock.spark.run.ledger import Ledger
from penstock.spark.run.segments import SPANS, Segment, SegmentFiles

WIDEST = SPANS[-1]
LAST = 10_000


def entries_of(first: int, count: int) -> pa.Table:
    """Entries of batches of a query that sheds now and then, of a topic with four partitions."""
    draw = np.random.default_rng(first)
    offered = draw.poisson(20_000, count)
    keep = np.where(draw.random(count) < 0.2, draw.random(count), 1.0)
    kept = draw.binomial(offered, keep)
    partitions = np.char.add("clicks-", np.tile(np.arange(4).astype(str), count))
    quarters = pa.MapArray.from_arrays(np.arange(0, 4 * count + 1, 4), partitions, np.repeat(offered // 4, 4))
    none = pa.array([{}] * count, Ledger.schema.field("outputs").type)
    seconds = draw.lognormal(-1.0, 0.3, (count, 5))
    columns = {
        "batch_id": np.arange(first, first + count),
        "offered": offered,
        "kept": kept,
        "shed": offered - kept,
        "keep": keep,
        "reason": np.char.add("load ", np.char.mod("%.2f > 0.90 of the target", 1 / keep)),
        "started_at": 1.7e9 + np.arange(first, first + count) + seconds[:, 0],
        "duration_seconds": seconds[:, 1],
        "overhead_seconds": seconds[:, 2],
        "latency_seconds": seconds[:, 3],
        "mean_latency_seconds": seconds[:, 4],
        "backlog_tuples": draw.poisson(500.0, count).astype(float),
        **dict.fromkeys(("listed_offered", "listed_kept", "failed", "unread"), np.zeros(count, dtype=np.int64)),
        "recounted": np.zeros(count, dtype=bool),
        "partition_offered": quarters,
        "partition_backlog": quarters,
        "outputs": none,
    }
    return pa.table([columns[name] for name in Ledger.schema.names], schema=Ledger.schema)


class Generated(SegmentFiles):
    """Writes files of the widest range as merging would have left them."""

    def _tables(self, segments: list[Segment]) -> Iterator[pa.Table]:
        for segment in segments:
            for first in range(segment.first, segment.last + 1, 10_000):
                yield entries_of(first, 10_000)


def generate(path: Path, batches: int) -> None:
    files = Generated(path, Ledger.schema)
    for first in range(0, batches, WIDEST):
        files.write(WIDEST, [Segment(first=first, last=first + WIDEST - 1, count=WIDEST, span=WIDEST)])


def open_to_write(path: Path, batches: int) -> str:
    """Open the ledger as a query does that starts: see what is missing, enter a batch, see a replay."""
    ledger = Ledger(path)
    assert ledger.missing(range(batches - 100, batches + 1)) == [batches]
    new = Batch(batch_id=batches, offered=5, kept=5, shed=0, keep=1.0, reason="fits")
    assert ledger.append(new)
    assert not ledger.append(new)
    return "opened for writing, one batch entered"


def find_gaps(path: Path, batches: int) -> str:
    assert Ledger(path).gaps() == []
    return "all gaps told"


def count_late(path: Path, batches: int) -> str:
    """Enter a batch again that is in the middle of a large file."""
    ledger = Ledger(path)
    (entered,) = (batch for batch, _ in zip(ledger.batches(since=batches // 2), range(1), strict=False))
    assert not ledger.append(entered)
    return "a replay of a batch amid the others recognised"


def read_last(path: Path, batches: int) -> str:
    from penstock.spark.session import local_session

    spark = local_session()
    spark.range(1).count()  # the session is there, as it is when a query runs
    started = time.perf_counter()
    found = Ledger(path).frame(spark, last=LAST).toPandas()
    assert sorted(found["batch_id"]) == list(range(found["batch_id"].min(), batches + 1))
    assert len(found) == LAST
    seconds = time.perf_counter() - started
    return f"the last {LAST:,} batches by Spark in {seconds:.2f} s, its session and imports not counted; in all"


PARTS: dict[str, Callable[[Path, int], str]] = {
    each.__name__: each for each in (open_to_write, find_gaps, count_late, read_last)
}


def measure(name: str, path: Path, batches: int) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    started = time.perf_counter()
    told = PARTS[name](path, batches)
    seconds, memory = time.perf_counter() - started, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"{told}: {seconds:.2f} s, {memory:.0f} MB in all, {before:.0f} MB of it before")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batches", type=int, default=30_000_000, help=f"in steps of {WIDEST:,} (default: 30,000,000)")
    parser.add_argument("--keep", type=Path, help="leave the ledger there, or use the one that is there")
    parser.add_argument("--part", choices=PARTS, help="only this, in this process")
    chosen = parser.parse_args()
    path = chosen.keep or Path(tempfile.mkdtemp(prefix="penstock-ledger-"))
    if chosen.part:
        measure(chosen.part, path, chosen.batches)
        return
    started = time.perf_counter()
    if not any(path.glob("*.parquet")):
        generate(path, chosen.batches)
    for left in path.glob("*.jsonl"):  # what an earlier run has entered
        left.unlink()
    size = sum(file.stat().st_size for file in path.iterdir())
    print(f"{chosen.batches:,} batches, {size / 1e9:.1f} GB, generated in {time.perf_counter() - started:.0f} s")
    options = ["--batches", str(chosen.batches), "--keep", str(path)]
    for name in PARTS:
        subprocess.run([sys.executable, "-m", "benchmarks.ledger", *options, "--part", name], check=True)
    if not chosen.keep:
        shutil.rmtree(path)


if __name__ == "__main__":
    main()
