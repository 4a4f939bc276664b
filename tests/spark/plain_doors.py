"""Doors that do without a session."""

from __future__ import annotations

import pandas as pd

import penstock as ps
from penstock.control.governor import Governor
from penstock.model.load import Cost
from penstock.model.quality import Histogram
from penstock.policy.rows.load_aware import FullKnowledge, Learning, StrawMan
from tests.spark.door import Door, value

GOVERNING = {"probe_tuples": "positive", "grace_seconds": "positive"}
DRAWN = {"seed": "seed", "name": "name", "spill": "spill", "checkpoint": "folder"}
BOUNDED = {"confidence": "confidence", "method": ("normal", "hoeffding"), "target": "target"}
LEARNING = {"learning": "learning", "check_utility": "function or none"}
PLAIN_DOORS: dict[str, Door] = {
    "shed": Door(
        find=value(ps.shed),
        good=lambda given: {"latency_seconds": 5, "checkpoint": given.folder},
        takes={
            "latency_seconds": "positive",
            "row_id": "columns",
            "key": "columns",
            "value": "column",
            "arrival": "column",
            "policy": "policy of rows",
            "weight": "weight",
            "latency_of": ("oldest", "mean"),
            "late_share": "share",
            **GOVERNING,
            **DRAWN,
        },
        spark=False,
    ),
    "Network": Door(
        find=value(ps.Network),
        good=lambda given: {"checkpoint": given.folder},
        takes={
            "latency_seconds": "positive",
            "shedding": ("random", "semantic", "uniform", "none"),
            "late_share": "share",
            "step": "step",
            **GOVERNING,
            **DRAWN,
        },
        spark=False,
    ),
    "operator": Door(
        find=value(ps.operator),
        good=lambda given: {
            "function": dict,
            "key": "value",
            "returns": "value BIGINT",
            "latency": 5,
            "checkpoint": given.folder,
        },
        takes={
            "function": "function",
            "key": "some columns",
            "returns": "text",
            "latency": "latency",
            "arrival": "column",
            "policy": "policy row by row",
            "utility": "column",
            "true_cost": "column",
            "batchwise": "flag",
            "chunk_tuples": "whole",
            "on_error": ("fail", "skip"),
            "weight": "weight",
            **GOVERNING,
            **DRAWN,
        },
        spark=False,
    ),
    "Spill": Door(
        find=value(ps.Spill),
        good=lambda given: {"path": given.folder},
        takes={"path": "folder", "rows": ("shed", "all"), "keep_batches": "whole"},
        said={"path": "spill"},
        spark=False,
    ),
    "StorePath": Door(
        find=value(ps.StorePath),
        good=value({"address": "s3a://bucket/data"}),
        takes={"address": "text", "settings": "store settings"},
        said={"settings": "(endpoint_url|webhdfs|settings)"},
        spark=False,
    ),
    "WindowAggregate": Door(
        find=value(ps.WindowAggregate),
        good=value({"name": "trips"}),
        takes={
            "name": "word",
            "aggregate": ("count", "sum", "avg", "variance"),
            "value": "text or none",
            "where": "text or none",
            "group": "text or none",
            **BOUNDED,
            "within": "within",
        },
        spark=False,
    ),
    "MaxError": Door(
        find=value(ps.MaxError),
        good=value({"relative": 0.05}),
        takes={
            "relative": "positive",
            "confidence": "confidence",
            "otherwise": ("warn", "null", "stop"),
            "method": ("normal", "hoeffding"),
        },
        spark=False,
    ),
    "Governor": Door(
        find=value(Governor),
        good=value({"latency_seconds": 5}),
        takes={
            "latency_seconds": "positive",
            "latency_of": ("oldest", "mean"),
            "policy": "policy of rows",
            "late_share": "share",
            **GOVERNING,
        },
        spark=False,
    ),
    "Uniform": Door(find=value(ps.Uniform), takes={"keep": "fraction", "min_keep": "fraction"}, spark=False),
    "Priority": Door(
        find=value(ps.Priority),
        good=value({"keep": {"vip": 1.0}}),
        takes={"keep": "rates", "listed_share": "fraction", "min_keep": "fraction"},
        spark=False,
    ),
    "ConceptDriven": Door(
        find=value(ps.ConceptDriven),
        takes={
            "keep": "fraction",
            "max_tuples": "positive",
            "relative_error": "positive",
            "rule": ("equal", "proportional", "neyman"),
            "wins": ("budget", "coverage"),
            "passes": ("1", "2"),
            "rest_share": "fraction",
            "min_keep": "fraction",
        },
        spark=False,
    ),
    "LeastError": Door(
        find=value(ps.LeastError),
        takes={"targets": "targets", "confidence": "confidence", "min_keep": "fraction"},
        spark=False,
    ),
    "LoadAware": Door(find=value(ps.LoadAware), takes=LEARNING, spark=False),
    "FullKnowledge": Door(find=value(FullKnowledge), takes=LEARNING, spark=False),
    "StrawMan": Door(
        find=value(StrawMan),
        good=value({"mean_seconds": 0.1}),
        takes={"mean_seconds": "positive", **LEARNING},
        spark=False,
    ),
    "Density": Door(
        find=value(ps.Density),
        takes={
            "min_keep": "fraction",
            "true_costs": "flag",
            "target": "positive",
            "bend": "not negative",
            "drift": "positive",
            **LEARNING,
        },
        spark=False,
    ),
    "Learning": Door(
        find=value(Learning),
        takes={
            "eps": "learned share",
            "delta": "share",
            "every_tuples": "whole",
            "tolerance": "not negative",
            "by_traffic": "flag",
            "eager": "flag",
            "sync_every_tuples": "count",
            "fade_above_tuples": "positive",
            "seed": "seed",
        },
        spark=False,
    ),
    "AverageLatency": Door(
        find=value(ps.AverageLatency), good=value({"seconds": 5}), takes={"seconds": "not negative"}, spark=False
    ),
    "MaximumLatency": Door(
        find=value(ps.MaximumLatency), good=value({"seconds": 5}), takes={"seconds": "not negative"}, spark=False
    ),
    "WindowLatency": Door(
        find=value(ps.WindowLatency),
        good=value({"seconds": 5}),
        takes={"seconds": "not negative", "tuples": "whole"},
        spark=False,
    ),
    "Cost": Door(
        find=value(Cost),
        good=value({"fixed_seconds": 0.1, "kept_seconds": 0.1}),
        takes=dict.fromkeys(("fixed_seconds", "kept_seconds", "shed_seconds", "foreign_seconds"), "not negative"),
        spark=False,
    ),
    "LossTolerance": Door(
        find=value(ps.LossTolerance.of),
        good=value({"points": ((1, 1),)}),
        takes={"points": "points", "hull": "flag"},
        said={"points": "graph"},
        spark=False,
    ),
    "LatencyGraph": Door(
        find=value(ps.LatencyGraph.of),
        good=value({"points": ((1, 1),)}),
        takes={"points": "points"},
        said={"points": "graph"},
        spark=False,
    ),
    "ValueGraph": Door(
        find=value(ps.ValueGraph.of),
        good=value({"pieces": ((0, 1, 1),)}),
        takes={"pieces": "pieces"},
        said={"pieces": "graph"},
        spark=False,
    ),
    "Histogram": Door(
        find=value(Histogram.of),
        good=value({"bins": ((0, 1, 1),)}),
        takes={"bins": "pieces"},
        said={"bins": "histogram"},
        spark=False,
    ),
    "local_session": Door(
        find=value(ps.local_session),
        takes={"cores": "whole", "settings": "settings", "log_path": "log path"},
        spark=False,
        opens=False,
    ),
    "join_pairs": Door(
        find=value(ps.join_pairs),
        good=lambda _: {
            "left": pd.DataFrame({"value": [1], "weight": [2.0]}),
            "right": pd.DataFrame({"value": [1], "weight": [2.0]}),
            "on": "value",
        },
        takes={"left": "pandas", "right": "pandas", "on": "some columns", "weight": "weight"},
        spark=False,
    ),
    "compound_key": Door(
        find=value(ps.compound_key),
        good=value({"columns": ("de", "mobile")}),
        takes={"columns": "key parts"},
        said={"columns": "compound key"},
        spark=False,
    ),
}
