"""Streams and shedders that the tests of this folder share."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

import penstock as ps
from benchmarks.workload import too_much
from penstock.control.guidance import Guidance
from penstock.model.forecast import Forecast
from penstock.model.load import Cost
from penstock.spark.judge.sampling import stage_seed
from penstock.spark.plan.log import SAMPLING, PlanLog
from penstock.spark.run.ledger import Entries
from penstock.spark.shed import Shedder
from penstock.spark.store.folder import remove_tree
from penstock.spark.store.paths import StorePath, place

COST = Cost(fixed_seconds=0.1, kept_seconds=1e-4)


def numbers(spark: SparkSession, *, rows_per_batch: int = 5_000, partitions: int = 2) -> DataFrame:
    """A stream of 0, 1, 2, ... with as many rows in every batch."""
    source = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", rows_per_batch)
    return source.option("numPartitions", partitions).load()


def known_costs(checkpoint: str | StorePath, *, name: str = "shed", cost: Cost = COST, **learned) -> None:
    """Leave guidance behind, as an earlier run of the query would have."""
    PlanLog(place(checkpoint) / "penstock" / name).publish(
        Guidance(
            **{
                "published_at": time.time(),
                "forecast": Forecast(cost=cost, noise=0.1, late_factor=1.25),
                "tuples_per_unit": (1.0,),
                **learned,
            }
        )
    )


def always_shedding(checkpoint: str | StorePath, policy: ps.Policy, **options) -> Shedder:
    """A shedder for which every load is too much, from the first batch on."""
    known_costs(checkpoint)
    return ps.shed(
        latency_seconds=5,
        checkpoint=checkpoint,
        row_id=options.pop("row_id", "value"),
        policy=too_much(policy),
        **options,
    )


def forget_last(ledger: Entries, count: int) -> None:
    """Take the last entries out of a ledger, as if the driver had been killed before they were made."""
    _hold_only(ledger, list(ledger.batches())[:-count])


def forget_from(ledger: Entries, batch_id: int) -> None:
    """Take the entries of a batch, and of those after it, out of a ledger."""
    _hold_only(ledger, [entry for entry in ledger.batches() if entry.batch_id < batch_id])


def _hold_only(ledger: Entries, entries: list) -> None:
    remove_tree(ledger.path)
    for entry in entries:
        type(ledger)(ledger.path).append(entry)


def finish_batches(run: ps.Run, count: int) -> list[ps.Batch]:
    """Let a query finish some batches, and stop it."""
    watched = run.watch()
    for _ in range(count):
        next(watched)
    run.stop()
    return run.batches


def stage_of(checkpoint: str | StorePath, *, name: str = "shed", seed: int = 0) -> int:
    """What the draws of a shedder go by, to work out apart from it which rows it keeps."""
    return stage_seed(PlanLog(place(checkpoint) / "penstock" / name).salt(), seed=seed)


def draw_alike(checkpoint: str | Path, other: str | Path, *, name: str = "shed") -> None:
    """Give a query that was not started yet the draws of one that was, as if its checkpoint had been copied."""
    source, target = (Path(folder) / "penstock" / name / SAMPLING for folder in (checkpoint, other))
    target.parent.mkdir(parents=True)
    shutil.copy(source, target)
