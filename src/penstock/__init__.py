"""Load shedding for Spark Structured Streaming: hold the latency target, count every drop, weigh every survivor."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.control.governor import Decision, Governor
    from penstock.model.batch import Batch
    from penstock.model.errors import (
        EnvironmentMissingError,
        InvalidInputError,
        NotSupportedError,
        PenstockError,
        PlanLogError,
    )
    from penstock.model.load import Cost, Load
    from penstock.model.plan import Plan
    from penstock.policy.baseline import KeepAll, Uniform
    from penstock.policy.contract import Policy
    from penstock.policy.priority import Priority
    from penstock.spark.backfill import Backfilled
    from penstock.spark.runtime import Run, Status
    from penstock.spark.sampler import compound_key
    from penstock.spark.session import local_session
    from penstock.spark.shed import Shedder, shed

__version__ = "0.1.0"

__all__ = [
    "Backfilled",
    "Batch",
    "Cost",
    "Decision",
    "EnvironmentMissingError",
    "Governor",
    "InvalidInputError",
    "KeepAll",
    "Load",
    "NotSupportedError",
    "PenstockError",
    "Plan",
    "PlanLogError",
    "Policy",
    "Priority",
    "Run",
    "Shedder",
    "Status",
    "Uniform",
    "compound_key",
    "local_session",
    "shed",
]

# Names are fetched when first used: Spark's Python workers import parts of this package in every new process, and
# should not wait for the rest of it.
_HOMES = {
    "Backfilled": "penstock.spark.backfill",
    "Batch": "penstock.model.batch",
    "Cost": "penstock.model.load",
    "Decision": "penstock.control.governor",
    "EnvironmentMissingError": "penstock.model.errors",
    "Governor": "penstock.control.governor",
    "InvalidInputError": "penstock.model.errors",
    "KeepAll": "penstock.policy.baseline",
    "Load": "penstock.model.load",
    "NotSupportedError": "penstock.model.errors",
    "PenstockError": "penstock.model.errors",
    "Plan": "penstock.model.plan",
    "PlanLogError": "penstock.model.errors",
    "Policy": "penstock.policy.contract",
    "Priority": "penstock.policy.priority",
    "Run": "penstock.spark.runtime",
    "Shedder": "penstock.spark.shed",
    "Status": "penstock.spark.runtime",
    "Uniform": "penstock.policy.baseline",
    "compound_key": "penstock.spark.sampler",
    "local_session": "penstock.spark.session",
    "shed": "penstock.spark.shed",
}


def __getattr__(name: str) -> object:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
