"""A query of windows that is made to be killed: ``python -m benchmarks.window_driver FOLDER [BATCHES]``.

Windows of three seconds that slide by one, over a stream whose every batch is one second long; each answer bears a
fingerprint of the rows it rests on. Prints a line when the query runs; with BATCHES it stops by itself after as many.
"""

from __future__ import annotations

import sys

import pandas as pd
from pyspark.sql import functions as F

import penstock as ps

ROWS_PER_BATCH = 20_000


def fingerprint(rows: pd.DataFrame) -> pd.DataFrame:
    groups = rows.assign(square=rows["value"] ** 2 % 1_000_003).groupby("user")
    return pd.DataFrame(
        {
            "user": groups.size().index,
            "survivors": groups.size().to_numpy(),
            "total": groups["value"].sum().to_numpy(),
            "squares": groups["square"].sum().to_numpy(),
            "tuples": groups["weight"].sum().round(6).to_numpy(),
        }
    )


def main(folder: str, batches: int | None) -> None:
    spark = ps.local_session()
    source = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", ROWS_PER_BATCH)
    # The cube of a hash: a few large users, many small ones.
    share = F.expr("pmod(xxhash64(value), 1000) / 1000.0D")
    events = (
        source.option("numPartitions", 2)
        .load()
        .select("timestamp", "value", F.floor(share * share * share * 300).alias("user"))
        .withWatermark("timestamp", "1 second")
    )
    windows = ps.shed_windows(
        fingerprint,
        "user BIGINT, survivors BIGINT, total BIGINT, squares BIGINT, tuples DOUBLE",
        time="timestamp",
        size_seconds=3,
        slide_seconds=1,
        key="user",
        row_id="value",
        policy=ps.ConceptDriven(keep=0.05),
        latency_seconds=60,
        checkpoint=f"{folder}/checkpoint",
    )
    run = windows.start(events.transform(windows).writeStream.format("parquet").option("path", f"{folder}/out"))
    print("running", flush=True)
    for batch in run.watch():
        if batches is not None and batch.batch_id >= batches:
            break
    run.stop()
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else None)
