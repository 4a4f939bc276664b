"""Kill one of two workers of a cluster in the middle of a burst, and check windows and latency afterwards.

``python -m benchmarks.cluster`` (or ``make cluster``). Fails if latency is not back inside its target by the end.
"""

from __future__ import annotations

import argparse
import json
import math
import signal
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from benchmarks.recovery import Fault, Recovery, recoveries, undisturbed
from lab.servers.cluster import Cluster
from penstock.model.batch import Batch
from penstock.spark.judge.sampling import row_hash, stage_seed, threshold_of
from penstock.spark.plan.log import PlanLog
from penstock.spark.run.ledger import Ledger
from penstock.spark.session import local_session
from penstock.spark.sources.offsets import read_entry
from penstock.spark.store.folder import Folder

JOB = Path(__file__).resolve().parents[1] / "examples" / "cluster_job.py"
TARGET_SECONDS = 5.0  # of the example
BURST_TUPLES = 10_000  # more than that in one batch inside the target only come in the burst


@dataclass(frozen=True)
class Verdict:
    """Figures and failures of one check."""

    batches: int
    offered: int
    shed: int
    windows: int
    slowest_seconds: float
    failures: list[str]


def ledger_of(folder: str) -> list[Batch]:
    """What the ledger of a job in this folder holds so far."""
    path = Path(folder) / "checkpoint" / "penstock" / "shed" / "ledger"
    return list(Ledger(path).batches()) if path.exists() else []


def first_in_burst(folder: str) -> float:
    """When the first batch of the burst was committed; infinity while none was."""
    # A query that starts has a large batch to catch up with, too: that one is late, and not the burst.
    burst = [b for b in ledger_of(folder) if b.offered > BURST_TUPLES and (b.latency_seconds or 0) < TARGET_SECONDS]
    return (burst[0].committed_at if burst else None) or math.inf


def kill_in_burst(folder: str, *, seconds: float) -> tuple[list[Fault], list[str]]:
    """Run the example on two workers, and kill one in the burst; return when that was, and what went wrong."""
    faults = []
    with Cluster(workers=2) as cluster:
        job = cluster.submit(str(JOB), folder, str(seconds))
        gives_up_at = time.monotonic() + 240
        while job.poll() is None and time.monotonic() < gives_up_at:
            time.sleep(0.2)
            if first_in_burst(folder) < time.time():
                faults.append(Fault(what="a worker is killed in the burst", at=time.time()))
                cluster.kill_worker(1)
                print(faults[0].what, flush=True)
                break
        else:
            return faults, [f"no burst was met in time; the log ends: {cluster.log_path.read_text()[-2000:]}"]
        if job.wait(300) != 0:
            return faults, [f"the job failed; the log ends: {cluster.log_path.read_text()[-2000:]}"]
        lost = "worker lost" in (text := cluster.log_path.read_text().lower()) or "removing worker" in text
        return faults, [] if lost else ["the master never missed the worker: nothing was shown"]


def inside_target(folder: str, faults: list[Fault]) -> list[Recovery]:
    """How latency came back after each fault."""
    return recoveries(ledger_of(folder), faults, target_seconds=TARGET_SECONDS)


def check(spark: SparkSession, folder: str) -> Verdict:
    """Compare every window with the rows that the logged plans keep, batch by batch."""
    checkpoint = Path(folder) / "checkpoint"
    log = PlanLog(checkpoint / "penstock" / "shed")
    ledger = list(Ledger(log.path / "ledger").batches())
    entered = {batch.batch_id: batch for batch in ledger}
    failures = [] if len(entered) == len(ledger) else ["a batch is in the ledger twice"]
    ranges, low = [], 0
    for batch_id in Folder(checkpoint / "commits").ids():
        entry, decision = read_entry(checkpoint, batch_id), log.decision(batch_id)
        assert entry is not None
        high = json.loads(entry.sources[0])["tuples"]
        if decision is None or high == low:
            continue
        ranges.append((batch_id, low, high, threshold_of(decision.plan.keep)))
        batch = entered.get(batch_id)
        if batch is None:
            failures.append(f"batch {batch_id} is committed and not in the ledger")
        elif batch.offered != high - low:
            failures.append(f"batch {batch_id}: the ledger has {batch.offered} offered, the offsets {high - low}")
        low = high
    planned = spark.createDataFrame(ranges, "batch LONG, low LONG, high LONG, threshold LONG")
    offered = planned.selectExpr("batch", "threshold", "explode(sequence(low, high - 1)) AS id")
    survivors = offered.where(row_hash([F.col("id")], stage_seed(log.salt(), seed=0)) < F.col("threshold"))
    counted = {row.batch: row["count"] for row in survivors.groupBy("batch").count().collect()}
    failures += [
        f"batch {number}: the ledger has {entered[number].kept} kept, its plan keeps {count}"
        for number, count in counted.items()
        if number in entered and entered[number].kept != count
    ]
    failures += _wrong_windows(spark, folder, survivors)
    slowest = max(batch.duration_seconds or 0.0 for batch in ledger)
    return Verdict(
        batches=len(ledger),
        offered=sum(batch.offered for batch in ledger),
        shed=sum(batch.shed for batch in ledger),
        windows=spark.read.parquet(f"{folder}/clicks").count(),
        slowest_seconds=slowest,
        failures=failures,
    )


def _wrong_windows(spark: SparkSession, folder: str, survivors: DataFrame) -> list[str]:
    written = spark.read.parquet(f"{folder}/clicks").collect()
    starts = [row.start for row in written]
    failures = [] if len(set(starts)) == len(starts) else ["a window was written twice"]
    # Rows are in the order of arrival, so the windows hold them one after the other, up to the last closed one.
    hashes = survivors.orderBy("id").select(F.xxhash64("id").alias("hash")).toPandas()["hash"].to_numpy()
    if sum(row.rows for row in written) > len(hashes):
        failures.append("the windows hold more rows than the plans keep")
    at = 0
    for row in sorted(written, key=lambda row: row.start):
        if np.bitwise_xor.reduce(hashes[at : at + row.rows]) != row.fingerprint:
            failures.append(f"the window of {row.start} does not hold the rows that its plans keep")
        at += row.rows
    return failures


def main() -> int:
    # Ended from outside, the processes that were started here must not be left behind.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=10.0, help="half the length of the burst")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="penstock-cluster-", ignore_cleanup_errors=True) as folder:
        faults, failures = kill_in_burst(folder, seconds=chosen.seconds)
        found: list[Recovery] = []
        if not failures:
            verdict, found = check(local_session(), folder), inside_target(folder, faults)
            failures = verdict.failures
            print(
                f"{verdict.batches} batches, {verdict.offered:,} rows offered, {verdict.shed:,} shed, "
                f"{verdict.windows} windows; the slowest batch took {verdict.slowest_seconds:.1f} s"
            )
            print(undisturbed(ledger_of(folder), before=first_in_burst(folder)))
    print(f"target {TARGET_SECONDS:g} s;", *found)
    print("\n".join(failures) or "every window holds just the rows that its plans keep; the ledger balances")
    return 1 if failures or not all(each.is_back for each in found) else 0


if __name__ == "__main__":
    sys.exit(main())
