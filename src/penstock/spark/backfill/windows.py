"""Exact answers, afterwards, for windows that were shed by concept and stored."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import reduce
from time import perf_counter

import pandas as pd
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T
from pyspark.sql.pandas.types import to_arrow_schema

from penstock.model.errors import InvalidInputError, SpillError, require_function
from penstock.spark.backfill.reach import Moment, Period
from penstock.spark.backfill.result import Backfilled, Gap
from penstock.spark.checks import require_frame, require_session
from penstock.spark.names import weight_of
from penstock.spark.spill.folder import SpillFolder
from penstock.spark.spill.options import Spill
from penstock.spark.spill.schema import stream_columns
from penstock.spark.spill.window_writer import ONLY, SIDES, WindowPart, stored_windows
from penstock.spark.store.folder import folder_at
from penstock.spark.store.paths import AnyPath, Location, place
from penstock.spark.windows.answer import checked
from penstock.spark.windows.shedder import columns_of, laid_out, with_account

# What is answered in one call of the function.
ONE_CALL = ("window_start", "window_end", "bucket")


def backfill_windows(
    spark: SparkSession,
    spill: Location | Spill,
    function: Callable[..., pd.DataFrame],
    returns: str | T.StructType,
    *,
    checkpoint: Location,
    into: Location,
    weight: str = "weight",
    answers: DataFrame | None = None,
    since: Moment | None = None,
    until: Moment | None = None,
) -> Backfilled:
    """Answer again, exactly, every window of :func:`shed_windows` or :func:`shed_join` that shed rows.

    The rows come from the spill, which must have been made with ``Spill(rows="all")``; neither the source nor the
    blocks are needed. The function is called as in the stream, once per window and bucket, with all rows and weights
    of 1; for a join, with those of both sides.

    Parameters
    ----------
    spark
        The session.
    spill
        The spill that the windows were shed with, or its folder.
    function, returns, weight
        As they were given to :func:`shed_windows` or :func:`shed_join`.
    checkpoint
        Folder of the query's checkpoint: it says which windows of the spill are this query's, and which were committed.
    into
        Folder for the exact answers, which are written anew each time.
    answers
        The first answers, with their columns ``window`` and ``shed``: a window of which they say that it shed, and that
        the spill does not have, is then named in ``gaps``. Without them, a window that is gone from the spill
        altogether is not missed, and keeps its first answers.
    since, until
        Answer only windows that start in this stretch of event time, ``until`` not included: moments, or texts that say
        them. By default all.

    Returns
    -------
    Backfilled
        ``correct(approximate, on=["window"])`` puts the exact answers in place of those of the same windows. Their
        column ``shed`` says that all rows were kept; what only the stream knew (``groups``, ``late``, drift) is null.
        A window of which the spill has not all rows keeps its first answers, and is named in ``gaps``.

    Examples
    --------
    >>> import pandas as pd, penstock as ps, tempfile
    >>> from pyspark.sql import functions as F
    >>> spark, folder = ps.local_session(), tempfile.mkdtemp()
    >>> events = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 100).load()
    >>> def total(rows):
    ...     return pd.DataFrame({"total": [float((rows.weight * rows.value).sum())]})
    >>> spill = ps.Spill(f"{folder}/spill", rows="all")
    >>> windows = ps.shed_windows(
    ...     total,
    ...     "total DOUBLE",
    ...     time="timestamp",
    ...     size_seconds=1,
    ...     row_id="value",
    ...     policy=ps.ConceptDriven(keep=0.1),
    ...     latency_seconds=60,
    ...     checkpoint=f"{folder}/checkpoint",
    ...     spill=spill,
    ... )
    >>> totals = events.withWatermark("timestamp", "0 seconds").transform(windows)
    >>> with windows.start(totals.writeStream.format("parquet").option("path", f"{folder}/answers")) as run:
    ...     batches = [batch for _, batch in zip(range(4), run.watch())]
    >>> done = ps.backfill_windows(
    ...     spark, spill, total, "total DOUBLE", checkpoint=f"{folder}/checkpoint", into=f"{folder}/backfill"
    ... )
    >>> exact = done.correct(spark.read.parquet(f"{folder}/answers"), on=["window"])
    >>> exact.orderBy("window").first().total == sum(range(100))
    True
    """
    require_session(spark)
    require_function("function", function, meaning="what answers a window, as in shed_windows or shed_join")
    at, folder = place(checkpoint), place(into, role="into")
    weight_of(weight)
    if answers is not None:
        require_frame("answers", answers)
    root = (spill if isinstance(spill, Spill) else Spill(spill)).folder
    columns, period = columns_of(returns), Period.of(spark, since, until)
    spilled = SpillFolder.of(root, at)
    committed = max(folder_at(at / "commits").ids(), default=-1)
    if spilled is None or committed < 0:
        raise InvalidInputError(f"no batch was committed on {at} yet: no window was answered")
    # What was stored by a batch that was never committed has no answer to correct. A window of which a part is missing
    # may have shed in that part.
    windows = {
        start: parts
        for start, parts in sorted(stored_windows(spilled.path).items())
        if period.holds_micros(start)
        and all(part.batch_id <= committed for part in parts)
        and (any(part.shed for part in parts) or sum(part.offered for part in parts) < parts[0].whole)
    }
    gaps = [_gap(start, parts, root) for start, parts in windows.items() if not _is_whole(parts)]
    whole = {start: parts for start, parts in windows.items() if _is_whole(parts)}
    if answers is not None:
        missed = (start for start in _shed(answers) if start not in windows and period.holds_micros(start))
        gaps += [_gap(start, (), root) for start in missed]
    if not whole and gaps:
        raise SpillError(gaps[0].reason)
    if not whole:
        raise InvalidInputError(
            f"the spill {root} has no window of the query on {at} that shed rows: there is nothing to backfill"
        )
    flat, time_zone = with_account(columns), str(spark.conf.get("spark.sql.session.timeZone"))
    answering = _Answering(
        function=function,
        weight=weight,
        columns=tuple(columns.names),
        schema=to_arrow_schema(flat, timezone=time_zone),
        time_zone=time_zone,
    )
    rows = _rows_of(spark, spilled.path, whole)
    exact = _exact(spark, rows, answering, flat)
    target = str(folder / "exact")
    laid_out(exact, columns).write.mode("overwrite").parquet(target)
    parts = [part for each in whole.values() for part in each]
    return Backfilled(
        answers=spark.read.parquet(target),
        batches=len({part.batch_id for part in parts}),
        rows=sum(part.offered for part in parts),
        shed=sum(part.shed for part in parts),
        from_spill=len({part.batch_id for part in parts}),
        windows=_windows_of(rows.values()),
        gaps=tuple(gaps),
        approximate=spark.createDataFrame([(gap.first,) for gap in gaps], "start TIMESTAMP"),
    )


def _rows_of(spark: SparkSession, path: AnyPath, windows: Mapping[int, Sequence[WindowPart]]) -> dict[str, DataFrame]:
    """Read all rows of some windows, by side."""
    files: dict[str, list[str]] = {}
    for start, parts in windows.items():
        for part in parts:
            files.setdefault(part.side, []).append(str(path / f"window={start}" / part.name))
    return {side: spark.read.parquet(*paths) for side, paths in files.items()}


def _exact(spark: SparkSession, rows: Mapping[str, DataFrame], answering: _Answering, flat: T.StructType) -> DataFrame:
    """Answer windows from all of their rows."""
    grouped = {
        side: its_rows.select(*stream_columns(its_rows), *ONE_CALL).groupBy(*ONE_CALL)
        for side, its_rows in rows.items()
    }

    # Functions, not methods: Spark counts arguments, and would take a method's own for a key.
    def of_one(rows: pa.Table) -> pa.Table:
        return answering.answer(rows)

    def of_both(left: pa.Table, right: pa.Table) -> pa.Table:
        return answering.answer(left, right)

    if ONLY in grouped:
        return grouped[ONLY].applyInArrow(of_one, flat)
    if set(grouped) != set(SIDES):
        # All rows are on one side: there is nobody to meet, in any window.
        return spark.createDataFrame([], flat)
    left, right = (grouped[side] for side in SIDES)
    return left.cogroup(right).applyInArrow(of_both, flat)


def _windows_of(rows: Iterable[DataFrame]) -> DataFrame:
    window = F.struct(F.col("window_start").alias("start"), F.col("window_end").alias("end")).alias("window")
    return reduce(DataFrame.union, (each.select(window) for each in rows)).distinct()


def _shed(answers: DataFrame) -> list[int]:
    """List the windows of which the first answers say that they shed, by their start."""
    if not {"window", "shed"} <= set(answers.columns):
        raise InvalidInputError(
            f"answers must have the columns 'window' and 'shed' as shed_windows gives them, got {answers.columns}; "
            "leave answers= out if they were not stored"
        )
    shed = answers.where("shed.offered > shed.kept").select(F.unix_micros("window.start").alias("start")).distinct()
    return sorted(row.start for row in shed.collect())


def _is_whole(parts: Sequence[WindowPart]) -> bool:
    return sum(part.rows for part in parts) == parts[0].whole


def _gap(start: int, parts: Sequence[WindowPart], root: AnyPath) -> Gap:
    """Say what is missing of a window."""
    moment = datetime.fromtimestamp(start / 1e6)
    if parts:
        reason = (
            f"the spill {root} has {sum(part.rows for part in parts)} of {parts[0].whole} rows of the window that "
            f'starts at {moment}, and no window is exact without; was it made with rows="shed"? Then store all rows '
            'next time: Spill(..., rows="all"). Files that were moved must be put back'
        )
    else:
        reason = (
            f"the spill {root} has nothing of the window that starts at {moment}, which shed rows; was it answered "
            "without a spill, or its folder removed? Put it back"
        )
    return Gap(batches=tuple(sorted({part.batch_id for part in parts})), reason=reason, first=moment, last=moment)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Answering:
    """Call the function on all rows of a window in one bucket; travels to the executors by pickle."""

    function: Callable[..., pd.DataFrame]
    weight: str
    columns: tuple[str, ...]
    schema: pa.Schema
    time_zone: str

    def answer(self, *sides: pa.Table) -> pa.Table:
        """Answer one window in one bucket."""
        started = perf_counter()
        if not all(map(len, sides)):
            # A join of which one side has no rows here: the function is not called in the stream either.
            return self.schema.empty_table()
        answered = checked(self.function(*map(self._rows, sides)), self.columns)
        all_rows, none = pa.scalar(sum(map(len, sides)), pa.int64()), pa.scalar(0, pa.int64())
        account = {
            **{name: sides[0][name][0] for name in ONE_CALL},
            **{"offered": all_rows, "kept": all_rows, "shed": none, "missing_groups": none, "missing_tuples": none},
            "seconds": pa.scalar(perf_counter() - started, pa.float64()),
        }
        arrays = []
        for field in self.schema:
            if field.name in self.columns:
                arrays.append(self._own(answered[field.name], field.type))
            elif field.name in account:
                arrays.append(pa.repeat(account[field.name], len(answered)).cast(field.type))
            else:
                arrays.append(pa.nulls(len(answered), field.type))
        return pa.Table.from_arrays(arrays, schema=self.schema)

    def _rows(self, table: pa.Table) -> pd.DataFrame:
        rows: pd.DataFrame = table.drop_columns(list(ONE_CALL)).to_pandas()
        rows[self.weight] = rows[self.weight] * 1.0 if self.weight in rows.columns else 1.0
        return rows

    def _own(self, column: pd.Series, kind: pa.DataType) -> pa.Array:
        """Bring a column into its type; times without a zone are those of the session, as Spark takes them."""
        if pa.types.is_timestamp(kind) and kind.tz is not None and not isinstance(column.dtype, pd.DatetimeTZDtype):
            column = pd.to_datetime(column).dt.tz_localize(self.time_zone)
        return pa.Array.from_pandas(column, type=kind)
