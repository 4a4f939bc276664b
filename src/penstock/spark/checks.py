"""What every door asks of the objects of Spark that it is given."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame
from pyspark.sql import types as T

from penstock.model.errors import InvalidInputError

NO_SESSION = "SESSION_OR_CONTEXT_NOT_EXISTS"
TIMES = (T.TimestampType, T.TimestampNTZType)


def require_frame(role: str, frame: object) -> None:
    """Refuse anything but a DataFrame."""
    if not isinstance(frame, DataFrame):
        raise InvalidInputError(f"{role} must be a DataFrame, got {_told(frame)}; give one, as in spark.readStream...")


def require_stream(role: str, frame: object, *, otherwise: str) -> None:
    """Refuse anything but a streaming DataFrame; ``otherwise`` says what to do with a batch."""
    require_frame(role, frame)
    if isinstance(frame, DataFrame) and not frame.isStreaming:
        raise InvalidInputError(
            f"{role} must be a streaming DataFrame, and this one is a batch; use spark.readStream{otherwise}"
        )


def require_columns(role: str, names: Sequence[str], frame: DataFrame) -> None:
    """Refuse names that a DataFrame does not have, or has more than once."""
    columns = frame.columns
    for name in names:
        if name not in columns:
            raise InvalidInputError(
                f"{role} names the column {name!r}, which the stream does not have; it has {', '.join(columns)}"
            )
        if columns.count(name) > 1:
            raise InvalidInputError(
                f"{role} names the column {name!r}, which the stream has {columns.count(name)} times; rename or drop "
                "all but one"
            )


def require_type(role: str, name: str | None, frame: DataFrame, *kinds: type[T.DataType], meaning: str) -> None:
    """Refuse a column of another type; ``meaning`` says what it is for."""
    kind = None if name is None else frame.schema[name].dataType
    if kind is not None and not isinstance(kind, kinds):
        raise InvalidInputError(f"{role} names the column {name!r} of type {kind.simpleString()}; {meaning}")


def require_session(spark: object) -> None:
    """Refuse anything but a session, of classic Spark or of Spark Connect."""
    if isinstance(spark, type) or not all(hasattr(spark, name) for name in ("readStream", "conf", "createDataFrame")):
        raise InvalidInputError(f"spark must be a Spark session, got {_told(spark)}; give one, as ps.local_session()")


def require_writer(writer: object) -> None:
    """Refuse anything but a writer that was not started yet."""
    if isinstance(writer, DataFrame):
        raise InvalidInputError("a query is started from a writer, got a DataFrame; give frame.writeStream.format(...)")
    if isinstance(writer, type) or not all(hasattr(writer, name) for name in ("outputMode", "queryName", "start")):
        raise InvalidInputError(
            f"a query is started from a writer that was not started yet, got {_told(writer)}; give "
            "frame.writeStream.format(...), without start()"
        )


def require_expression(role: str, value: object, *, optional: bool = False) -> None:
    """Refuse anything but a Column or SQL text."""
    if (optional and value is None) or isinstance(value, Column) or (isinstance(value, str) and value.strip()):
        return
    raise InvalidInputError(
        f"{role} must be a Column or an SQL expression as text, got {value!r}; as in 'fare' or F.col('fare')"
    )


def parsed_schema(role: str, schema: object, *, example: str) -> T.StructType:
    """Read a list of columns: DDL text, or a StructType as it is."""
    if isinstance(schema, T.StructType) and schema.fields:
        return schema
    cause: Exception | None = None
    if isinstance(schema, str) and schema.strip():
        try:
            parsed = T.StructType.fromDDL(schema)
        except Exception as failed:
            cause = failed
        else:
            if isinstance(parsed, T.StructType):
                return parsed
    if isinstance(cause, PySparkException) and cause.getCondition() == NO_SESSION:
        raise InvalidInputError(
            f"{role}={schema!r} is read by Spark, and there is no session yet; make one first, as ps.local_session(), "
            "or give a StructType"
        ) from cause
    why = f" ({cause})" if cause else ""
    raise InvalidInputError(f"{role}={schema!r} is no list of columns{why}; write it as in {example!r}") from cause


def _told(value: object) -> str:
    return f"the class {value.__name__}" if isinstance(value, type) else f"{value!r} of type {type(value).__name__}"
