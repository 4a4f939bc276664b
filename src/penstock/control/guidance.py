"""What the controller has learned, in the form that travels to where plans are made."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from penstock.model.batch import Batch
from penstock.model.branches import Branches
from penstock.model.forecast import Forecast
from penstock.model.load import Cost
from penstock.model.work_plan import LearnedWork


@dataclass(frozen=True, slots=True, kw_only=True)
class TableInForce:
    """The table that a network's batches are planned with: its digest in the plan log, and what it was made for."""

    digest: str
    latency_seconds: float
    shedding: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Guidance:
    """Learned costs and rates after some batch; published by the driver, read when a batch is planned.

    Attributes
    ----------
    published_at
        Seconds since the epoch. Guidance that is too old means that the controller has stopped.
    batch_id, committed_at
        The last batch learned from, and when it was committed; None before the first of a run.
    forecast
        None until enough batches were seen.
    probe_rows
        Rows that a batch may take before costs are known, as far as the batches so far tell; None before the first.
    tuples_per_unit
        Tuples per unit of offset, by source of the query, 0 for one that does not feed the shedder; empty until
        measured.
    tuples_per_second
        Arrival rate; None until measured.
    listed_share, listed_keep, branches
        See :class:`penstock.model.load.Load`.
    key_shares
        Share of the stream by key, for the frequent keys of the batches so far; None where nobody samples them.
    work
        What an operator has learned of its work; None for anything else.
    table
        The plans of a network to choose from; None for anything else.
    catch_up
        Whether the run only takes in what waits already, and then ends: there is no latency to hold.
    stopped
        Whether the run came to an orderly end. No plan may rest on this guidance any more.
    epoch
        Of which driver it is: each one that starts on a checkpoint has a higher number than those before.
    """

    published_at: float
    batch_id: int | None = None
    committed_at: float | None = None
    forecast: Forecast | None = None
    probe_rows: float | None = None
    tuples_per_unit: tuple[float, ...] = ()
    tuples_per_second: float | None = None
    listed_share: float | None = None
    listed_keep: float | None = None
    branches: Branches | None = None
    key_shares: Mapping[str, float] | None = None
    work: LearnedWork | None = None
    table: TableInForce | None = None
    catch_up: bool = False
    stopped: bool = False
    epoch: int = 0

    @property
    def cost(self) -> Cost | None:
        """What a batch is expected to cost."""
        return self.forecast.cost if self.forecast else None

    def to_dict(self) -> dict[str, Any]:
        """Convert to what JSON can hold."""
        return asdict(self)

    @staticmethod
    def from_dict(fields: dict[str, Any]) -> Guidance:
        """Restore what :meth:`to_dict` gave."""
        forecast, branches = fields.get("forecast"), fields.get("branches")
        work, table = fields.get("work"), fields.get("table")
        restored = {
            "forecast": Forecast.from_dict(forecast) if forecast else None,
            "branches": Branches.from_dict(branches) if branches else None,
            "work": LearnedWork.from_json(work) if work else None,
            "table": TableInForce(**table) if table else None,
            "tuples_per_unit": tuple(fields.get("tuples_per_unit") or ()),
        }
        return Guidance(**{**fields, **restored})


def tuples_in(units_by_source: Sequence[float | None], tuples_per_unit: Sequence[float]) -> float | None:
    """Turn units of offset into tuples; None where a source that feeds the shedder cannot be counted.

    Before the first measurement a unit counts as one tuple, which is true for Kafka and most queues.

    >>> tuples_in((100, 70), ()), tuples_in((100, None), (3.0, 0.0)), tuples_in((100, None), (3.0, 1.0))
    (170.0, 300.0, None)
    """
    if len(tuples_per_unit) != len(units_by_source):
        tuples_per_unit = (1.0,) * len(units_by_source)
    feeding = [(units, each) for units, each in zip(units_by_source, tuples_per_unit, strict=True) if each]
    if not units_by_source or any(units is None for units, _ in feeding):
        return None
    return float(sum(units * each for units, each in feeding if units is not None))


def foreign_units(units_by_source: Sequence[float | None], tuples_per_unit: Sequence[float]) -> float:
    """Count the units of those sources that do not feed the shedder, as far as they can be counted.

    >>> foreign_units((100, 70, None), (3.0, 0.0, 0.0))
    70.0
    """
    if len(tuples_per_unit) != len(units_by_source):
        return 0.0
    pairs = zip(units_by_source, tuples_per_unit, strict=True)
    return float(sum(units for units, each in pairs if units is not None and not each))


def fade(old: float | None, new: float, *, weight: float = 0.3) -> float:
    """Move an average towards a new value."""
    return new if old is None else old + weight * (new - old)


def probe_rows(
    so_far: float | None, batch: Batch, *, first_rows: float, allowed_seconds: float, growth: float
) -> float | None:
    """Tell how many rows a batch may take while costs are not known, from how the ones before went.

    A batch that left room tells that more may be tried. One of many rows that took too long tells that less fits. But
    a slow batch of few rows tells nothing: a cold query takes its time whatever it is given.

    >>> batch = Batch(batch_id=1, offered=20_000, kept=20_000, shed=0, keep=1.0, reason="try", duration_seconds=5.0)
    >>> probe_rows(None, batch, first_rows=20_000, allowed_seconds=2.5, growth=4)
    10000.0
    """
    if not batch.duration_seconds:
        return so_far
    fits = batch.kept * min(growth, allowed_seconds / batch.duration_seconds)
    if batch.kept >= first_rows / 2 and batch.duration_seconds > allowed_seconds:
        return fits
    return fits if fits > (first_rows if so_far is None else so_far) else so_far


def collecting_seconds(*, since_start: float, since_commit: float | None, longest_batch_seconds: float) -> float:
    """Bound the time in which the tuples of a batch arrived: the age of the oldest.

    They arrived since the batch before started. But where that batch was committed long ago, nothing can have waited:
    input starts a batch at once, or at the next trigger, and a trigger interval beyond ``longest_batch_seconds`` would
    break the latency target by itself. The source was idle, and the tuples came within the last such interval.

    >>> collecting_seconds(since_start=4.0, since_commit=0.1, longest_batch_seconds=2.5)
    4.0
    >>> collecting_seconds(since_start=60.0, since_commit=56.1, longest_batch_seconds=2.5)
    2.5
    """
    idle = since_commit is not None and since_commit > longest_batch_seconds
    return min(since_start, longest_batch_seconds) if idle else since_start
