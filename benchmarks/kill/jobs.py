"""What jobs that are made to be killed have in common: lives under changing settings, and what holds in the end.

Rows bear ids, the sink is a folder of Parquet files, and witnesses in the tasks note which rows each attempt at a batch
had.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from pyspark.sql import DataFrame, SparkSession

import penstock as ps
from benchmarks.kill.evidence import Evidence, identity
from penstock.spark.run import control, lease

STARTS_AT_SECONDS = 10_000
USERS = 20
SETTINGS = {
    # Never put together, so that the log of the sink tells which batch wrote what.
    "spark.sql.streaming.fileSink.log.compactInterval": "1000",
    "spark.sql.streaming.minBatchesToRetain": "6",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
}


@contextmanager
def pruning_often() -> Iterator[None]:
    """Prune every few batches: seldom in a stream that runs for days, it is to happen between two deaths here.

    Nor does a start wait for the driver before it: that one is known to be dead.
    """
    before = control.PRUNE_EVERY_BATCHES, lease.HEARD_SECONDS
    control.PRUNE_EVERY_BATCHES, lease.HEARD_SECONDS = 4, 0.0
    try:
        yield
    finally:
        control.PRUNE_EVERY_BATCHES, lease.HEARD_SECONDS = before


@dataclass(frozen=True)
class Life:
    """What is in force from one start of a job to its end."""

    number: int

    @property
    def keep(self) -> float:
        return (0.7, 0.2, 0.5, 0.35)[self.number % 4]

    @property
    def latency_seconds(self) -> float:
        return (5.0, 9.0)[self.number % 2]

    @property
    def rows(self) -> int:
        return (300, 450)[self.number // 2 % 2]

    @property
    def probe_tuples(self) -> int:
        return (200, 60)[self.number % 2]


class Job:
    """A job in a folder. ``start`` begins a life of it; ``failures`` says what does not hold after the last one."""

    COLUMNS: ClassVar[tuple[str, ...]] = ("value",)
    # Whether its lives commit batches.
    COMMITS: ClassVar[bool] = True

    def __init__(self, spark: SparkSession, folder: str | Path) -> None:
        self.spark = spark
        self.folder = Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        self.evidence = Evidence(self.folder)
        for name, value in SETTINGS.items():
            spark.conf.set(name, value)

    @property
    def roots(self) -> list[Path]:
        """Where Penstock writes."""
        return [self.folder / "checkpoint", self.folder / "spill"]

    def prepare(self) -> None:
        """Do what comes before the first life."""

    def next_life(self) -> Life:
        """Count the lives of this job."""
        file = self.folder / "lives"
        number = int(file.read_text()) if file.exists() else 0
        file.write_text(str(number + 1))
        return Life(number)

    def start(self, life: Life) -> ps.Run | None:
        """Start the job; None if it is done already."""
        raise NotImplementedError

    def failures(self) -> list[str]:
        """Run a last life that nothing disturbs, and compare what there is to see."""
        run = self.start(self.next_life())
        assert run is not None
        watched = run.watch()
        for _ in range(3):
            next(watched)
        run.stop()
        self.evidence.note_offsets()
        entered = [row.asDict() for row in run.ledger().collect()]
        found = [*self._unbalanced(entered), *self._doubled(), *self._changed()]
        try:
            found += self._lost()
        except ps.PenstockError as refused:
            found.append(f"what was stored is refused: {refused}")
        return found

    def numbers(self, life: Life) -> DataFrame:
        """0, 1, 2, ...: a second of event time a batch."""
        source = self.spark.readStream.format("rate-micro-batch").option("rowsPerBatch", life.rows)
        source = source.option("startTimestamp", STARTS_AT_SECONDS * 1_000).option("advanceMillisPerBatch", 1_000)
        return (
            source.option("numPartitions", 1)
            .load()
            .selectExpr("*", f"value % {USERS} AS user", "unix_timestamp(timestamp) AS second")
        )

    def to_sink(self, rows: DataFrame) -> Any:
        writer = rows.writeStream.format("parquet").option("path", str(self.folder / "out"))
        return writer.trigger(processingTime="200 milliseconds")

    @property
    def spill(self) -> ps.Spill:
        return ps.Spill(str(self.folder / "spill"), rows="all")

    def identity(self, row: dict[str, Any]) -> str:
        """Name a row of the sink."""
        return identity(row, self.COLUMNS)

    def counts(self, batch: int, rows: list[dict[str, Any]]) -> tuple[int, int | None]:
        """Count offered and kept rows of a batch, by Spark's log and by the sink; None where it has several outputs."""
        return len(self.evidence.offered()[batch]), len(rows)

    def _unbalanced(self, entered: list[dict[str, Any]]) -> Iterable[str]:
        """Compare the ledger with the source and with the sink."""
        written, committed = self.evidence.written(), self.evidence.committed()
        times = Counter(batch["batch_id"] for batch in entered)
        yield from (f"batch {batch} is in the ledger {n} times" for batch, n in times.items() if n > 1)
        missing = sorted(set(committed) - set(times))
        yield from (f"batch {batch} is committed and not in the ledger" for batch in missing)
        yield from (f"batch {batch} is in the ledger and not committed" for batch in set(times) - set(committed))
        self.entered = sorted(times)
        for batch in entered:
            number = batch["batch_id"]
            offered, kept = self.counts(number, written.get(number, []))
            told = batch["offered"], batch["kept"], batch["shed"]
            if kept is None and told[0] != offered:
                yield f"batch {number}: the ledger has {told[0]} rows, the source {offered}"
            if kept is not None and told != (offered, kept, offered - kept):
                yield f"batch {number}: the ledger has {told}, the sink {kept} rows of {offered}"

    def _doubled(self) -> Iterable[str]:
        """Find rows that are twice in the sink."""
        times = Counter(self.identity(row) for rows in self.evidence.written().values() for row in rows)
        doubled = [row for row, n in times.items() if n > 1]
        if doubled:
            yield f"{len(doubled)} rows are in the sink more than once, as {doubled[:3]}"

    def _changed(self) -> Iterable[str]:
        """Compare all attempts at a batch with what was committed of it."""
        written = self.evidence.written()
        committed = {b: {self.identity(row) for row in written.get(b, [])} for b in self.evidence.committed()}
        seen: dict[int, dict[int, set[str]]] = {}
        for told in self.evidence.testimony():
            number, rows = told["batch"], set(told["rows"])
            before = seen.setdefault(number, {}).setdefault(told["partition"], rows)
            if rows != before:
                yield f"batch {number} had {len(before)} rows of partition {told['partition']}, then {len(rows)}"
        for number, parts in seen.items():
            if number in committed and set().union(*parts.values()) != committed[number]:
                yield f"batch {number} had other rows when it was tried than the {len(committed[number])} in the sink"

    def _lost(self) -> Iterable[str]:
        """Find rows that are neither in the sink nor in the spill, or in both."""
        raise NotImplementedError
