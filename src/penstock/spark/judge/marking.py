"""Mark rows as kept or shed, count them, and weigh the survivors: the part both mechanisms share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from penstock.model.errors import InvalidInputError
from penstock.spark.checks import TIMES, require_columns, require_type
from penstock.spark.judge.sampling import WHOLE, hashed_key, key_text, listed_threshold, row_hash, stage_seed
from penstock.spark.names import quoted

HASH = "__penstock_key"
LISTED = "__penstock_listed"
THRESHOLD = "__penstock_threshold"
KEPT = "__penstock_kept"
SAMPLED = "__penstock_sampled"
ROW = "__penstock_row"
WORKING = (HASH, LISTED, THRESHOLD, KEPT, SAMPLED, ROW)


@dataclass(frozen=True, slots=True, kw_only=True)
class Marking:
    """Which columns identify, key, value and date a row, and where its weight goes; whether keys are sampled.

    ``salt`` sets the draws apart from those of other queries (see :meth:`PlanLog.salt
    <penstock.spark.plan.log.PlanLog.salt>`), ``seed`` is the user's.
    """

    row_id: tuple[str, ...]
    key: tuple[str, ...]
    arrival: str | None
    weight: str
    seed: int
    salt: str
    value: str | None = None
    sample_keys: bool = False

    def check(self, frame: DataFrame) -> None:
        """Refuse a stream that lacks what was named, before anything starts."""
        for role, names in (
            ("row_id", self.row_id), ("key", self.key), ("value", (self.value,)), ("arrival", (self.arrival,))
        ):  # fmt: skip
            require_columns(role, [name for name in names if name is not None], frame)
        if taken := [name for name in WORKING if name in frame.columns]:
            raise InvalidInputError(f"the stream has a column {taken[0]!r}; rename it, Penstock works with that name")
        self._check_types(frame)
        self.ids(frame)

    def _check_types(self, frame: DataFrame) -> None:
        types = {field.name: field.dataType for field in frame.schema.fields}
        require_type("arrival", self.arrival, frame, *TIMES, meaning="latency is measured from a timestamp")
        require_type("value", self.value, frame, T.NumericType, meaning="how values spread is known of numbers only")
        weight = types.get(self.weight)
        if weight is not None and not isinstance(weight, T.NumericType):
            raise InvalidInputError(
                f"the stream has a column {self.weight!r} of type {weight.simpleString()}, where the weight of rows "
                "belongs; rename it, or give another name: shed(weight=...)"
            )

    def ids(self, frame: DataFrame) -> list[Column]:
        """Columns whose hash decides a row's fate; without a row id, every column that can be hashed."""
        if self.row_id:
            return [F.col(quoted(name)) for name in self.row_id]
        own = {self.weight, *WORKING}
        hashable = [f.name for f in frame.schema.fields if not _holds_map(f.dataType) and f.name not in own]
        if not hashable:
            raise InvalidInputError("no column of the stream can be hashed; name one that identifies a row: row_id=...")
        require_columns("row_id, by default all columns,", hashable, frame)
        return [F.col(quoted(name)) for name in hashable]

    def drawn(self, frame: DataFrame) -> Column:
        """The draw of each row: it survives under every threshold above."""
        return row_hash(self.ids(frame), stage_seed(self.salt, seed=self.seed))

    def mark(
        self,
        frame: DataFrame,
        *,
        threshold: Column,
        table: tuple[Column, Column] | None,
        sample: Column | None = None,
    ) -> DataFrame:
        """Add the working columns: whether each row is listed by key, its threshold, and whether it is kept.

        Rows whose hash lies below ``sample`` bear their key in a column of its own: a uniform sample of the offered.
        """
        if self.key and table is not None:
            keys = [F.col(quoted(name)) for name in self.key]
            listed = listed_threshold(F.col(HASH), *table)
            frame = frame.withColumn(HASH, hashed_key(keys)).withColumn(LISTED, listed)
            frame = frame.withColumn(THRESHOLD, F.coalesce(F.col(LISTED), threshold))
        else:
            frame = frame.withColumn(THRESHOLD, threshold)
        if not (self.sample_keys and self.key and sample is not None):
            # The whole range is compared first: while nothing is shed, no row is hashed.
            kept = (F.col(THRESHOLD) >= WHOLE) | (self.drawn(frame) < F.col(THRESHOLD))
            return frame.withColumn(KEPT, kept)
        # Two comparisons with one hash.
        frame = frame.withColumn(ROW, self.drawn(frame))
        named = key_text([F.col(quoted(name)) for name in self.key])
        return frame.withColumns({KEPT: F.col(ROW) < F.col(THRESHOLD), SAMPLED: F.when(F.col(ROW) < sample, named)})

    def counts(self, frame: DataFrame) -> Sequence[Column]:
        """Aggregates over marked rows: what the ledger needs to know of a batch."""
        counted = [
            F.count(F.lit(1)).alias("offered"),
            F.count_if(F.col(KEPT)).alias("kept"),
            F.count_if(~F.col(KEPT)).alias("shed"),
        ]
        if LISTED in frame.columns:
            listed = F.col(LISTED).isNotNull()
            counted += [
                F.count_if(listed).alias("listed_offered"),
                F.count_if(listed & F.col(KEPT)).alias("listed_kept"),
            ]
        if SAMPLED in frame.columns:
            counted.append(F.collect_list(SAMPLED).alias("sampled_keys"))
        if self.arrival is not None:
            micros = F.unix_micros(F.col(quoted(self.arrival)).cast("timestamp"))
            counted += [
                F.min(micros).alias("oldest_micros"),
                F.avg(micros).alias("mean_micros"),
            ]
        return counted

    def survivors(self, frame: DataFrame) -> DataFrame:
        """Keep the marked rows and weigh them by the inverse of their keep rate."""
        own = F.lit(float(WHOLE)) / F.col(THRESHOLD)
        weight = F.col(quoted(self.weight)) * own if self.weight in frame.columns else own
        return frame.where(F.col(KEPT)).withColumn(self.weight, weight).drop(*WORKING)


def _holds_map(kind: T.DataType) -> bool:
    if isinstance(kind, T.ArrayType):
        return _holds_map(kind.elementType)
    if isinstance(kind, T.StructType):
        return any(_holds_map(field.dataType) for field in kind.fields)
    return isinstance(kind, (T.MapType, T.VariantType))
