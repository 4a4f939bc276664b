"""Every door, with what each of its arguments takes."""

from __future__ import annotations

from functools import partial
from typing import Any

import pandas as pd
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import penstock as ps
from penstock.spark.backfill.result import Backfilled, NetworkBackfilled
from penstock.spark.run.ledger import Ledger
from tests.spark.door import Door, Given, value
from tests.spark.plain_doors import BOUNDED, DRAWN, GOVERNING, PLAIN_DOORS

GRAPH = {
    "loss": "loss",
    "value": "value graph",
    "latency": "latency graph",
    "importance": "positive",
    "error": "target",
}
WINDOWED: dict[str, Any] = {
    "function": "function",
    "returns": "schema",
    "time": "a column",
    "size_seconds": "positive",
    "slide_seconds": "positive",
    "latency_seconds": "positive",
    "value": "column",
    "row_id": "columns",
    "policy": "policy of windows",
    "weight": "weight",
    "buckets": "whole",
    "late_share": "share",
    **GOVERNING,
    **DRAWN,
    "checkpoint": "local folder",
}
BACKFILLED = {"into": "folder", "since": "moment", "until": "moment"}
SUMMED = {"value": "expression", "weight": "expression", **BOUNDED, "within": "within"}


def windowed(given: Given) -> dict[str, Any]:
    return {"function": pd.DataFrame, "returns": "total DOUBLE", **given.windowed()}


WINDOWED_SAID = {"policy": "(policy|windows|Uniform|relative_error|rule|passes|min_keep|rest_share|keep)", "key": "key"}
FRAME_SAID = dict.fromkeys(("events", "left", "right", "frame"), "a.* DataFrame")

DOORS: dict[str, Door] = {
    **PLAIN_DOORS,
    "Shedder.transform": Door(
        find=lambda given: given.shedder().__call__,
        good=lambda given: {"events": given.stream()},
        takes={"events": "stream"},
        said=FRAME_SAID,
    ),
    "Shedder.answers": Door(
        find=lambda given: given.shedder().answers,
        good=value({"outputs": (ps.WindowAggregate(name="a"),), "time": "timestamp", "window": "10 seconds"}),
        takes={"outputs": "outputs", "time": "a column", "window": "duration", "slide": "duration"},
        said={"outputs": "(output|WindowAggregate)", "window": "time span", "slide": "time span"},
    ),
    "Shedder.read_kafka": Door(
        find=lambda given: given.shedder().read_kafka,
        good=lambda given: {"spark": given.spark, "servers": "127.0.0.1:1", "topic": "clicks"},
        takes={
            "spark": "session",
            "servers": "text",
            "topic": "some columns",
            "starting": ("latest", "earliest"),
            "tasks": "whole",
            "client": "client",
        },
    ),
    "Shedder.start": Door(
        find=lambda given: given.shedder(applied=True).start,
        takes={"writer": "writer"},
        opens=False,
    ),
    "Shedder.start_each_batch": Door(
        find=lambda given: given.shedder().start_each_batch,
        good=lambda given: {"events": given.stream(), "write": print},
        takes={"events": "stream", "write": "function", "trigger": "trigger", "query_name": "text or none"},
        said=FRAME_SAID,
        opens=False,
    ),
    "Shedder.backfill": Door(
        find=lambda given: given.shedder(applied=True).backfill,
        good=lambda given: {
            "query": DataFrame.distinct,
            "window": F.window("timestamp", "1 second"),
            "into": given.folder,
        },
        takes={"query": "function", "window": "Column", **BACKFILLED},
        opens=False,
    ),
    "Operator.transform": Door(
        find=lambda given: given.operator().__call__,
        good=lambda given: {"events": given.stream()},
        takes={"events": "stream"},
        said=FRAME_SAID,
    ),
    "Operator.start": Door(
        find=lambda given: given.operator(applied=True).start,
        takes={"writer": "writer"},
        opens=False,
    ),
    "Operator.backfill": Door(
        find=lambda given: given.operator(applied=True).backfill,
        good=lambda given: {
            "query": DataFrame.distinct,
            "window": F.window("timestamp", "1 second"),
            "into": given.folder,
        },
        takes={"query": "function", "window": "Column", **BACKFILLED},
        opens=False,
    ),
    "Network.source": Door(
        find=lambda given: given.network().source,
        good=lambda given: {"name": "numbers", "frame": given.stream(), "row_id": "value"},
        takes={
            "name": "node",
            "frame": "stream",
            "row_id": "some columns",
            "arrival": "column",
            "event_time": "column",
            "watermark": "text",
        },
        said=FRAME_SAID,
    ),
    "Network.windows": Door(
        find=lambda given: given.network().windows,
        good=lambda given: {"answers": given.session.range(1), "output": "counts"},
        takes={"answers": "frame", "output": "output name"},
        said={"output": "output"},
        opens=False,
    ),
    "Network.backfill": Door(
        find=lambda given: given.fed().backfill,
        good=lambda given: {"into": given.folder},
        takes=BACKFILLED,
        opens=False,
    ),
    "Network.start": Door(find=lambda given: given.network().start, takes={"writer": "writer"}, opens=False),
    "Stream.filter": Door(
        find=lambda given: given.source().filter,
        good=value({"name": "even", "condition": "value % 2 = 0"}),
        takes={"name": "node", "condition": "expression", "seconds_per_tuple": "not negative"},
    ),
    "Stream.map": Door(
        find=lambda given: given.source().map,
        good=lambda _: {"name": "doubled", "columns": {"double": F.col("value") * 2}},
        takes={"name": "node", "seconds_per_tuple": "not negative", "columns": "made columns"},
        said={"columns": "map 'doubled'"},
    ),
    "Stream.union": Door(
        find=lambda given: given.two[0].union,
        good=lambda given: {"name": "both", "others": (given.two[1],)},
        takes={"name": "node", "others": "streams", "seconds_per_tuple": "not negative"},
        said={"others": "union 'both'"},
    ),
    "Stream.join": Door(
        find=lambda given: given.two[0].join,
        good=lambda given: {"name": "pairs", "other": given.two[1], "on": "value", "within_seconds": 1.0},
        takes={
            "name": "node",
            "other": "stream of it",
            "on": "some columns",
            "within_seconds": "positive",
            "seconds_per_tuple": "not negative",
        },
        said={"other": "join 'pairs'"},
    ),
    "Stream.aggregate": Door(
        find=lambda given: given.source().aggregate,
        good=value({"name": "counts", "window_seconds": 2}),
        takes={
            "name": "node",
            "window_seconds": "whole",
            "slide_seconds": "whole",
            "by": "columns",
            "of": "Column or none",
            "seconds_per_tuple": "not negative",
        },
    ),
    "Stream.output": Door(
        find=lambda given: given.source().output,
        good=value({"name": "answers"}),
        takes={"name": "node", "columns": "columns", **GRAPH},
    ),
    "shed_windows": Door(
        find=value(ps.shed_windows),
        good=windowed,
        takes={**WINDOWED, "key": "columns"},
        said=WINDOWED_SAID,
    ),
    "shed_join": Door(
        find=value(ps.shed_join),
        good=lambda given: {**windowed(given), "key": "value"},
        takes={**WINDOWED, "key": "some columns"},
        said=WINDOWED_SAID,
    ),
    "WindowShedder.transform": Door(
        find=lambda given: given.windows().__call__,
        good=lambda given: {"events": given.watermarked()},
        takes={"events": "stream", "others": "streams"},
        said={**FRAME_SAID, "others": "windows over 1 stream got 2"},
    ),
    "WindowShedder.transform, joining": Door(
        find=lambda given: given.joined().__call__,
        good=lambda given: {"events": given.watermarked(), "others": (given.watermarked(),)},
        takes={"events": "stream", "others": "streams"},
        said={**FRAME_SAID, "others": "a.* DataFrame"},
    ),
    "WindowShedder.start": Door(
        find=lambda given: given.windows(applied=True).start,
        takes={"writer": "writer"},
        opens=False,
    ),
    "Run.ledger": Door(
        find=lambda given: partial(Ledger(given.folder / "ledger").frame, given.session),
        takes={"last": "whole"},
        opens=False,
    ),
    "backfill_windows": Door(
        find=value(ps.backfill_windows),
        good=lambda given: {
            "spark": given.spark,
            "spill": given.folder / "spill",
            "function": pd.DataFrame,
            "returns": "total DOUBLE",
            "checkpoint": given.folder,
            "into": given.folder / "into",
        },
        takes={
            "spark": "session",
            "spill": "spill",
            "function": "function",
            "returns": "schema",
            "checkpoint": "folder",
            "weight": "weight",
            "answers": "frame or none",
            **BACKFILLED,
        },
        opens=False,
    ),
    "Backfilled.correct": Door(
        find=lambda given: Backfilled(answers=given.session.range(1), batches=1, rows=1, shed=1).correct,
        good=lambda given: {"approximate": given.session.range(2), "on": "id"},
        takes={"approximate": "frame", "on": "some columns"},
    ),
    "NetworkBackfilled.correct": Door(
        find=lambda given: (
            NetworkBackfilled(answers=given.session.range(1), delivered=None, batches=1, rows=1, shed=1).correct
        ),
        takes={"approximate": "frame"},
        opens=False,
    ),
    "count": Door(find=value(ps.count), takes={"value": "expression or none", "weight": "expression", **BOUNDED}),
    "sum": Door(find=value(ps.sum), good=value({"value": "value"}), takes=SUMMED),
    "avg": Door(find=value(ps.avg), good=value({"value": "value"}), takes=SUMMED),
    "variance": Door(find=value(ps.variance), good=value({"value": "value"}), takes=SUMMED),
    "quantile": Door(
        find=value(ps.quantile),
        good=value({"value": "value", "share": 0.5}),
        takes={"value": "expression", "share": "fraction", "weight": "expression"},
    ),
}


# What is public and takes nothing from users: what Penstock returns, what only says what went wrong, and what refuses
# whatever it is given.
NO_DOORS = {
    *("Batch", "Plan", "Policy", "Run", "KeepAll", "count_distinct", "errors"),
    *(name for name in ps.__all__ if name.endswith("Error")),
} - {"MaxError", "LeastError"}
