"""Which columns of a stream an operator reads for itself: key, arrival, utility, true cost."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from penstock.model.errors import InvalidInputError
from penstock.sketch.hashing import NULL_ITEM
from penstock.spark.checks import TIMES, require_columns, require_type
from penstock.spark.judge.sampling import hashed_key
from penstock.spark.names import quoted
from penstock.spark.work.task import ARRIVED, ITEM, REPORT, TRUE_COST, UTILITY, WORKING

# The item of a missing key as Spark's signed 64 bits.
_NULL_AS_LONG = NULL_ITEM - (1 << 64) if NULL_ITEM >= 1 << 63 else NULL_ITEM


@dataclass(frozen=True, slots=True, kw_only=True)
class Columns:
    """Which columns of the stream the operator reads for itself."""

    key: tuple[str, ...]
    arrival: str | None
    utility: str | None
    true_cost: str | None

    def check(self, events: DataFrame) -> None:
        """Refuse a stream that lacks what was named."""
        require_columns("key", self.key, events)
        for role in ("arrival", "utility", "true_cost"):
            require_columns(role, [name for name in (getattr(self, role),) if name is not None], events)
        if taken := [name for name in (*WORKING, REPORT) if name in events.columns]:
            raise InvalidInputError(f"the stream has a column {taken[0]!r}; rename it, Penstock works with that name")
        require_type("arrival", self.arrival, events, *TIMES, meaning="latency is measured from a timestamp")
        require_type("utility", self.utility, events, T.NumericType, meaning="what a row is worth is a number")
        require_type("true_cost", self.true_cost, events, T.NumericType, meaning="what a row costs is a number")

    def add(self, events: DataFrame) -> DataFrame:
        """Add the working columns, computed by Spark itself: items are hashed as everywhere."""
        added: dict[str, Column] = {
            ITEM: F.coalesce(hashed_key([_column(name) for name in self.key]), F.lit(_NULL_AS_LONG))
        }
        if self.arrival:
            added[ARRIVED] = F.unix_micros(_column(self.arrival).cast("timestamp"))
        for role, name in ((UTILITY, self.utility), (TRUE_COST, self.true_cost)):
            if name:
                added[role] = _column(name).cast("double")
        return events.withColumns(added)


def _column(name: str) -> Column:
    return F.col(quoted(name))
