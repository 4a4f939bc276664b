"""What a backfill gives: exact answers, what they rest on, and what is missing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame

from penstock.model.errors import InvalidInputError
from penstock.spark.checks import require_frame
from penstock.spark.names import names_of, quoted


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """Batches in a row that are gone, and the windows that keep their first answers for that.

    Attributes
    ----------
    batches
        Ids of the batches.
    reason
        Why the last of them is not to be had.
    first, last
        Start of the first and of the last window that may lack rows; None where all before, or after, may.
    """

    batches: tuple[int, ...]
    reason: str
    first: Any | None
    last: Any | None

    def __str__(self) -> str:
        """What is missing, what follows, and why."""
        number = ", ".join(f"batch {each}" for each in self.batches) or "a part"
        if len(self.batches) > 2:
            number = f"batches {self.batches[0]} to {self.batches[-1]}"
        first = "" if self.first is None else f" from {self.first}"
        last = "" if self.last is None else f" to {self.last}"
        return f"{number} cannot be had, so windows{first}{last} keep their first answers: {self.reason}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """Exact answers, and what they rest on.

    Attributes
    ----------
    answers
        Exact answers, of all rows.
    batches, rows, shed
        How many batches the answers rest on, the rows they hold, and those among them that had been shed. In a network
        ``shed`` counts drops: a row that was dropped on two arcs counts twice.
    from_spill
        How many of the batches came from the spill; the others were read again from the source.
    gaps
        What is gone, in source and spill alike, with the stretch of windows that keep their first answers for that:
        none of them is in ``answers``. Empty if all is exact.
    approximate
        The windows that lie in a gap, of those in which rows are known to have been sampled; of a network the panes,
        by their ``start``, and None if it has no windows.
    """

    answers: DataFrame
    batches: int
    rows: int
    shed: int
    from_spill: int = 0
    gaps: tuple[Gap, ...] = ()
    approximate: DataFrame | None = None

    @property
    def missing(self) -> tuple[int, ...]:
        """Ids of the batches that are gone."""
        return tuple(number for gap in self.gaps for number in gap.batches)


@dataclass(frozen=True, slots=True, kw_only=True)
class Backfilled(Result):
    """Exact answers of a query behind a shedder or an operator, or of windows by concept.

    Its attributes are those of every :class:`Result`, and

    Attributes
    ----------
    windows
        The windows that were answered again, where a window may be left without any row; else None.
    """

    windows: DataFrame | None = None

    def correct(self, approximate: DataFrame, *, on: str | Sequence[str]) -> DataFrame:
        """Put the exact answers in place of the approximate ones of the same windows; ``on`` names their columns."""
        require_frame("approximate", approximate)
        keys = names_of("on", on)
        if not keys:
            raise InvalidInputError("on names no column; name those that tell windows apart, as in on=['window']")
        for name in keys:
            if name not in approximate.columns or name not in self.answers.columns:
                raise InvalidInputError(
                    f"on names the column {name!r}, which both answers must have; they have "
                    f"{', '.join(approximate.columns)}"
                )
        named = self.windows is not None and set(keys) <= set(self.windows.columns)
        windows = (
            (self.windows if self.windows is not None and named else self.answers).select(*map(quoted, keys)).distinct()
        )
        return approximate.join(windows, list(keys), "left_anti").unionByName(
            self.answers.select(*map(quoted, approximate.columns))
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkBackfilled(Result):
    """Exact answers of a network, in the columns of :meth:`Network.answers <penstock.spark.network.Network.answers>`.

    There is every pane that a batch with drops had rows in, and all that outputs of rows would have given in these
    batches, had nothing been dropped. Its attributes are those of every :class:`Result`, and

    Attributes
    ----------
    delivered
        What outputs of rows gave in these batches; None for a network without such outputs.
    """

    delivered: DataFrame | None = None

    def correct(self, approximate: DataFrame) -> DataFrame:
        """Put the exact answers in place of the approximate ones: panes by output and time, rows by what they hold."""
        require_frame("approximate", approximate)
        pane = ["output", "start", "end"]
        exact = self.answers.select(*approximate.columns)
        panes = exact.where("start IS NOT NULL").select(*pane).distinct()
        windows = approximate.where("start IS NOT NULL").join(panes, pane, "left_anti").select(*approximate.columns)
        rows = approximate.where("start IS NULL")
        if self.delivered is not None:
            rows = rows.exceptAll(self.delivered.select(*approximate.columns))
        return windows.unionByName(rows).unionByName(exact)
