"""User-defined functions over sliding event-time windows, shed by concept."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import gcd
from typing import cast

import pandas as pd
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from penstock.model.errors import (
    InvalidInputError,
    require_function,
    require_kind,
    require_positive,
    require_seed,
    require_text,
    require_whole,
)
from penstock.policy.contract import Policy
from penstock.policy.drift import drift, value_drift
from penstock.policy.windows import require_join_settings, require_window_settings
from penstock.spark.checks import parsed_schema, require_stream
from penstock.spark.names import name_of, names_of, quoted, weight_of
from penstock.spark.spill.options import Spill, to_spill
from penstock.spark.spill.window_writer import WindowSpill
from penstock.spark.store.paths import Location, local_path
from penstock.spark.windows.answer import OneStream, TwoStreams, Work
from penstock.spark.windows.blocks import LABELS, BlockFolder, Cut
from penstock.spark.windows.input import blocks_of
from penstock.spark.windows.stateful import ACCOUNT_TYPE, Moved, Span, WindowOperator


def shed_windows(
    events: DataFrame,
    function: Callable[[pd.DataFrame], pd.DataFrame],
    schema: str | T.StructType,
    *,
    time: str,
    size_seconds: float,
    slide_seconds: float | None = None,
    key: str | Sequence[str] = (),
    value: str | None = None,
    row_id: str | Sequence[str] = (),
    policy: Policy,
    checkpoint: Location,
    weight: str = "weight",
    buckets: int | None = None,
    seed: int = 0,
    spill: Location | Spill | None = None,
) -> DataFrame:
    """Apply a function to what is left of every window after shedding it by concept.

    Rows wait in columnar blocks until the watermark passes the end of their window. Then the
    concept of the window gives each group its quota, one scan picks the survivors, and the function gets them with
    their weights. Rows of one group always come together in one call.

    Parameters
    ----------
    events
        A stream with a watermark: ``events.withWatermark(time, "10 minutes")``. Select the columns that the function
        needs, for all of them are buffered.
    function
        Gets the survivors of a window as a pandas DataFrame, their weights in the column ``weight``; returns a
        DataFrame. Called once per window and bucket; without ``key``, once per window.
    schema
        Of what the function returns, as DDL text or a StructType.
    time
        Timestamp column that assigns rows to windows.
    size_seconds, slide_seconds
        Length of the windows, and how far apart they start: tumbling if not given. Edges are those of Spark's
        ``window(time, size, slide)``.
    key
        Column or columns whose values make the groups; none for a scalar aggregate.
    value
        Numeric column whose spread ``ConceptDriven(rule="neyman")`` goes by.
    row_id
        Column or columns that identify a row; their hash decides who survives. By default all columns.
    policy
        ``ConceptDriven(keep=0.03)``; ``Uniform(keep=0.03)`` and ``KeepAll()`` go the same way, for comparison.
    checkpoint
        Folder of the query's checkpoint: give it to the writer as ``checkpointLocation`` too. The blocks live in it.
    weight
        Name of the weight column that the function sees. If the stream has it already, weights multiply.
    buckets
        How many parts of a window are worked on in parallel, up to 8; by default the number of shuffle partitions. A
        query keeps the number it was first started with.
    seed
        Another seed keeps other rows.
    spill
        Folder in which the rows that a window sheds are stored as Parquet when it is answered, or a
        :class:`~penstock.spark.spill.options.Spill` that says more; see :func:`backfill_windows`.

    Returns
    -------
    DataFrame
        ``window`` (start, end), the columns of ``schema``, and ``shed``: what became of the rows of the window in this
        bucket (``offered``, ``kept``, ``groups``, ``missing_groups``, ``missing_tuples``; rows too ``late`` for any
        window since the last answer), how the concept moved since the window before (``overlap``, ``distance``: by its
        groups, without ``key`` by its values; null for the first window, and without both), and the ``seconds`` the
        answer took. Write it in append mode.
    """
    require_window_settings(policy, value=value)
    asked = _Asked.of(
        function, time=time, key=key, value=value, row_id=row_id, weight=weight, seed=seed, checkpoint=checkpoint
    )
    span = _span(size_seconds, slide_seconds)
    cut = _cut(events, span=span, buckets=buckets, keyed=bool(asked.key))
    columns = columns_of(schema)
    blocks = asked.blocks_of(events, value=value, cut=cut, side=0)
    work = OneStream(policy=policy, function=function, columns=tuple(columns.names), weight=weight)
    spilling = _spilling(spill, events, checkpoint=checkpoint, policy=policy)
    return _answered(blocks, columns, asked, span=span, cut=cut, work=work, sides=1, spill=spilling)


def shed_join(
    left: DataFrame,
    right: DataFrame,
    function: Callable[[pd.DataFrame, pd.DataFrame], pd.DataFrame],
    schema: str | T.StructType,
    *,
    time: str,
    size_seconds: float,
    slide_seconds: float | None = None,
    key: str | Sequence[str],
    value: str | None = None,
    row_id: str | Sequence[str] = (),
    policy: Policy,
    checkpoint: Location,
    weight: str = "weight",
    buckets: int | None = None,
    seed: int = 0,
    spill: Location | Spill | None = None,
) -> DataFrame:
    """Join two streams window by window on a key, after shedding both by what they have in common.

    Keys that one side only has are shed wholly; the others share the budget by the pairs they make. The function gets
    the survivors of both sides (see :func:`join_pairs`); the weight of a pair is the product of its weights.

    Parameters are those of :func:`shed_windows`; ``time``, ``key``, ``value`` and ``row_id`` name columns that both
    sides have (``value`` may be missing from one of them).
    """
    require_join_settings(policy)
    asked = _Asked.of(
        function, time=time, key=key, value=value, row_id=row_id, weight=weight, seed=seed, checkpoint=checkpoint
    )
    if not asked.key:
        raise InvalidInputError("a join needs a key; name the column or columns that both streams have: key='user'")
    span = _span(size_seconds, slide_seconds)
    cut = _cut(left, right, span=span, buckets=buckets, keyed=True)
    columns = columns_of(schema)
    if value is not None and value not in (*left.columns, *right.columns):
        raise InvalidInputError(
            f"value names the column {value!r}, which neither stream has; they have {', '.join(left.columns)} and "
            f"{', '.join(right.columns)}"
        )
    sides = [
        asked.blocks_of(events, value=value if value in events.columns else None, cut=cut, side=side)
        for side, events in enumerate((left, right))
    ]
    work = TwoStreams(policy=policy, function=function, columns=tuple(columns.names), weight=weight)
    spilling = _spilling(spill, left, right, checkpoint=checkpoint, policy=policy)
    blocks = sides[0].unionByName(sides[1])
    return _answered(blocks, columns, asked, span=span, cut=cut, work=work, sides=2, spill=spilling)


def join_pairs(
    left: pd.DataFrame, right: pd.DataFrame, *, on: str | Sequence[str], weight: str = "weight"
) -> pd.DataFrame:
    """Pair the survivors of both sides, with the weight of each pair; for use in the function of :func:`shed_join`.

    >>> left = pd.DataFrame({"user": ["a", "a"], "weight": [2.0, 2.0]})
    >>> right = pd.DataFrame({"user": ["a", "b"], "weight": [5.0, 1.0]})
    >>> float(join_pairs(left, right, on="user")["weight"].sum())
    20.0
    """
    keys, weight = names_of("on", on), weight_of(weight, beside=(on,) if isinstance(on, str) else on)
    if not keys:
        raise InvalidInputError("on names no column; name those that both sides have, as in on='user'")
    for side, rows in (("left", left), ("right", right)):
        require_kind(side, rows, pd.DataFrame, called="a pandas DataFrame", example="the survivors of that side")
        for name in (*keys, weight):
            if name not in rows.columns:
                raise InvalidInputError(
                    f"{side} has no column {name!r}; it has {', '.join(map(str, rows.columns))}. Name what both sides "
                    "have, and the weight as shed_join was given it"
                )
    pairs = left.merge(right, on=list(keys), suffixes=("_left", "_right"))
    pairs[weight] = pairs.pop(f"{weight}_left") * pairs.pop(f"{weight}_right")
    return pairs


@dataclass(frozen=True, slots=True, kw_only=True)
class _Asked:
    """What both doors are asked for and check alike: columns by their role, the draw, and where blocks lie."""

    time: str
    key: tuple[str, ...]
    value: str | None
    row_id: tuple[str, ...]
    seed: int
    folder: BlockFolder

    @classmethod
    def of(
        cls,
        function: Callable[..., pd.DataFrame],
        *,
        time: str,
        key: str | Sequence[str],
        value: str | None,
        row_id: str | Sequence[str],
        weight: str,
        seed: int,
        checkpoint: Location,
    ) -> _Asked:
        """Refuse what cannot be worked with."""
        require_function("function", function, meaning="what answers a window from its survivors")
        require_text("time", time, meaning="the timestamp column that assigns rows to windows, such as 'timestamp'")
        require_seed(seed)
        keys, ids = names_of("key", key), names_of("row_id", row_id)
        weight_of(weight, beside=(*keys, *ids, time, name_of("value", value)))
        at = local_path(checkpoint, needed_for="blocks of windows")
        return cls(
            time=time, key=keys, value=value, row_id=ids, seed=seed, folder=BlockFolder(at / "penstock" / "blocks")
        )

    @property
    def moved(self) -> Moved | None:
        """How far a window is from the one before: by its groups, without them by its values, else nobody knows."""
        if self.key:
            return drift
        return value_drift if self.value is not None else None

    def blocks_of(self, events: DataFrame, *, value: str | None, cut: Cut, side: int) -> DataFrame:
        """Turn the rows of one side into blocks."""
        return blocks_of(
            events,
            time=self.time,
            key=self.key,
            value=value,
            row_id=self.row_id,
            folder=self.folder,
            cut=cut,
            seed=self.seed + side,
            side=side,
        )


def _answered(
    blocks: DataFrame,
    columns: T.StructType,
    asked: _Asked,
    *,
    span: Span,
    cut: Cut,
    work: Work,
    sides: int,
    spill: WindowSpill | None,
) -> DataFrame:
    answers = blocks.groupBy("label").transformWithStateInPandas(
        WindowOperator(folder=asked.folder, span=span, cut=cut, work=work, sides=sides, moved=asked.moved, spill=spill),
        with_account(columns),
        "append",
        "eventTime",
    )
    return laid_out(answers, columns)


def with_account(columns: T.StructType) -> T.StructType:
    """Columns of what the function returned and, side by side with them, of the account of its window."""
    return T.StructType([*columns.fields, *_struct(ACCOUNT_TYPE).fields])


def laid_out(answers: DataFrame, columns: T.StructType) -> DataFrame:
    """Answers as users get them: ``window``, the columns of the function, and the account in ``shed``."""
    account = _struct(ACCOUNT_TYPE)
    told = [name for name in account.names if not name.startswith("window_")]
    return answers.select(
        F.struct(F.col("window_start").alias("start"), F.col("window_end").alias("end")).alias("window"),
        *(F.col(quoted(name)) for name in columns.names),
        F.struct(*told).alias("shed"),
    )


def _spilling(
    spill: Location | Spill | None, *streams: DataFrame, checkpoint: Location, policy: Policy
) -> WindowSpill | None:
    if (given := to_spill(spill)) is None:
        return None
    at = local_path(checkpoint, needed_for="blocks of windows")
    return WindowSpill.of(*(events.schema for events in streams), spill=given, checkpoint=at, policy=policy)


def columns_of(schema: str | T.StructType) -> T.StructType:
    """Read what the function returns; names that the account needs are refused."""
    columns = parsed_schema("schema", schema, example="total DOUBLE")
    taken = {*_struct(ACCOUNT_TYPE).names, "window", "shed"} & set(columns.names)
    if taken:
        raise InvalidInputError(
            f"schema has the column {sorted(taken)[0]!r}, a name that the account of the window uses; rename it"
        )
    names_of("schema", columns.names)
    return columns


def _struct(ddl: str) -> T.StructType:
    return cast("T.StructType", T.StructType.fromDDL(ddl))


def _span(size_seconds: float, slide_seconds: float | None) -> Span:
    size = _micros("size_seconds", size_seconds)
    slide = size if slide_seconds is None else _micros("slide_seconds", slide_seconds)
    if slide > size:
        raise InvalidInputError(
            f"slide_seconds must be at most size_seconds, got {slide_seconds!r} and {size_seconds!r}; "
            "rows between the windows would belong to none"
        )
    return Span(size_micros=size, slide_micros=slide, pane_micros=gcd(size, slide))


def _micros(name: str, seconds: float) -> int:
    require_positive(name, seconds, meaning="what shapes the windows")
    if (micros := round(seconds * 1e6)) % 1_000 or not micros:
        raise InvalidInputError(f"{name} must be whole milliseconds, got {seconds!r}; it is what shapes the windows")
    return micros


def _cut(*streams: DataFrame, span: Span, buckets: int | None, keyed: bool) -> Cut:
    for events in streams:
        require_stream("what windows are shed of", events, otherwise="")
    if buckets is None:
        partitions = int(str(streams[0].sparkSession.conf.get("spark.sql.shuffle.partitions")))
        buckets = min(partitions, len(LABELS))
    require_whole("buckets", buckets, most=len(LABELS), meaning="into how many parts windows are split")
    return Cut(pane_micros=span.pane_micros, buckets=buckets if keyed else 1)
