"""Jobs whose batches are judged as they come: a stream, an operator, a network, and the backfill of a stream."""

from __future__ import annotations

import json
import shutil
import time
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any, ClassVar

from pyspark.sql import functions as F

import penstock as ps
from benchmarks.kill.evidence import witnessed
from benchmarks.kill.jobs import USERS, Job, Life
from benchmarks.workload import too_much
from penstock.control.guidance import Guidance
from penstock.model.forecast import Forecast
from penstock.model.load import Cost
from penstock.spark.backfill.result import Backfilled
from penstock.spark.compile.layout import planner_of
from penstock.spark.plan.log import PlanLog


def leave_costs(log: PlanLog, *, seconds_per_row: float) -> None:
    """Leave behind what an earlier run may have learned, so that plans shed from the first batch on."""
    cost = Cost(fixed_seconds=0.0, kept_seconds=seconds_per_row)
    forecast = Forecast(cost=cost, noise=0.1, late_factor=1.25)
    log.publish(Guidance(published_at=time.time(), forecast=forecast, tuples_per_unit=(1.0,)))


class Stream(Job):
    """One stream through ``ps.shed``, every row of it spilled."""

    def build(self, life: Life) -> Any:
        log = PlanLog(self.folder / "checkpoint" / "penstock" / "shed")
        if log.guidance() is None:
            leave_costs(log, seconds_per_row=1e-4)
        return ps.shed(
            latency_seconds=life.latency_seconds,
            checkpoint=str(self.folder / "checkpoint"),
            row_id="value",
            probe_tuples=life.probe_tuples,
            policy=too_much(ps.Uniform(keep=life.keep)),
            spill=self.spill,
        )

    def start(self, life: Life) -> ps.Run | None:
        self.shedder = self.build(life)
        kept = self.numbers(life).transform(self.shedder)
        run: ps.Run = self.shedder.start(self.to_sink(witnessed(kept, self.folder / "witness", columns=self.COLUMNS)))
        return run

    def _lost(self) -> Iterable[str]:
        spilled: dict[tuple[int, bool], Counter[int]] = {}
        for row in self.shedder.spilled().select("value", "batch", "shed").collect():
            spilled.setdefault((row.batch, row.shed), Counter())[row.value] += 1
        if not any(shed for _, shed in spilled):
            yield "nothing was shed, so nothing was shown"
        written, offered = self.evidence.written(), self.evidence.offered()
        for batch in self.evidence.committed():
            kept = Counter(row["value"] for row in written.get(batch, []))
            shed, passed = spilled.get((batch, True), Counter()), spilled.get((batch, False), Counter())
            if passed != kept or kept + shed != Counter(offered[batch]):
                yield (
                    f"batch {batch} read {len(offered[batch])} rows, wrote {kept.total()}, spilled {shed.total()} that "
                    f"it shed and {passed.total()} that it kept"
                )


def slow(row: dict[str, Any]) -> dict[str, Any]:
    """A millisecond for even values, next to nothing for odd ones."""
    if row["value"] % 2 == 0:
        time.sleep(0.001)
    return {"value": row["value"]}


class Operator(Stream):
    """A Python function that is too slow for its target."""

    def build(self, life: Life) -> Any:
        return ps.operator(
            slow,
            key="user",
            returns="value BIGINT",
            latency=0.05 * life.latency_seconds,
            checkpoint=str(self.folder / "checkpoint"),
            probe_tuples=life.probe_tuples,
            spill=self.spill,
        )


class Network(Job):
    """Two outputs of rows and one of windows behind one source."""

    COLUMNS = ("output", "start", "key", "row")
    # What an output of rows is to get, as divisor and rest, and the arcs on the way to it.
    OUTPUTS: ClassVar[dict[str, tuple[int, int, tuple[str, ...]]]] = {
        "odd rows": (2, 1, ("-> events", "events -> odd", "odd -> odd rows")),
        "third rows": (3, 0, ("-> events", "events -> third", "third -> hashed", "hashed -> third rows")),
    }

    def start(self, life: Life) -> ps.Run:
        network = self.network = ps.Network(
            checkpoint=str(self.folder / "checkpoint"),
            latency_seconds=life.latency_seconds,
            probe_tuples=life.probe_tuples,
            spill=self.spill,
        )
        events = network.source(
            "events", self.numbers(life), row_id="value", event_time="timestamp", watermark="1 second"
        )
        odd = events.filter("odd", F.col("value") % 2 == 1)
        odd.output("odd rows", columns=["value"])
        third = events.filter("third", F.col("value") % 3 == 0)
        third.map("hashed", digest=F.col("user") + 1).output("third rows", columns=["value", "digest"])
        odd.aggregate("counted", window_seconds=2, by="user").output("counts")
        # This machine is never as slow as that.
        leave_costs(planner_of(network).log, seconds_per_row=6.0 / life.rows)
        answers = witnessed(network.answers(), self.folder / "witness", columns=self.COLUMNS)
        run: ps.Run = network.start(self.to_sink(answers))
        return run

    def counts(self, batch: int, rows: list[dict[str, Any]]) -> tuple[int, int | None]:
        # What an arc drops is in its spill, and compared there.
        return len(self.evidence.offered()[batch]), None

    def _lost(self) -> Iterable[str]:
        dropped: dict[int, set[tuple[str, int]]] = {}
        for row in self.network.spilled().where("shed").select("value", "batch", "arc").collect():
            dropped.setdefault(row.batch, set()).add((row.arc, row.value))
        if not dropped:
            yield "nothing was shed, so nothing was shown"
        written, offered = self.evidence.written(), self.evidence.offered()
        for batch in self.entered:
            for output, (divisor, rest, arcs) in self.OUTPUTS.items():
                expected = {value for value in offered[batch] if value % divisor == rest}
                found = {json.loads(row["row"])["value"] for row in written.get(batch, []) if row["output"] == output}
                gone = {value for arc, value in dropped.get(batch, ()) if arc in arcs} & expected
                if found | gone != expected or found & gone:
                    yield (
                        f"batch {batch}: of {len(expected)} {output} {len(found)} were written and {len(gone)} spilled"
                    )


class Backfill(Stream):
    """A stream that has shed and is stopped; what lives and dies is its backfill, which reads the source again."""

    COMMITS = False

    @property
    def spill(self) -> None:  # type: ignore[override]
        return None

    @property
    def roots(self) -> list[Path]:
        return [self.folder / "checkpoint", self.folder / "backfill"]

    def prepare(self) -> None:
        run = super().start(self.next_life())
        assert run is not None
        watched = run.watch()
        for _ in range(4):
            next(watched)
        run.stop()
        self.evidence.note_offsets()

    def start(self, life: Life) -> ps.Run | None:
        """Do the backfill, or go on with one that was cut short; what is finished is compared, and begun anew."""
        told = self._compared(self.backfill(life))
        with (self.folder / "told").open("a") as file:
            file.writelines(f"{line}\n" for line in told)
        shutil.rmtree(self.folder / "backfill")
        return None

    def backfill(self, life: Life) -> Any:
        shedder = self.build(life)
        self.numbers(life).transform(shedder)
        by_user = F.window("timestamp", "1 second")
        return shedder.backfill(
            lambda rows: rows.groupBy(by_user, "user").agg(F.sum("weight").alias("rows")),
            window=by_user,
            into=str(self.folder / "backfill"),
        )

    def failures(self) -> list[str]:
        self.start(self.next_life())
        return (self.folder / "told").read_text().splitlines()

    def _compared(self, done: Backfilled) -> list[str]:
        """Compare exact answers with the source, and rows that were read again with the sink."""
        told = []
        offered, written = self.evidence.offered(), self.evidence.written()
        seconds = self.evidence.seconds()
        exact = {
            (row.start, row.user): row.rows
            for row in done.answers.select(F.unix_timestamp("window.start").alias("start"), "user", "rows").collect()
        }
        reader = self.spark.read.option("recursiveFileLookup", "true")
        stored = reader.parquet(str(self.folder / "backfill" / "rows")).select("batch", "value", "shed").collect()
        for batch in self.evidence.committed():
            truth = Counter(value % USERS for value in offered[batch])
            found = {user: rows for (start, user), rows in exact.items() if start == seconds[batch]}
            if found != truth:
                told.append(
                    f"batch {batch} has {sum(found.values())} rows in exact answers, and offered {truth.total()}"
                )
            rows = [row for row in stored if row.batch == batch]
            kept = Counter(row.value for row in rows if not row.shed)
            if kept != Counter(row["value"] for row in written[batch]) or len(rows) != len(offered[batch]):
                told.append(f"batch {batch} was read again and kept {kept.total()} rows, not those of the sink")
        return told
