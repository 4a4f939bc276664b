"""What it costs to store rows while they are shed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from statistics import median

import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from rich.progress import Progress
from rich.table import Table

import penstock as ps
from benchmarks.turns import WARM_UP_TURNS, in_turns, ratios, told, triggered
from benchmarks.workload import costly, numbers, shedder_at
from penstock.demo.clicks import clicks_from

TURNS = 20
# Half of them fill about a second of two cores.
ROWS = 40_000
KEEP = 0.5


def spilling(spark: SparkSession, progress: Progress) -> Table:
    """Throughput of the demo's query with half of its rows shed, with a spill against without, in turns."""
    stored: dict[str, list[float]] = {"shed": [], "all": []}
    queries = {name: partial(_started, name, stored) for name in ("none", "shed", "all")}
    taken = in_turns(spark, progress, "spill", numbers(spark, ROWS), queries, turns=TURNS)
    table = Table(
        title=f"Spill: rows per busy second against none, demo query, {ROWS:,} rows a batch, half shed",
        title_justify="left",
    )
    for heading in ("stored", "batch", "throughput ratio", "95 % interval", "added per batch", "bytes a row"):
        table.add_column(heading, justify="right")
    table.add_row("nothing", f"{median(taken['none']):.2f} s", "1", "", "", "")
    for name in ("shed", "all"):
        added = median(mine - bare for mine, bare in zip(taken[name], taken["none"], strict=True))
        table.add_row(
            f"{name} rows", f"{median(taken[name]):.2f} s", *told(ratios(taken["none"], taken[name])),
            f"{added * 1000:+.0f} ms", f"{stored[name][-1]:.0f}",
        )  # fmt: skip
    return table


@contextmanager
def _started(name: str, stored: dict[str, list[float]], rows: DataFrame, checkpoint: str) -> Iterator[StreamingQuery]:
    folder = f"{checkpoint}-spill"
    spill = None if name == "none" else ps.Spill(folder, rows="all" if name == "all" else "shed")
    shedder = shedder_at(checkpoint, KEEP, spill=spill)
    counted = costly(clicks_from(rows).transform(shedder), "weight")
    with shedder.start(triggered(counted.writeStream.outputMode("update").format("noop"))) as run:
        yield run.query
    # The first batches do not count: how large they would be was not known yet, so some were kept whole.
    for batch in run.batches[WARM_UP_TURNS:]:
        if abs(batch.kept_share - KEEP) > 0.1:
            raise RuntimeError(f"batch {batch.batch_id} was to keep {KEEP} and kept {batch.kept} of {batch.offered}")
    if spill is not None:
        files = list(Path(folder).rglob("part-*.parquet"))
        in_files = sum(pq.read_metadata(file).num_rows for file in files)
        wanted = run.status.shed if name == "shed" else run.status.offered
        if in_files != wanted:
            raise RuntimeError(f"the benchmark was to spill {wanted} rows and spilled {in_files}")
        stored[name].append(sum(file.stat().st_size for file in files) / in_files)
