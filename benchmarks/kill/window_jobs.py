"""Jobs over windows: a function of one stream, and a join of two."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any, ClassVar

import pandas as pd
from pyspark.sql import functions as F

import penstock as ps
from benchmarks.kill.evidence import testify
from benchmarks.kill.jobs import Job, Life

RETURNS = "side BIGINT, value BIGINT, user BIGINT, second BIGINT"
OWN = ["side", "value", "user", "second"]


def survivors(witness: str, *sides: pd.DataFrame) -> pd.DataFrame:
    """Give the rows of a window back, and note which there were."""
    frames = [rows.assign(side=side)[OWN] for side, rows in enumerate(sides)]
    found = pd.concat(frames)
    testify(witness, {"rows": found.to_numpy().tolist()})
    return found


class Windows(Job):
    """A function over sliding windows, shed by concept, every row of them spilled."""

    SIDES: ClassVar[int] = 1

    def build(self, life: Life) -> Any:
        witness = str(self.folder / "witness")
        return ps.shed_windows(lambda rows: survivors(witness, rows), RETURNS, **self.options(life))

    def options(self, life: Life) -> dict[str, Any]:
        return {
            "time": "timestamp",
            "size_seconds": 2,
            "slide_seconds": 1,
            "key": "user",
            "row_id": "value",
            "policy": ps.ConceptDriven(keep=life.keep),
            "latency_seconds": 10 * life.latency_seconds,
            "probe_tuples": 10**6,
            "checkpoint": str(self.folder / "checkpoint"),
            "spill": self.spill,
        }

    def start(self, life: Life) -> ps.Run:
        windows = self.build(life)
        first, *others = (
            self.numbers(life).select("value", "user", "second", "timestamp").withWatermark("timestamp", "0 seconds")
            for _ in range(self.SIDES)
        )
        run: ps.Run = windows.start(self.to_sink(first.transform(windows, *others)))
        return run

    def identity(self, row: dict[str, Any]) -> str:
        return f"{_start_of(row)}|{row['side']}|{row['value']}"

    def counts(self, batch: int, rows: list[dict[str, Any]]) -> tuple[int, int]:
        """Count rows of the windows that were answered in a batch; a row counts once in each."""
        return sum(len(self._in_window(start)) for start in {_start_of(row) for row in rows}), len(rows)

    def _in_window(self, start: int) -> list[tuple[int, int]]:
        """Side and id of all rows of a window."""
        return [
            (side, value)
            for side in range(self.SIDES)
            for batch, at in self.evidence.seconds(source=side).items()
            if start <= at < start + 2
            for value in self.evidence.offered(source=side)[batch]
        ]

    def _changed(self) -> Iterable[str]:
        """Compare all calls of the function with what was committed of these groups in that window."""
        committed = set(self.evidence.committed())
        found: dict[int, list[dict[str, Any]]] = {}
        for batch, rows in self.evidence.written().items():
            if batch in committed:
                for row in rows:
                    found.setdefault(_start_of(row), []).append(row)
        for told in self.evidence.testimony():
            users = {user for _, _, user, _ in told["rows"]}
            # Rows of its last second are in every window, and tell which one it is.
            start = max((second for *_, second in told["rows"]), default=0) - 1
            seen = {(side, value) for side, value, _, _ in told["rows"]}
            known = {(row["side"], row["value"]) for row in found.get(start, []) if row["user"] in users}
            if start in found and seen != known:
                yield f"window {start} had {len(seen)} rows in one attempt, and {len(known)} as committed"

    def _lost(self) -> Iterable[str]:
        """Answer all windows that shed again from the spill: each must have all of its rows."""
        witness = str(self.folder / "witness-of-backfill")
        of_two = self.SIDES == 2

        def everything(left: pd.DataFrame, right: pd.DataFrame) -> pd.DataFrame:
            return survivors(witness, left, right)

        def all_of_one(rows: pd.DataFrame) -> pd.DataFrame:
            return survivors(witness, rows)

        done = ps.backfill_windows(
            self.spark,
            self.spill,
            everything if of_two else all_of_one,
            RETURNS,
            checkpoint=str(self.folder / "checkpoint"),
            into=str(self.folder / "backfill"),
        )
        exact: dict[int, Counter[tuple[int, int]]] = {}
        for row in done.answers.select(F.unix_timestamp("window.start").alias("start"), "side", "value").collect():
            exact.setdefault(row.start, Counter())[row.side, row.value] += 1
        committed = set(self.evidence.committed())
        answered = {
            _start_of(row) for batch, rows in self.evidence.written().items() if batch in committed for row in rows
        }
        for start in sorted(answered):
            offered = self._in_window(start)
            if exact.get(start) != Counter(offered):
                yield f"window {start} had {len(offered)} rows, and its spill {exact.get(start, Counter()).total()}"


class Join(Windows):
    """Two streams joined window by window, both shed and both spilled."""

    SIDES = 2

    def build(self, life: Life) -> Any:
        witness = str(self.folder / "witness")
        return ps.shed_join(lambda left, right: survivors(witness, left, right), RETURNS, **self.options(life))


def _start_of(row: dict[str, Any]) -> int:
    return int(row["window"]["start"].timestamp())
