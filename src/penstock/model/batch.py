"""What one batch did: the entry of the ledger."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from penstock.model.errors import InvalidInputError, require_fraction, require_not_negative


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """One finished micro-batch, as the ledger keeps it.

    ``offered = kept + shed`` holds for every batch, or the batch cannot be made.

    Attributes
    ----------
    batch_id
        Spark's id of the micro-batch.
    offered, kept, shed
        Tuples that reached the shedder, survived it, and were dropped; each is counted on its own.
    keep
        The common keep rate that was in force.
    reason
        Why, in the words of the policy.
    started_at
        Seconds since the epoch when Spark triggered the batch; None for a batch that was recounted after a crash.
    duration_seconds
        Trigger to commit; None for a recounted batch.
    overhead_seconds
        Part of it that the batch took beside its own job: planning, offsets, the write-ahead log, the commit. None for
        a recounted batch.
    latency_seconds
        Arrival to commit of the oldest tuple. Measured where the stream has an arrival time, else bounded by the
        time since the batch before was triggered; None where neither is known.
    mean_latency_seconds
        Arrival to commit, mean over the offered tuples; None without an arrival time.
    backlog_tuples
        Tuples that the source had ready at the end of the batch and did not hand over; None where it does not say.
    unread
        Tuples among the shed ones that were not even read: whole ranges of offsets were passed over.
    partition_offered, partition_backlog
        Units of offset by partition (``topic-number``): those that the batch covers, and those that waited at its end.
        Empty for sources without partitions.
    listed_offered, listed_kept
        Tuples whose key had a rate of its own in the plan: how many were offered, how many survived.
    failed
        Tuples among the kept on which the user's operator raised, where it was told to go on.
    outputs
        By output with a drop of its own: tuples ``offered`` to that drop, and of them ``kept`` and ``shed``.
    recounted
        Whether the entry was made after a crash: from counts stored before it, or by counting the same rows again.

    Examples
    --------
    >>> Batch(batch_id=7, offered=100, kept=40, shed=50, keep=0.4, reason="burst")
    Traceback (most recent call last):
    ...
    penstock.model.errors.InvalidInputError: batch 7 does not balance: offered 100 != kept 40 + shed 50
    """

    batch_id: int
    offered: int
    kept: int
    shed: int
    keep: float
    reason: str
    started_at: float | None = None
    duration_seconds: float | None = None
    overhead_seconds: float | None = None
    latency_seconds: float | None = None
    mean_latency_seconds: float | None = None
    backlog_tuples: float | None = None
    unread: int = 0
    partition_offered: Mapping[str, int] = field(default_factory=dict)
    partition_backlog: Mapping[str, int] = field(default_factory=dict)
    listed_offered: int = 0
    listed_kept: int = 0
    failed: int = 0
    recounted: bool = False
    # A plain dict by default: a MappingProxyType does not pickle.
    outputs: Mapping[str, Mapping[str, int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in ("batch_id", "offered", "kept", "shed", "unread", "listed_offered", "listed_kept", "failed"):
            require_not_negative(name, getattr(self, name), meaning="a count")
        require_fraction("keep", self.keep, meaning="the share of tuples that survive")
        if self.offered != self.kept + self.shed:
            raise InvalidInputError(
                f"batch {self.batch_id} does not balance: offered {self.offered} != kept {self.kept} + shed {self.shed}"
            )
        for name, counts in self.outputs.items():
            if counts["offered"] != counts["kept"] + counts["shed"]:
                raise InvalidInputError(f"output {name!r} of batch {self.batch_id} does not balance: {dict(counts)}")

        if self.unread > self.shed:
            raise InvalidInputError(
                f"batch {self.batch_id} does not balance: {self.unread} unread tuples are more than {self.shed} shed"
            )

    @property
    def read(self) -> int:
        """Tuples that reached the shedder."""
        return self.offered - self.unread

    @property
    def kept_share(self) -> float:
        """Share of the offered tuples that survived; 1 for an empty batch."""
        return self.kept / self.offered if self.offered else 1.0

    @property
    def committed_at(self) -> float | None:
        """Seconds since the epoch at the commit."""
        if self.started_at is None or self.duration_seconds is None:
            return None
        return self.started_at + self.duration_seconds
