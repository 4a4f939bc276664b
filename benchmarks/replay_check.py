"""What must hold after a query was killed and restarted any number of times."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from penstock.control.guidance import Guidance
from penstock.model.forecast import Forecast
from penstock.model.load import Cost
from penstock.spark.judge.sampling import row_hash, stage_seed, threshold_of
from penstock.spark.plan.log import PlanLog
from penstock.spark.run.ledger import Ledger
from penstock.spark.store.folder import Folder

ROWS_PER_BATCH = 20_000


def plan_log(folder: str) -> PlanLog:
    return PlanLog(Path(folder) / "checkpoint" / "penstock" / "shed")


def known_costs(folder: str) -> None:
    """Leave costs behind, so that the first batch is planned by the policy and not as a cold start."""
    log = plan_log(folder)
    if log.guidance() is None:
        cost = Cost(fixed_seconds=0.1, kept_seconds=1e-4)
        log.publish(
            Guidance(
                published_at=time.time(),
                forecast=Forecast(cost=cost, noise=0.1, late_factor=1.25),
                tuples_per_unit=(1.0,),
            )
        )


def planned_texts(folder: str) -> dict[str, str]:
    """Every plan entry as it stands, to see later whether it was changed."""
    return {path.name: path.read_text() for path in (plan_log(folder).path / "plans").glob("*.json")}


@dataclass(frozen=True)
class Verdict:
    """Figures and failures of one check."""

    committed: int
    windows: int
    rates: int
    recounted: int
    failures: list[str]


def check(spark: SparkSession, folder: str, seen: dict[str, str]) -> Verdict:
    """Compare output, ledger and plan log with what the logged plans say must have survived."""
    log = plan_log(folder)
    failures = [
        f"plan entry {name} was changed" for name, text in planned_texts(folder).items() if seen.get(name, text) != text
    ]
    stage = stage_seed(log.salt(), seed=0)
    committed = Folder(Path(folder) / "checkpoint" / "commits").ids()
    ledger = list(Ledger(log.path / "ledger").batches())
    entered = {batch.batch_id: batch for batch in ledger}
    if len(entered) != len(ledger):
        failures.append("a batch is in the ledger twice")
    decisions = {batch_id: log.decision(batch_id) for batch_id in log.batch_ids()}
    written: dict[int, list[tuple[int, float, int]]] = {}
    for row in spark.read.parquet(f"{folder}/out").select(F.unix_timestamp("start").alias("s"), "*").collect():
        written.setdefault(row.s, []).append((row.kept, row.weighed, row.fingerprint))
    for batch_id in committed:
        decision = decisions.get(batch_id)
        if decision is None:
            # The batch that Spark runs without rows, to close the last window.
            continue
        threshold = threshold_of(decision.plan.keep)
        low = batch_id * ROWS_PER_BATCH
        survivors = spark.range(low, low + ROWS_PER_BATCH).where(row_hash([F.col("id")], stage) < threshold)
        kept, fingerprint = survivors.agg(F.count("*"), F.bit_xor(F.xxhash64("id"))).first()
        batch = entered.get(batch_id)
        if batch is None:
            failures.append(f"batch {batch_id} is committed and not in the ledger")
        elif (batch.offered, batch.kept) != (ROWS_PER_BATCH, kept):
            failures.append(
                f"batch {batch_id}: the ledger has {batch.offered}, {batch.kept}, not {ROWS_PER_BATCH}, {kept}"
            )
        told = written.get(batch_id, [])
        if len(told) > 1:
            failures.append(f"window {batch_id} was written {len(told)} times")
        if told and (told[0][0], told[0][2]) != (kept, fingerprint):
            failures.append(f"window {batch_id} holds other rows than its plan keeps")
        if not told and batch_id + 2 < max(committed):
            failures.append(f"window {batch_id} is lost")
    rates = len({decision.plan.keep for decision in decisions.values() if decision})
    if rates < 2:
        failures.append("all batches had one keep rate: no kill came after a commit, and nothing was shown")
    return Verdict(
        committed=len(committed),
        windows=len(written),
        rates=rates,
        recounted=sum(batch.recounted for batch in ledger),
        failures=failures,
    )
