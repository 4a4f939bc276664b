"""Load shedding for Spark Structured Streaming: hold the latency target, count every drop, weigh every survivor."""

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
from penstock.spark.runtime import Run, Status
from penstock.spark.sampler import compound_key
from penstock.spark.session import local_session
from penstock.spark.shed import Shedder, shed

__version__ = "0.1.0"

__all__ = [
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
