"""User-defined functions over sliding event-time windows, shed by concept."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from math import gcd
from typing import cast

import pandas as pd
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T
from pyspark.sql.streaming.readwriter import DataStreamWriter

from penstock.control.governor import Governor
from penstock.model.errors import InvalidInputError
from penstock.policy.concept import ConceptDriven
from penstock.policy.contract import Policy
from penstock.policy.windows import require_window_policy
from penstock.spark.judge.sampling import stage_seed
from penstock.spark.names import names_of, quoted
from penstock.spark.run.handle import Run, start_run
from penstock.spark.run.recount import StoredCounts
from penstock.spark.spill.options import Spill, to_spill
from penstock.spark.spill.window_writer import WindowSpill
from penstock.spark.store.folder import folder_at
from penstock.spark.store.paths import StorePath, local_path
from penstock.spark.windows.accounts import AccountFolder
from penstock.spark.windows.answer import OneStream, TwoStreams
from penstock.spark.windows.blocks import LABELS, BlockFolder, Cut
from penstock.spark.windows.input import blocks_of
from penstock.spark.windows.planner import WindowPlanner
from penstock.spark.windows.span import Span
from penstock.spark.windows.stateful import ACCOUNT_TYPE, WindowOperator


def shed_windows(
    function: Callable[[pd.DataFrame], pd.DataFrame],
    returns: str | T.StructType,
    *,
    time: str,
    size_seconds: float,
    slide_seconds: float | None = None,
    latency_seconds: float,
    checkpoint: str,
    key: str | Sequence[str] = (),
    value: str | None = None,
    row_id: str | Sequence[str] = (),
    policy: Policy | None = None,
    weight: str = "weight",
    buckets: int | None = None,
    late_share: float = 0.05,
    probe_tuples: int = 20_000,
    grace_seconds: float = 60.0,
    seed: int = 0,
    name: str = "windows",
    spill: str | StorePath | Spill | None = None,
) -> WindowShedder:
    """Apply a function to what fits of every window, shed by concept, so that answers leave in time.

    Rows wait in columnar blocks until the watermark passes the end of their window. The plan of that batch says what
    share of its windows fits, the concept of a window gives each group its quota of it, one scan picks the survivors,
    and the function gets them with their weights. Rows of one group always come together in one call.

    Parameters
    ----------
    function
        Gets the survivors of a window as a pandas DataFrame, their weights in the column ``weight``; returns a
        DataFrame. Called once per window and bucket; without ``key``, once per window.
    returns
        Columns of what the function returns, as DDL text or a StructType.
    time
        Timestamp column that assigns rows to windows.
    size_seconds, slide_seconds
        Length of the windows, and how far apart they start: tumbling if not given. Edges are those of Spark's
        ``window(time, size, slide)``.
    latency_seconds
        Target for the answers, from the arrival of the row whose watermark ends a window to the commit.
    checkpoint
        Folder of the query's checkpoint; blocks, plan log and ledger live in it.
    key
        Column or columns whose values make the groups; none for a scalar aggregate.
    value
        Numeric column whose spread ``ConceptDriven(rule="neyman")`` goes by.
    row_id
        Column or columns that identify a row; their hash decides who survives. By default all columns.
    policy
        :class:`~penstock.policy.concept.ConceptDriven` by default: what fits, in quotas by group. Where a policy says
        itself how much to keep, as ``ConceptDriven(keep=0.03)``, no window gets more than that. ``Uniform()`` and
        ``KeepAll()`` go the same way, for comparison.
    weight
        Name of the weight column that the function sees. If the stream has it already, weights multiply.
    buckets
        How many parts of a window are worked on in parallel, up to 8; by default the number of shuffle partitions. A
        query keeps the number it was first started with.
    late_share, probe_tuples, grace_seconds
        See :class:`~penstock.control.governor.Governor`; rows are those of windows here.
    seed
        Another seed keeps other rows.
    name
        Names the plan log within the checkpoint.
    spill
        Folder in which the rows that a window sheds are stored as Parquet when it is answered, or a
        :class:`~penstock.spark.spill.options.Spill` that says more; see :func:`backfill_windows`.

    Returns
    -------
    WindowShedder
        For ``events.transform(windows)``, on a stream with a watermark; select the columns that the function needs
        before, for all are buffered. The answers have ``window`` (start, end), the columns of ``returns``, and
        ``shed``: what became of the rows of the window in this bucket (``offered``, ``kept``, ``groups``,
        ``missing_groups``, ``missing_tuples``; rows too ``late`` for any window since the last answer), how the
        concept moved since the window before (``overlap``, ``distance``), and the ``seconds`` the answer took. Write
        them in append mode, and start the query with ``windows.start(writer)``.
    """
    columns = columns_of(returns)
    return WindowShedder(
        _Windows(
            policy=_policy(policy),
            work=OneStream(function=function, columns=tuple(columns.names), weight=weight),
            columns=columns,
            sides=1,
            time=time,
            span=_span(size_seconds, slide_seconds),
            key=names_of("key", key),
            value=value,
            row_id=names_of("row_id", row_id),
            buckets=buckets if names_of("key", key) else 1,
            seed=seed,
        ),
        governor=_governor(latency_seconds, late_share, probe_tuples, grace_seconds),
        checkpoint=checkpoint,
        name=name,
        spill=to_spill(spill),
    )


def shed_join(
    function: Callable[[pd.DataFrame, pd.DataFrame], pd.DataFrame],
    returns: str | T.StructType,
    *,
    time: str,
    size_seconds: float,
    slide_seconds: float | None = None,
    latency_seconds: float,
    checkpoint: str,
    key: str | Sequence[str],
    value: str | None = None,
    row_id: str | Sequence[str] = (),
    policy: Policy | None = None,
    weight: str = "weight",
    buckets: int | None = None,
    late_share: float = 0.05,
    probe_tuples: int = 20_000,
    grace_seconds: float = 60.0,
    seed: int = 0,
    name: str = "windows",
    spill: str | StorePath | Spill | None = None,
) -> WindowShedder:
    """Join two streams window by window on a key, after shedding both by what they have in common.

    Keys that one side only has are shed wholly; the others share the budget by the pairs they make. The function gets
    the survivors of both sides (see :func:`join_pairs`); the weight of a pair is the product of its weights. For
    ``left.transform(windows, right)``.

    Parameters are those of :func:`shed_windows`; ``time``, ``key``, ``value`` and ``row_id`` name columns that both
    sides have (``value`` may be missing from one of them).
    """
    columns = columns_of(returns)
    keys = names_of("key", key)
    if not keys:
        raise InvalidInputError("a join needs a key; name the column or columns that both streams have: key='user'")
    return WindowShedder(
        _Windows(
            policy=_policy(policy),
            work=TwoStreams(function=function, columns=tuple(columns.names), weight=weight),
            columns=columns,
            sides=2,
            time=time,
            span=_span(size_seconds, slide_seconds),
            key=keys,
            value=value,
            row_id=names_of("row_id", row_id),
            buckets=buckets,
            seed=seed,
        ),
        governor=_governor(latency_seconds, late_share, probe_tuples, grace_seconds),
        checkpoint=checkpoint,
        name=name,
        spill=to_spill(spill),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Windows:
    """What is answered, from which rows."""

    policy: Policy
    work: OneStream | TwoStreams
    columns: T.StructType
    sides: int
    time: str
    span: Span
    key: tuple[str, ...]
    value: str | None
    row_id: tuple[str, ...]
    buckets: int | None
    seed: int


class WindowShedder:
    """What :func:`shed_windows` and :func:`shed_join` return: a transformation, and the way to start its query."""

    def __init__(
        self, windows: _Windows, *, governor: Governor, checkpoint: str, name: str, spill: Spill | None
    ) -> None:
        self._windows = windows
        at = local_path(checkpoint, needed_for="blocks of windows")
        folder = at / "penstock" / name
        self._planner = WindowPlanner(
            checkpoint=at,
            governor=governor,
            name=name,
            policy=windows.policy,
            blocks=BlockFolder(folder / "blocks"),
            accounts=AccountFolder(folder / "accounts"),
            span=windows.span,
        )
        self._spill = spill
        self._session: SparkSession | None = None
        self._buckets = 0

    def __call__(self, events: DataFrame, *others: DataFrame) -> DataFrame:
        """Answer the windows of a stream, or of two; for ``events.transform(windows)``."""
        windows, planner = self._windows, self._planner
        streams = (events, *others)
        if self._session is not None:
            raise InvalidInputError(
                "these windows are already applied to a stream; another one needs windows of its own, with a "
                "checkpoint of their own"
            )
        if len(streams) != windows.sides:
            raise InvalidInputError(
                f"windows over {windows.sides} stream{'s' if windows.sides > 1 else ''} got {len(streams)}; give "
                + ("both: left.transform(windows, right)" if windows.sides > 1 else "one: events.transform(windows)")
            )
        cut = _cut(events, windows.span, windows.buckets)
        salt = planner.log.salt()
        # Rows of both sides with the same id draw apart, or pairs of them would survive too often.
        sides: tuple[tuple[str, ...], ...] = ((),) if windows.sides == 1 else (("left",), ("right",))
        blocks = [
            blocks_of(
                stream,
                time=windows.time,
                key=windows.key,
                value=windows.value if windows.sides == 1 or windows.value in stream.columns else None,
                row_id=windows.row_id,
                folder=planner.blocks,
                cut=cut,
                stage=stage_seed(salt, *called, seed=windows.seed),
                side=side,
            )
            for side, (called, stream) in enumerate(zip(sides, streams, strict=True))
        ]
        spilling = None
        if self._spill is not None:
            spilling = WindowSpill.of(
                *(stream.schema for stream in streams),
                spill=self._spill,
                checkpoint=planner.checkpoint,
                policy=windows.policy,
            )
        answers = (
            reduce(DataFrame.unionByName, blocks)
            .groupBy("label")
            .transformWithStateInPandas(
                WindowOperator(planner=planner, cut=cut, work=windows.work, sides=windows.sides, spill=spilling),
                with_account(windows.columns),
                "append",
                "eventTime",
            )
        )
        self._session, self._buckets = events.sparkSession, cut.buckets
        return laid_out(answers, windows.columns)

    def start(self, writer: DataStreamWriter) -> Run:
        """Start the query that was built on the answers, and control it.

        The writer needs no checkpoint location: it gets that of the windows.
        """
        if self._session is None:
            raise InvalidInputError("no stream was given yet; build the query on events.transform(windows)")
        windows, planner = self._windows, self._planner
        planner.log.verify()
        planner.log.pin_sampling(
            {
                "salt": planner.log.salt(),
                "row_id": list(windows.row_id),
                "key": list(windows.key),
                "seed": windows.seed,
                "time": windows.time,
                "span": [windows.span.size_micros, windows.span.slide_micros],
                "buckets": self._buckets,
            }
        )
        return start_run(
            spark=self._session,
            writer=writer,
            planner=planner,
            recount=StoredCounts(planner=planner),
            tidy=self._tidy,
        )

    def _tidy(self, batch_id: int) -> None:
        del batch_id
        replayable = folder_at(self._planner.checkpoint / "offsets").ids()
        if replayable:
            self._planner.accounts.prune(before=replayable[0])


def _policy(given: Policy | None) -> Policy:
    policy = given or ConceptDriven()
    require_window_policy(policy)
    return policy


def _governor(latency_seconds: float, late_share: float, probe_tuples: int, grace_seconds: float) -> Governor:
    return Governor(
        latency_seconds=latency_seconds,
        late_share=late_share,
        probe_tuples=probe_tuples,
        grace_seconds=grace_seconds,
    )


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


def columns_of(schema: str | T.StructType) -> T.StructType:
    """Read what the function returns; names that the account needs are refused."""
    columns = schema if isinstance(schema, T.StructType) else _struct(schema)
    taken = {*_struct(ACCOUNT_TYPE).names, "window", "shed"} & set(columns.names)
    if taken:
        raise InvalidInputError(
            f"returns has the column {sorted(taken)[0]!r}, a name that the account of the window uses; rename it"
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
