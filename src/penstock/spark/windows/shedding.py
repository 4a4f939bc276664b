"""User-defined functions over sliding event-time windows, shed by concept."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import gcd
from typing import cast

import pandas as pd
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from penstock.model.errors import InvalidInputError
from penstock.policy.contract import Policy
from penstock.policy.windows import require_window_policy
from penstock.spark.judge.sampling import stage_seed
from penstock.spark.names import names_of, quoted
from penstock.spark.plan.log import PlanLog
from penstock.spark.spill.options import Spill, to_spill
from penstock.spark.spill.window_writer import WindowSpill
from penstock.spark.store.paths import StorePath, local_path
from penstock.spark.windows.answer import OneStream, TwoStreams, Work
from penstock.spark.windows.blocks import LABELS, BlockFolder, Cut
from penstock.spark.windows.input import blocks_of
from penstock.spark.windows.stateful import ACCOUNT_TYPE, Span, WindowOperator


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
    checkpoint: str,
    weight: str = "weight",
    buckets: int | None = None,
    seed: int = 0,
    spill: str | StorePath | Spill | None = None,
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
        window since the last answer), how the concept moved since the window before (``overlap``, ``distance``), and
        the ``seconds`` the answer took. Write it in append mode.
    """
    columns = columns_of(schema)
    require_window_policy(policy)
    keys = names_of("key", key)
    span = _span(size_seconds, slide_seconds)
    cut = _cut(events, span, buckets if keys else 1)
    folder = _folder(checkpoint)
    ids = names_of("row_id", row_id)
    stage = stage_seed(_salt(checkpoint), seed=seed)
    blocks = blocks_of(
        events, time=time, key=keys, value=value, row_id=ids, folder=folder, cut=cut, stage=stage, side=0
    )
    work = OneStream(policy=policy, function=function, columns=tuple(columns.names), weight=weight)
    spilling = _spilling(spill, events, checkpoint=checkpoint, policy=policy)
    return _answered(blocks, columns, folder=folder, span=span, cut=cut, work=work, sides=1, spill=spilling)


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
    checkpoint: str,
    weight: str = "weight",
    buckets: int | None = None,
    seed: int = 0,
    spill: str | StorePath | Spill | None = None,
) -> DataFrame:
    """Join two streams window by window on a key, after shedding both by what they have in common.

    Keys that one side only has are shed wholly; the others share the budget by the pairs they make. The function gets
    the survivors of both sides (see :func:`join_pairs`); the weight of a pair is the product of its weights.

    Parameters are those of :func:`shed_windows`; ``time``, ``key``, ``value`` and ``row_id`` name columns that both
    sides have (``value`` may be missing from one of them).
    """
    columns = columns_of(schema)
    require_window_policy(policy)
    keys = names_of("key", key)
    if not keys:
        raise InvalidInputError("a join needs a key; name the column or columns that both streams have: key='user'")
    span = _span(size_seconds, slide_seconds)
    cut = _cut(left, span, buckets)
    folder = _folder(checkpoint)
    salt = _salt(checkpoint)
    sides = [
        blocks_of(
            events,
            time=time,
            key=keys,
            value=value if value in events.columns else None,
            row_id=names_of("row_id", row_id),
            folder=folder,
            cut=cut,
            # Rows of both sides with the same id draw apart, or pairs of them would survive too often.
            stage=stage_seed(salt, called, seed=seed),
            side=side,
        )
        for side, (called, events) in enumerate((("left", left), ("right", right)))
    ]
    work = TwoStreams(policy=policy, function=function, columns=tuple(columns.names), weight=weight)
    spilling = _spilling(spill, left, right, checkpoint=checkpoint, policy=policy)
    blocks = sides[0].unionByName(sides[1])
    return _answered(blocks, columns, folder=folder, span=span, cut=cut, work=work, sides=2, spill=spilling)


def join_pairs(
    left: pd.DataFrame, right: pd.DataFrame, *, on: str | Sequence[str], weight: str = "weight"
) -> pd.DataFrame:
    """Pair the survivors of both sides, with the weight of each pair; for use in the function of :func:`shed_join`.

    >>> left = pd.DataFrame({"user": ["a", "a"], "weight": [2.0, 2.0]})
    >>> right = pd.DataFrame({"user": ["a", "b"], "weight": [5.0, 1.0]})
    >>> float(join_pairs(left, right, on="user")["weight"].sum())
    20.0
    """
    pairs = left.merge(right, on=on if isinstance(on, str) else list(on), suffixes=("_left", "_right"))
    pairs[weight] = pairs.pop(f"{weight}_left") * pairs.pop(f"{weight}_right")
    return pairs


def _answered(
    blocks: DataFrame,
    columns: T.StructType,
    *,
    folder: BlockFolder,
    span: Span,
    cut: Cut,
    work: Work,
    sides: int,
    spill: WindowSpill | None = None,
) -> DataFrame:
    answers = blocks.groupBy("label").transformWithStateInPandas(
        WindowOperator(folder=folder, span=span, cut=cut, work=work, sides=sides, spill=spill),
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
    spill: str | StorePath | Spill | None, *streams: DataFrame, checkpoint: str, policy: Policy
) -> WindowSpill | None:
    if (given := to_spill(spill)) is None:
        return None
    at = local_path(checkpoint, needed_for="blocks of windows")
    return WindowSpill.of(*(events.schema for events in streams), spill=given, checkpoint=at, policy=policy)


def columns_of(schema: str | T.StructType) -> T.StructType:
    """Read what the function returns; names that the account needs are refused."""
    columns = schema if isinstance(schema, T.StructType) else _struct(schema)
    taken = {*_struct(ACCOUNT_TYPE).names, "window", "shed"} & set(columns.names)
    if taken:
        raise InvalidInputError(
            f"schema has the column {sorted(taken)[0]!r}, a name that the account of the window uses; rename it"
        )
    return columns


def _struct(ddl: str) -> T.StructType:
    return cast("T.StructType", T.StructType.fromDDL(ddl))


def _span(size_seconds: float, slide_seconds: float | None) -> Span:
    micros = []
    for name, seconds in (("size_seconds", size_seconds), ("slide_seconds", slide_seconds or size_seconds)):
        if not seconds > 0 or round(seconds * 1e6) % 1_000:
            raise InvalidInputError(
                f"{name} must be above 0 and whole milliseconds, got {seconds!r}; it shapes the windows"
            )
        micros.append(round(seconds * 1e6))
    size, slide = micros
    if slide > size:
        raise InvalidInputError(
            f"slide_seconds must be at most size_seconds, got {slide_seconds!r} and {size_seconds!r}; "
            "rows between the windows would belong to none"
        )
    return Span(size_micros=size, slide_micros=slide, pane_micros=gcd(size, slide))


def _cut(events: DataFrame, span: Span, buckets: int | None) -> Cut:
    if not events.isStreaming:
        raise InvalidInputError(
            "windows are shed on a streaming DataFrame, and this one is a batch; use spark.readStream"
        )
    if buckets is None:
        partitions = int(str(events.sparkSession.conf.get("spark.sql.shuffle.partitions")))
        buckets = min(partitions, len(LABELS))
    if not 1 <= buckets <= len(LABELS):
        raise InvalidInputError(f"buckets must be in [1, {len(LABELS)}], got {buckets!r}; windows are split into them")
    return Cut(pane_micros=span.pane_micros, buckets=buckets)


def _salt(checkpoint: str) -> str:
    """The salt of a query, pinned when it is built: whoever starts it does so without us."""
    log = PlanLog(local_path(checkpoint, needed_for="blocks of windows") / "penstock" / "windows")
    salt = log.salt()
    log.pin_sampling({"salt": salt})
    return salt


def _folder(checkpoint: str) -> BlockFolder:
    return BlockFolder(local_path(checkpoint, needed_for="blocks of windows") / "penstock" / "blocks")
