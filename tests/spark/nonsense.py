"""What must be refused, by what an argument takes."""

from __future__ import annotations

import math
from datetime import datetime
from pathlib import Path
from typing import Any

import pandas as pd
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

import penstock as ps
from penstock.policy.rows.load_aware import Learning
from penstock.spark.network_stream import Stream

NAN, INF = math.nan, math.inf
SECRET = "hunter2"


class BatchFrame:
    """Stands for a DataFrame that is no stream: one can be made only once Spark runs."""


FOLDERS = ["", "  ", 5, True, b"/data", ["/data"], Path, "a\0b", "file://host/data", Path("s3a://bucket/data")]
FOLDERS += [
    f"s3a://AKIA:{SECRET}/with/slashes@bucket/data",
    f"hdfs://me:{SECRET}@namenode:8020/data",
    "gs://bucket/data",
]
COLUMNS = ["", " ", 5, [""], [5], [None], ["value", "value"], {"value"}, b"value", True]
TEXTS = ["", " ", 5, ["x"], b"x", True]
# What must be refused, by what an argument takes.
BAD: dict[str, list[Any]] = {
    "positive": ["5", NAN, INF, True, [5], 0, -1, float],
    "not negative": ["5", NAN, INF, True, [5], -1, float],
    "fraction": ["0.5", NAN, INF, True, [0.5], -0.1, 1.1, float],
    "share": ["0.5", NAN, True, [0.5], 0, 1, -0.1, float],
    "step": ["0.5", NAN, True, [0.5], 0, 1.1, -0.1, float],
    "whole": ["2", 2.5, NAN, INF, True, [2], 0, -1, int],
    "count": ["2", 2.5, NAN, INF, True, [2], -1, int],
    "seed": ["1", 1.5, NAN, True, None, 1 << 64, int],
    "flag": ["yes", 1, None, bool],
    "folder": [*FOLDERS, None],
    "local folder": [*FOLDERS, None, ps.StorePath("s3a://bucket/data"), "s3a://bucket/data"],
    "spill": [*FOLDERS, ps.Spill],
    "name": ["", "../../../x", "a/b", "..", ".", ".hidden", "a b", "a\n", "x" * 300, "ü" * 150, 5, None, True, str],
    "node": ["", " ", 5, None, "a:left", "a>b"],
    "columns": COLUMNS,
    "some columns": [*COLUMNS, [], None],
    "column": TEXTS,
    "a column": [*TEXTS, None],
    "weight": ["", " ", 5, None, ["w"], "__penstock_kept"],
    "text": [*TEXTS, None],
    "text or none": TEXTS,
    "duration": ["", "soon", 5, NAN, "0 seconds", ["1 second"]],
    "policy of rows": ["uniform", 5, ps.Uniform, ps.LoadAware(), ps.ConceptDriven],
    "policy of windows": [
        *("concept", 5, ps.ConceptDriven, ps.Priority(keep={"a": 1.0})),
        *(ps.LoadAware(), ps.ConceptDriven(keep=0.1, passes=2), ps.ConceptDriven(keep=0.1, min_keep=0.1)),
        *(ps.ConceptDriven(keep=0.1, rest_share=0.1), ps.ConceptDriven(relative_error=0.1)),
        ps.ConceptDriven(keep=0.1, rule="neyman"),
    ],
    "policy row by row": ["las", 5, ps.LoadAware, ps.Uniform(), ps.ConceptDriven(keep=0.1)],
    "latency": ["5", NAN, INF, True, 0, -1, ps.AverageLatency, ps.AverageLatency(seconds=0), ps.Uniform(), None],
    "learning": [None, 5, Learning],
    "function": ["f", 5, None],
    "function or none": ["f", 5],
    "schema": ["", 5, None, "?", "total", "a INT, a INT"],
    "stream": [None, "events", 5, DataFrame, BatchFrame],
    "frame": [None, "events", 5, DataFrame],
    "frame or none": ["events", 5, DataFrame],
    "writer": [None, "noop", BatchFrame],
    "session": [None, "local[2]", SparkSession],
    "expression": ["", " ", 5, True, ["x"], None],
    "expression or none": ["", " ", 5, True, ["x"]],
    "made columns": [{"made": "value"}, {"made": 5}, {"__made": F.lit}, {}],
    "Column": [None, "value", 5, Column],
    "Column or none": ["value", 5, Column],
    "confidence": ["0.95", NAN, True, 0, 1, 95],
    "within": [(2, 1), (1,), "ab", (NAN, 1), (0, "1"), 5, (False, True)],
    "target": [0.05, "0.05", ps.MaxError],
    "outputs": [(), ("trips",), (ps.WindowAggregate,), (ps.WindowAggregate(name="a"), ps.WindowAggregate(name="a"))],
    "client": ["x", [("a", "b")], {"a": None}, {5: "x"}, {"bootstrap.servers": "x"}, {"sasl.password": [SECRET]}],
    "settings": ["x", {5: "x"}, {"spark.password": [SECRET]}],
    "streams": [("numbers",), (None,)],
    "stream of it": ["numbers", None, 5, Stream],
    "pandas": [None, "rows", [1], pd.DataFrame, pd.DataFrame({"other": [1]})],
    "rates": [{}, None, "a", {"a": 2}, {"a": "1"}, {5: 0.1}, dict],
    "targets": [None, "a", {"a": 0.05}, {"a": ps.MaxError}],
    "loss": [0.5, None, ps.LossTolerance],
    "value graph": [ps.ValueGraph.of((0, 1, 1)), {}, {"value": 1.0}, {"nope": ps.ValueGraph.of((0, 1, 1))}],
    "latency graph": [0.5, ps.LatencyGraph],
    "points": [((0, "1"), (1, 1)), ((0,), (1, 1)), (("a", 1),), ((0, True), (1, 1)), (5,), ((0, NAN), (1, 1))],
    "pieces": [((0, 1),), ((0, 1, "1"),), (5,), ((0, NAN, 1),), ((1, 0, 1),)],
    "word": ["", "a b", "a.b", 5, None, True, str],
    "store settings": [
        {"endpoint_url": f"https://me:{SECRET}@store:9000"},
        {"webhdfs": f"http://me:{SECRET}@namenode:9870"},
        {"session": object()},
    ],
    "learned share": ["0.5", NAN, True, [0.5], 0, -0.1],
    "key parts": [(5,), (None,), ()],
    "log path": ["spark.log", 5, Path],
    "trigger": ["1 second", 5],
    "moment": ["", "soon", 5, True, ["2026-01-31"], datetime],
    "output name": ["nope", 5, None],
}
CHOICE = ["best", "", 5, True, [], None]
