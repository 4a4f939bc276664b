"""What the controller has learned, in the form that travels to where plans are made."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from penstock.model.batch import Batch
from penstock.model.load import Cost


@dataclass(frozen=True, slots=True, kw_only=True)
class Guidance:
    """Learned costs and rates after some batch; published by the driver, read when a batch is planned.

    Attributes
    ----------
    published_at
        Seconds since the epoch. Guidance that is too old means that the controller has stopped.
    cost
        None until enough batches were seen.
    largest_kept
        Most tuples that one batch has kept so far without missing its time; bounds the first steps.
    tuples_per_unit
        Tuples per unit of source offset; None until measured.
    tuples_per_second
        Arrival rate; None until measured.
    listed_share, listed_keep
        See :class:`penstock.model.load.Load`.
    """

    published_at: float
    cost: Cost | None = None
    largest_kept: int = 0
    tuples_per_unit: float | None = None
    tuples_per_second: float | None = None
    listed_share: float | None = None
    listed_keep: float | None = None

    def to_dict(self) -> dict[str, Any]:
        """Convert to what JSON can hold."""
        return asdict(self)

    @staticmethod
    def from_dict(fields: dict[str, Any]) -> Guidance:
        """Restore what :meth:`to_dict` gave."""
        cost = fields.get("cost")
        return Guidance(**{**fields, "cost": Cost(**cost) if cost else None})


def fade(old: float | None, new: float, *, weight: float = 0.3) -> float:
    """Move an average towards a new value."""
    return new if old is None else old + weight * (new - old)


def largest_kept(so_far: int, batch: Batch, *, allowed_seconds: float) -> int:
    """Remember the largest batch that ended in time."""
    in_time = batch.duration_seconds is not None and batch.duration_seconds <= allowed_seconds
    return max(so_far, batch.kept) if in_time else so_far
