"""Windows that are shed by concept, as a query is built on them and started."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import cast

import pandas as pd
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T
from pyspark.sql.streaming.readwriter import DataStreamWriter

from penstock.control.governor import Governor
from penstock.model.errors import (
    InvalidInputError,
    require_function,
    require_name,
    require_seed,
    require_text,
    require_whole,
)
from penstock.policy.contract import Policy
from penstock.policy.strata.drift import drift, value_drift
from penstock.spark.checks import parsed_schema, require_stream, require_writer
from penstock.spark.judge.sampling import stage_seed
from penstock.spark.names import name_of, names_of, quoted, weight_of
from penstock.spark.run.handle import Run, start_run
from penstock.spark.run.recount import StoredCounts
from penstock.spark.spill.options import Spill
from penstock.spark.spill.window_writer import WindowSpill
from penstock.spark.store.folder import folder_at
from penstock.spark.store.paths import Location, local_path
from penstock.spark.windows.accounts import AccountFolder
from penstock.spark.windows.answer import OneStream, TwoStreams
from penstock.spark.windows.blocks import LABELS, BlockFolder, Cut
from penstock.spark.windows.input import blocks_of
from penstock.spark.windows.planner import WindowPlanner
from penstock.spark.windows.span import Span
from penstock.spark.windows.stateful import ACCOUNT_TYPE, Moved, WindowOperator


@dataclass(frozen=True, slots=True, kw_only=True)
class Windows:
    """What is answered, from which rows."""

    policy: Policy
    work: OneStream | TwoStreams
    columns: T.StructType
    time: str
    span: Span
    key: tuple[str, ...]
    value: str | None
    row_id: tuple[str, ...]
    buckets: int | None
    seed: int

    @classmethod
    def of(
        cls,
        kind: type[OneStream] | type[TwoStreams],
        function: Callable[..., pd.DataFrame],
        returns: str | T.StructType,
        *,
        policy: Policy,
        time: str,
        span: Span,
        key: str | Sequence[str],
        value: str | None,
        row_id: str | Sequence[str],
        weight: str,
        buckets: int | None,
        seed: int,
    ) -> Windows:
        """Refuse what cannot be worked with, whatever the streams are."""
        require_function("function", function, meaning="what answers a window from its survivors")
        columns = columns_of(returns)
        require_text("time", time, meaning="the timestamp column that assigns rows to windows, such as 'timestamp'")
        require_seed(seed)
        keys, ids = names_of("key", key), names_of("row_id", row_id)
        weight_of(weight, beside=(*keys, *ids, time, name_of("value", value)))
        if buckets is not None:
            require_whole("buckets", buckets, most=len(LABELS), meaning="into how many parts windows are split")
        return cls(
            policy=policy,
            work=kind(function=function, columns=tuple(columns.names), weight=weight),
            columns=columns,
            time=time,
            span=span,
            key=keys,
            value=value,
            row_id=ids,
            buckets=buckets,
            seed=seed,
        )

    @property
    def sides(self) -> int:
        """How many streams they are over."""
        return 2 if isinstance(self.work, TwoStreams) else 1

    @property
    def moved(self) -> Moved | None:
        """How far a window is from the one before: by its groups, without them by its values, else nobody knows."""
        if self.key:
            return drift
        return value_drift if self.value is not None else None

    def cut_for(self, events: DataFrame) -> Cut:
        """Say into how many parts windows are split: where there are no groups, into one."""
        partitions = int(str(events.sparkSession.conf.get("spark.sql.shuffle.partitions")))
        buckets = min(partitions, len(LABELS)) if self.buckets is None else self.buckets
        return Cut(pane_micros=self.span.pane_micros, buckets=buckets if self.key else 1)


class WindowShedder:
    """What :func:`shed_windows` and :func:`shed_join` return: a transformation, and the way to start its query."""

    def __init__(
        self, windows: Windows, *, governor: Governor, checkpoint: Location, name: str, spill: Spill | None
    ) -> None:
        require_name(name)
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
        for stream in streams:
            require_stream("what windows are shed of", stream, otherwise="")
        if windows.value is not None and not any(windows.value in stream.columns for stream in streams):
            which = "the stream does not have" if windows.sides == 1 else "neither stream has"
            raise InvalidInputError(
                f"value names the column {windows.value!r}, which {which}; there are "
                + " and ".join(", ".join(stream.columns) for stream in streams)
            )
        cut = windows.cut_for(events)
        salt = planner.log.salt()
        # Rows of both sides with the same id draw apart, or pairs of them would survive too often.
        sides: tuple[tuple[str, ...], ...] = ((),) if windows.sides == 1 else (("left",), ("right",))
        blocks = [
            blocks_of(
                stream,
                time=windows.time,
                key=windows.key,
                value=windows.value if windows.value in stream.columns else None,
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
                WindowOperator(
                    planner=planner,
                    cut=cut,
                    work=windows.work,
                    sides=windows.sides,
                    moved=windows.moved,
                    spill=spilling,
                ),
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
        require_writer(writer)
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


def columns_of(returns: str | T.StructType) -> T.StructType:
    """Read what the function returns; names that the account needs are refused."""
    columns = parsed_schema("returns", returns, example="total DOUBLE")
    taken = {*_struct(ACCOUNT_TYPE).names, "window", "shed"} & set(columns.names)
    if taken:
        raise InvalidInputError(
            f"returns has the column {sorted(taken)[0]!r}, a name that the account of the window uses; rename it"
        )
    names_of("returns", columns.names)
    return columns


def _struct(ddl: str) -> T.StructType:
    return cast("T.StructType", T.StructType.fromDDL(ddl))
