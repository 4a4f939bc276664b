"""The latency target and how strictly it is taken: what deciding and learning have in common."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from penstock.model.batch import Batch
from penstock.model.errors import require_choice, require_positive, require_share


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Say which latency to hold, and what may be done while nobody knows how.

    Parameters
    ----------
    latency_seconds
        The target, arrival to commit.
    latency_of
        Whose latency: ``"oldest"``, of the row of a batch that arrived first, or ``"mean"``, of its rows on average.
    late_share
        Share of batches that may be late.
    probe_tuples
        Before costs are known, a batch takes at most this many rows, then ``PROBE_GROWTH`` times what went well.
    grace_seconds
        How long a plan may rest on guidance that is no longer renewed; after that everything is kept.

    >>> Target(latency_seconds=6.0).batch_seconds, Target(latency_seconds=6.0, latency_of="mean").batch_seconds
    (3.0, 4.0)
    """

    PROBE_GROWTH = 4

    latency_seconds: float
    latency_of: Literal["oldest", "mean"] = "oldest"
    late_share: float = 0.05
    probe_tuples: int = 20_000
    grace_seconds: float = 60.0

    def __post_init__(self) -> None:
        require_positive("latency_seconds", self.latency_seconds, meaning="the time from arrival to result to hold")
        require_choice("latency_of", self.latency_of, ("oldest", "mean"), meaning="whose latency to hold")
        require_share("late_share", self.late_share, meaning="the share of batches that may be late")
        require_positive("probe_tuples", self.probe_tuples, meaning="the most tuples to take before costs are known")
        require_positive("grace_seconds", self.grace_seconds, meaning="how long old guidance may be relied on")

    @property
    def waiting_share(self) -> float:
        """Part of the time since the batch before that the row has waited whose latency is held."""
        return 1.0 if self.latency_of == "oldest" else 0.5

    @property
    def batch_seconds(self) -> float:
        """Longest that a batch may take in the long run."""
        return self.latency_seconds / (1 + self.waiting_share)

    def late(self, batch: Batch) -> bool:
        """Whether a batch missed the target."""
        latency = batch.latency_seconds if self.latency_of == "oldest" else batch.mean_latency_seconds
        return latency is not None and latency > self.latency_seconds
