"""Names of columns: taken from users, and written so that Spark takes them as they are."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import types as T

from penstock.model.errors import InvalidInputError

Batches = Iterator[pa.RecordBatch]


def names_of(role: str, given: str | Sequence[str]) -> tuple[str, ...]:
    """Take one column name or several.

    >>> names_of("row_id", ["partition", "offset"]), names_of("key", ())
    (('partition', 'offset'), ())
    >>> names_of("key", ["user", "user"])
    Traceback (most recent call last):
    ...
    penstock.model.errors.InvalidInputError: key names the column 'user' twice; name each column once
    """
    names = (given,) if isinstance(given, str) else given
    if not isinstance(names, (list, tuple)):
        raise InvalidInputError(
            f"{role} takes a column name, or a list of them, got {given!r}; give text, as in {role}='user'"
        )
    for name in names:
        if not isinstance(name, str) or not name.strip():
            raise InvalidInputError(f"{role} takes column names, got {name!r}; give text, as in {role}='user'")
    for number, name in enumerate(names):
        if name in names[:number]:
            raise InvalidInputError(f"{role} names the column {name!r} twice; name each column once")
    return tuple(names)


def name_of(role: str, given: str | None) -> str | None:
    """Take the name of one column, or none.

    >>> name_of("arrival", "event.timestamp"), name_of("value", None)
    ('event.timestamp', None)
    """
    name: object = given
    if name is not None and (not isinstance(name, str) or not name.strip()):
        raise InvalidInputError(f"{role} takes the name of one column, got {given!r}; give text, as in {role}='user'")
    return given


def weight_of(given: str, *, beside: Collection[str | None] = ()) -> str:
    """Take the name of the weight column: one of its own, beside those that mean something else."""
    name: object = given
    if not isinstance(name, str) or not name.strip() or name.startswith("__"):
        raise InvalidInputError(
            f"weight must be the name of a column that does not begin with '__', got {given!r}; it is where the weight "
            "of every surviving row goes, such as 'weight'"
        )
    if given in beside:
        raise InvalidInputError(
            f"weight is {given!r}, a column that another argument names too; its values would be multiplied. Give the "
            "weight a name of its own"
        )
    return given


def map_in_arrow(rows: DataFrame, function: Callable[[Batches], Batches], schema: str | T.StructType) -> DataFrame:
    """Map rows as ``mapInArrow`` does, which by itself fails on columns with dots in their names."""
    names = rows.columns
    if not any("." in name for name in names):
        return rows.mapInArrow(function, schema)
    renamed = partial(_under_names, function=function, names=names)
    return rows.toDF(*(f"c{number}" for number in range(len(names)))).mapInArrow(renamed, schema)


def _under_names(batches: Batches, *, function: Callable[[Batches], Batches], names: Sequence[str]) -> Batches:
    return function(batch.rename_columns(list(names)) for batch in batches)


def quoted(name: str) -> str:
    """Write a column name so that Spark takes it as it is, dots and all."""
    return f"`{name.replace('`', '``')}`"
