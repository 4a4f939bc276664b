"""Which columns of a stream an operator reads for itself: key, arrival, utility, true cost."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from penstock.model.errors import InvalidInputError
from penstock.sketch.hashing import NULL_ITEM
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
        types = {field.name: field.dataType for field in events.schema.fields}
        named: list[tuple[str, str | None]] = [("key", name) for name in self.key]
        named += [(role, getattr(self, role)) for role in ("arrival", "utility", "true_cost")]
        for role, name in named:
            if name is not None and name not in types:
                raise InvalidInputError(
                    f"{role} names the column {name!r}, which the stream does not have; it has {', '.join(types)}"
                )
        if taken := [name for name in (*WORKING, REPORT) if name in types]:
            raise InvalidInputError(f"the stream has a column {taken[0]!r}; rename it, Penstock works with that name")
        if self.arrival and not isinstance(types[self.arrival], (T.TimestampType, T.TimestampNTZType)):
            raise InvalidInputError(
                f"arrival names {self.arrival!r}, which is no timestamp; latency is measured from one"
            )

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
