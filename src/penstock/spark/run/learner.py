"""What a handle is composed of: learners take finished batches in and renew what plans are made from."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from penstock.control.controller import Controller
from penstock.control.guidance import Guidance
from penstock.model.batch import Batch
from penstock.model.branches import BranchCounts
from penstock.spark.answers.metrics import OUTPUT_METRICS, read_branches


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """What one batch counted.

    Attributes
    ----------
    name
        Under which name the judge counts; other metrics of the query begin with it, too.
    observed
        Metrics by the name of their ``observe``.
    units_by_source
        Units of offset that each source read, as a planner counts them.
    """

    name: str
    observed: Mapping[str, Mapping[str, Any]]
    units_by_source: Sequence[float | None] = field(default=())

    @property
    def own(self) -> Mapping[str, Any]:
        """What the judge counted of all rows."""
        return self.observed.get(self.name) or {}

    @property
    def branches(self) -> BranchCounts | None:
        """What the drops of single outputs counted; None where there are none."""
        return read_branches(self.observed.get(f"{self.name}{OUTPUT_METRICS}"))

    @property
    def metrics(self) -> Mapping[str, Any]:
        """All metrics together, by their own names."""
        return {name: value for found in self.observed.values() for name, value in found.items()}


class Learner(Protocol):
    """A part of a handle. Any of these may raise: the handle says so and goes on with the next batch or round."""

    # What it learns, in the words of a status line.
    learns: str

    def learn(self, batch: Batch, counts: Counts) -> Batch:
        """Take in a finished batch; return it as the learners behind this one are to see it."""

    def enter(self, batch: Batch, counts: Counts) -> None:
        """Store what belongs to the entry of a batch, before it is entered; may be called again with the same."""

    def guidance(self, known: Guidance) -> Guidance:
        """Put what was learned into what the next batches are planned with; called about every second."""


class CostLearner:
    """Learns what batches cost and how fast rows come: the part that every handle has."""

    learns = "costs"

    def __init__(self, controller: Controller) -> None:
        self._controller = controller

    @property
    def known(self) -> Guidance:
        """What is known so far."""
        return self._controller.guidance(now=time.time())

    def learn(self, batch: Batch, counts: Counts) -> Batch:
        """Learn costs and rates."""
        self._controller.learn(
            batch,
            units_by_source=counts.units_by_source,
            branches=counts.branches,
            sampled_keys=counts.own.get("sampled_keys"),
        )
        return batch

    def enter(self, batch: Batch, counts: Counts) -> None:
        """Store nothing: the entry has it all."""

    def guidance(self, known: Guidance) -> Guidance:
        """Give nothing more: what is known of costs is what guidance begins with."""
        return known
