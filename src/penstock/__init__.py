"""Load shedding for Spark Structured Streaming: hold the latency target, count every drop, weigh every survivor."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.control.governor import Decision, Governor
    from penstock.model.batch import Batch
    from penstock.model.error_target import MaxError
    from penstock.model.errors import (
        EnvironmentMissingError,
        InvalidInputError,
        LeaseLostError,
        NotSupportedError,
        OperatorError,
        PenstockError,
        PlanLogError,
        SpillError,
        StoreError,
        TargetMissedError,
    )
    from penstock.model.load import Cost, Load
    from penstock.model.network_plan import Drop, NetworkPlan
    from penstock.model.plan import Plan
    from penstock.model.quality import Histogram, LatencyGraph, LossTolerance, ValueGraph
    from penstock.policy.baseline import KeepAll, Uniform
    from penstock.policy.concept import ConceptDriven
    from penstock.policy.constraint import AverageLatency, MaximumLatency, WindowLatency
    from penstock.policy.contract import Policy
    from penstock.policy.density import Density
    from penstock.policy.least_error import LeastError
    from penstock.policy.load_aware import FullKnowledge, Learning, LoadAware, StrawMan
    from penstock.policy.priority import Priority
    from penstock.policy.roadmap import RoadMap
    from penstock.spark.answers.aggregates import avg, count, count_distinct, quantile, sum, variance
    from penstock.spark.answers.outputs import WindowAggregate
    from penstock.spark.backfill.result import Backfilled, NetworkBackfilled
    from penstock.spark.backfill.windows import backfill_windows
    from penstock.spark.judge.sampling import compound_key
    from penstock.spark.network import Network
    from penstock.spark.network_stream import Stream
    from penstock.spark.operator import Operator, operator
    from penstock.spark.run.handle import Run, Status
    from penstock.spark.run.network_counts import OutputStatus
    from penstock.spark.session import local_session
    from penstock.spark.shed import Shedder, shed
    from penstock.spark.spill.options import Spill
    from penstock.spark.store.paths import StorePath
    from penstock.spark.windows.shedding import join_pairs, shed_join, shed_windows

__version__ = "0.1.0"

__all__ = [
    "AverageLatency",
    "Backfilled",
    "Batch",
    "ConceptDriven",
    "Cost",
    "Decision",
    "Density",
    "Drop",
    "EnvironmentMissingError",
    "FullKnowledge",
    "Governor",
    "Histogram",
    "InvalidInputError",
    "KeepAll",
    "LatencyGraph",
    "Learning",
    "LeaseLostError",
    "LeastError",
    "Load",
    "LoadAware",
    "LossTolerance",
    "MaxError",
    "MaximumLatency",
    "Network",
    "NetworkBackfilled",
    "NetworkPlan",
    "NotSupportedError",
    "Operator",
    "OperatorError",
    "OutputStatus",
    "PenstockError",
    "Plan",
    "PlanLogError",
    "Policy",
    "Priority",
    "RoadMap",
    "Run",
    "Shedder",
    "Spill",
    "SpillError",
    "Status",
    "StoreError",
    "StorePath",
    "StrawMan",
    "Stream",
    "TargetMissedError",
    "Uniform",
    "ValueGraph",
    "WindowAggregate",
    "WindowLatency",
    "avg",
    "backfill_windows",
    "compound_key",
    "count",
    "count_distinct",
    "join_pairs",
    "local_session",
    "operator",
    "quantile",
    "shed",
    "shed_join",
    "shed_windows",
    "sum",
    "variance",
]

# Names are fetched when first used: Spark's Python workers import parts of this package in every new process, and
# should not wait for the rest of it.
_HOMES = {
    "AverageLatency": "penstock.policy.constraint",
    "Backfilled": "penstock.spark.backfill.result",
    "Batch": "penstock.model.batch",
    "ConceptDriven": "penstock.policy.concept",
    "Cost": "penstock.model.load",
    "Decision": "penstock.control.governor",
    "Density": "penstock.policy.density",
    "Drop": "penstock.model.network_plan",
    "EnvironmentMissingError": "penstock.model.errors",
    "FullKnowledge": "penstock.policy.load_aware",
    "Governor": "penstock.control.governor",
    "Histogram": "penstock.model.quality",
    "InvalidInputError": "penstock.model.errors",
    "KeepAll": "penstock.policy.baseline",
    "LatencyGraph": "penstock.model.quality",
    "Learning": "penstock.policy.load_aware",
    "LeaseLostError": "penstock.model.errors",
    "LeastError": "penstock.policy.least_error",
    "Load": "penstock.model.load",
    "LoadAware": "penstock.policy.load_aware",
    "LossTolerance": "penstock.model.quality",
    "MaxError": "penstock.model.error_target",
    "MaximumLatency": "penstock.policy.constraint",
    "Network": "penstock.spark.network",
    "NetworkPlan": "penstock.model.network_plan",
    "NetworkBackfilled": "penstock.spark.backfill.result",
    "NotSupportedError": "penstock.model.errors",
    "Operator": "penstock.spark.operator",
    "OperatorError": "penstock.model.errors",
    "OutputStatus": "penstock.spark.run.network_counts",
    "PenstockError": "penstock.model.errors",
    "Plan": "penstock.model.plan",
    "PlanLogError": "penstock.model.errors",
    "Policy": "penstock.policy.contract",
    "Priority": "penstock.policy.priority",
    "RoadMap": "penstock.policy.roadmap",
    "Run": "penstock.spark.run.handle",
    "Shedder": "penstock.spark.shed",
    "Spill": "penstock.spark.spill.options",
    "SpillError": "penstock.model.errors",
    "Status": "penstock.spark.run.handle",
    "StoreError": "penstock.model.errors",
    "StorePath": "penstock.spark.store.paths",
    "StrawMan": "penstock.policy.load_aware",
    "Stream": "penstock.spark.network_stream",
    "TargetMissedError": "penstock.model.errors",
    "Uniform": "penstock.policy.baseline",
    "ValueGraph": "penstock.model.quality",
    "WindowAggregate": "penstock.spark.answers.outputs",
    "WindowLatency": "penstock.policy.constraint",
    "avg": "penstock.spark.answers.aggregates",
    "backfill_windows": "penstock.spark.backfill.windows",
    "compound_key": "penstock.spark.judge.sampling",
    "count": "penstock.spark.answers.aggregates",
    "count_distinct": "penstock.spark.answers.aggregates",
    "join_pairs": "penstock.spark.windows.shedding",
    "local_session": "penstock.spark.session",
    "operator": "penstock.spark.operator",
    "quantile": "penstock.spark.answers.aggregates",
    "shed": "penstock.spark.shed",
    "shed_join": "penstock.spark.windows.shedding",
    "shed_windows": "penstock.spark.windows.shedding",
    "sum": "penstock.spark.answers.aggregates",
    "variance": "penstock.spark.answers.aggregates",
}


def __getattr__(name: str) -> object:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
