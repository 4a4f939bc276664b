"""The columns of stored rows: those of the stream, and what is known of each row.

Rows that are spilled while shedding and rows that a backfill reads again are stored alike, and read alike: of streams,
networks and windows. Each of them knows some of :data:`LAYOUT`.
"""

from __future__ import annotations

from collections.abc import Collection

from pyspark.sql import Column, DataFrame
from pyspark.sql import types as T

from penstock.model.errors import InvalidInputError
from penstock.spark.names import quoted

# In this order, behind the columns of the stream: whether the row was shed, and whether that was left to its hash; what
# it stood for; which window it was shed from, in which bucket, on which side of a join; in which batch, on which arc,
# and why; and from which source it came.
LAYOUT: dict[str, T.DataType] = {
    "shed": T.BooleanType(),
    "sampled": T.BooleanType(),
    "weight": T.DoubleType(),
    "window_start": T.TimestampType(),
    "window_end": T.TimestampType(),
    "bucket": T.IntegerType(),
    "side": T.StringType(),
    "batch": T.LongType(),
    "arc": T.StringType(),
    "reason": T.StringType(),
    "source": T.StringType(),
}
# Rows of a stream have a weight besides, under the name that the user chose for it.
OF_STREAM = ("shed", "sampled", "batch", "arc", "reason")
OF_NETWORK = ("shed", "sampled", "weight", "batch", "arc", "reason", "source")
OF_WINDOW = ("shed", "window_start", "window_end", "bucket", "side", "batch", "arc", "reason")

_PLAIN = (
    T.BooleanType, T.ByteType, T.ShortType, T.IntegerType, T.LongType, T.FloatType, T.DoubleType, T.DecimalType,
    T.StringType, T.BinaryType, T.DateType, T.TimestampType, T.TimestampNTZType,
)  # fmt: skip


def check_names(columns: T.StructType, own: Collection[str]) -> None:
    """Refuse a stream with a column that stored rows need for what is known of them."""
    # Spark does not tell names by case, unless it is told to.
    taken = [field.name for field in columns.fields if field.name.lower() in own]
    if taken:
        raise InvalidInputError(
            f"the stream has a column {taken[0]!r}, where stored rows say what became of them; rename it before the "
            "shedding"
        )


def check_storable(columns: T.StructType, own: Collection[str]) -> None:
    """Refuse a stream whose rows a task cannot store, before anything starts."""
    check_names(columns, own)
    names = [field.name.lower() for field in columns.fields]
    for field in columns.fields:
        if names.count(field.name.lower()) > 1:
            raise InvalidInputError(f"the stream has two columns {field.name!r}; rename one of them to store its rows")
        if (kind := _not_storable(field.dataType)) is not None:
            raise InvalidInputError(
                f"the column {field.name!r} holds {kind.simpleString()}, which cannot be stored as Parquet from "
                "Python; cast or drop it before the shedding"
            )


def stored_columns(columns: T.StructType, own: Collection[str], *, weight: str | None = None) -> T.StructType:
    """List the columns of stored rows: those of a stream, and its ``own`` of the layout.

    ``weight`` names a column for weights, which a stream gets unless it has it already.

    >>> stored_columns(T.StructType([T.StructField("id", T.LongType(), False)]), OF_STREAM, weight="w").simpleString()
    'struct<id:bigint,shed:boolean,sampled:boolean,w:double,batch:bigint,arc:string,reason:string>'
    """
    names = {name: name for name in own}
    if weight is not None and weight not in columns.fieldNames():
        names["weight"] = weight
    known = [T.StructField(names[name], kind) for name, kind in LAYOUT.items() if name in names]
    # Without metadata: a watermark, for one, belongs to the stream and not to its rows.
    return T.StructType([*(T.StructField(field.name, field.dataType) for field in columns.fields), *known])


def stream_columns(rows: DataFrame) -> list[Column]:
    """Columns of stored rows that the stream had itself: they stand first."""
    return [rows[quoted(name)] for name in rows.columns[: rows.columns.index(OF_STREAM[0])]]


def _not_storable(kind: T.DataType) -> T.DataType | None:
    if isinstance(kind, T.ArrayType):
        return _not_storable(kind.elementType)
    if isinstance(kind, T.MapType):
        return _not_storable(kind.keyType) or _not_storable(kind.valueType)
    if isinstance(kind, T.StructType):
        inner = (_not_storable(field.dataType) for field in kind.fields)
        # Parquet has no groups without columns.
        return next((each for each in inner if each is not None), None) if kind.fields else kind
    return None if isinstance(kind, _PLAIN) else kind
