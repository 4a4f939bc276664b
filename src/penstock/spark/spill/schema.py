"""Stored rows of batches: which columns they have beside the stream's own, and which a stream may have.

Rows that are spilled while shedding and rows that a backfill reads again are stored alike, and read alike.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import types as T

from penstock.model.errors import InvalidInputError
from penstock.spark.names import quoted

# Whether a row was shed, whether that was left to its hash, in which batch, on which arc, and why.
OWN_COLUMNS = ("shed", "sampled", "batch", "arc", "reason")
_OWN_TYPES = (T.BooleanType(), T.BooleanType(), T.LongType(), T.StringType(), T.StringType())

_PLAIN = (
    T.BooleanType, T.ByteType, T.ShortType, T.IntegerType, T.LongType, T.FloatType, T.DoubleType, T.DecimalType,
    T.StringType, T.BinaryType, T.DateType, T.TimestampType, T.TimestampNTZType,
)  # fmt: skip


def check_names(columns: T.StructType, *, also: tuple[str, ...] = ()) -> None:
    """Refuse a stream with a column that stored rows need for what is known of them."""
    # Spark does not tell names by case, unless it is told to.
    taken = [field.name for field in columns.fields if field.name.lower() in (*OWN_COLUMNS, *also)]
    if taken:
        raise InvalidInputError(
            f"the stream has a column {taken[0]!r}, where stored rows say what became of them; rename it before the "
            "shedding"
        )


def check_storable(columns: T.StructType, *, also: tuple[str, ...] = ()) -> None:
    """Refuse a stream whose rows a task cannot store, before anything starts."""
    check_names(columns, also=also)
    names = [field.name.lower() for field in columns.fields]
    for field in columns.fields:
        if names.count(field.name.lower()) > 1:
            raise InvalidInputError(f"the stream has two columns {field.name!r}; rename one of them to store its rows")
        if (kind := _not_storable(field.dataType)) is not None:
            raise InvalidInputError(
                f"the column {field.name!r} holds {kind.simpleString()}, which cannot be stored as Parquet from "
                "Python; cast or drop it before the shedding"
            )


def stored_columns(columns: T.StructType, *, weight: str) -> T.StructType:
    """List the columns of stored rows; a stream without weights gets a weight of 1.

    >>> stored_columns(T.StructType([T.StructField("id", T.LongType(), False)]), weight="weight").simpleString()
    'struct<id:bigint,shed:boolean,sampled:boolean,weight:double,batch:bigint,arc:string,reason:string>'
    """
    # Without metadata: a watermark, for one, belongs to the stream and not to its rows.
    fields = [T.StructField(field.name, field.dataType) for field in columns.fields]
    own = [T.StructField(name, kind) for name, kind in zip(OWN_COLUMNS, _OWN_TYPES, strict=True)]
    added = [] if weight in columns.fieldNames() else [T.StructField(weight, T.DoubleType())]
    return T.StructType([*fields, *own[:2], *added, *own[2:]])


def stream_columns(rows: DataFrame) -> list[Column]:
    """Columns of stored rows that the stream had itself: they stand first."""
    return [rows[quoted(name)] for name in rows.columns[: rows.columns.index(OWN_COLUMNS[0])]]


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
