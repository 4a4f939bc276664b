"""Load shedding for Spark Structured Streaming: hold the latency target, count every drop, weigh every survivor."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.model import errors
    from penstock.model.batch import Batch
    from penstock.model.error_target import MaxError
    from penstock.model.errors import InvalidInputError, PenstockError
    from penstock.model.plan import Plan
    from penstock.model.quality import LatencyGraph, LossTolerance, ValueGraph
    from penstock.policy.baseline import KeepAll, Uniform
    from penstock.policy.contract import Policy
    from penstock.policy.least_error import LeastError
    from penstock.policy.priority import Priority
    from penstock.policy.rows.constraint import AverageLatency, MaximumLatency, WindowLatency
    from penstock.policy.rows.density import Density
    from penstock.policy.rows.load_aware import Learning, LoadAware
    from penstock.policy.strata.concept import ConceptDriven
    from penstock.spark.answers.aggregates import avg, count, count_distinct, quantile, sum, variance
    from penstock.spark.answers.outputs import WindowAggregate
    from penstock.spark.backfill.windows import backfill_windows
    from penstock.spark.judge.sampling import compound_key
    from penstock.spark.network import Network
    from penstock.spark.operator import operator
    from penstock.spark.run.handle import Run
    from penstock.spark.session import local_session
    from penstock.spark.shed import shed
    from penstock.spark.spill.options import Spill
    from penstock.spark.store.paths import StorePath
    from penstock.spark.windows.shedding import join_pairs, shed_join, shed_windows

__version__ = "0.1.0"

__all__ = [
    "AverageLatency",
    "Batch",
    "ConceptDriven",
    "Density",
    "InvalidInputError",
    "KeepAll",
    "LatencyGraph",
    "Learning",
    "LeastError",
    "LoadAware",
    "LossTolerance",
    "MaxError",
    "MaximumLatency",
    "Network",
    "PenstockError",
    "Plan",
    "Policy",
    "Priority",
    "Run",
    "Spill",
    "StorePath",
    "Uniform",
    "ValueGraph",
    "WindowAggregate",
    "WindowLatency",
    "avg",
    "backfill_windows",
    "compound_key",
    "count",
    "count_distinct",
    "errors",
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
    "errors": "penstock.model.errors",
    "AverageLatency": "penstock.policy.rows.constraint",
    "Batch": "penstock.model.batch",
    "ConceptDriven": "penstock.policy.strata.concept",
    "Density": "penstock.policy.rows.density",
    "InvalidInputError": "penstock.model.errors",
    "KeepAll": "penstock.policy.baseline",
    "LatencyGraph": "penstock.model.quality",
    "LeastError": "penstock.policy.least_error",
    "Learning": "penstock.policy.rows.load_aware",
    "LoadAware": "penstock.policy.rows.load_aware",
    "LossTolerance": "penstock.model.quality",
    "MaxError": "penstock.model.error_target",
    "MaximumLatency": "penstock.policy.rows.constraint",
    "Network": "penstock.spark.network",
    "PenstockError": "penstock.model.errors",
    "Plan": "penstock.model.plan",
    "Policy": "penstock.policy.contract",
    "Priority": "penstock.policy.priority",
    "Run": "penstock.spark.run.handle",
    "Spill": "penstock.spark.spill.options",
    "StorePath": "penstock.spark.store.paths",
    "Uniform": "penstock.policy.baseline",
    "ValueGraph": "penstock.model.quality",
    "WindowAggregate": "penstock.spark.answers.outputs",
    "WindowLatency": "penstock.policy.rows.constraint",
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
        home = import_module(_HOMES[name])
        # A module that is public as a whole.
        return home if name == "errors" else getattr(home, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
