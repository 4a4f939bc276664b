"""The user's side of load-aware shedding: an expensive Python operator that holds its latency."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, get_args

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.readwriter import DataStreamWriter

from penstock.control.target import Target
from penstock.control.workplan import RowRule
from penstock.control.workshop import Workshop
from penstock.model.errors import (
    InvalidInputError,
    require_choice,
    require_flag,
    require_function,
    require_kind,
    require_name,
    require_positive,
    require_seed,
    require_text,
    require_whole,
)
from penstock.policy.rows.constraint import AverageLatency, Constraint
from penstock.policy.rows.load_aware import TRUE, LoadAware
from penstock.policy.rows.sequence import TuplePolicy
from penstock.spark.backfill.reach import Moment
from penstock.spark.backfill.result import Backfilled
from penstock.spark.checks import parsed_schema, require_stream, require_writer
from penstock.spark.judge.sampling import stage_seed
from penstock.spark.judge.work import WorkMarks
from penstock.spark.names import name_of, names_of, quoted, weight_of
from penstock.spark.plan.work_planner import WorkPlanner
from penstock.spark.run.handle import Run, own_error, start_run
from penstock.spark.run.operator_learner import OperatorLearner
from penstock.spark.run.recount import StreamRecount
from penstock.spark.spill.options import Spill, to_spill
from penstock.spark.spill.schema import stream_columns
from penstock.spark.spill.spilling import Spilling
from penstock.spark.spill.writer import Part
from penstock.spark.store.paths import Location, place
from penstock.spark.work.calls import FAIL, SKIP, Calling
from penstock.spark.work.columns import Columns
from penstock.spark.work.task import REPORT, WorkTask

REMEMBERED_REPORTS = 1_000


def operator(
    function: Callable[[Any], Any],
    *,
    key: str | Sequence[str],
    returns: str,
    latency: float | Constraint,
    checkpoint: Location,
    arrival: str | None = None,
    policy: TuplePolicy | None = None,
    utility: str | None = None,
    true_cost: str | None = None,
    batchwise: bool = False,
    chunk_tuples: int = 64,
    on_error: str = FAIL,
    weight: str = "weight",
    probe_tuples: int = 1_000,
    grace_seconds: float = 60.0,
    seed: int = 0,
    name: str = "operator",
    spill: Location | Spill | None = None,
) -> Operator:
    """Run an expensive Python function over a stream, and shed what would make its results late.

    What a tuple costs is measured and learned by key. Each partition decides tuple by tuple, from the plan of its
    batch, what to execute. Apply the result with ``transform`` and start the query through it.

    Parameters
    ----------
    function
        Row-wise: gets a row as a dict and returns a dict with the columns of ``returns``, or None for no row.
        Batch-wise: gets a pyarrow RecordBatch and returns one, or a Table.
    key
        Column or columns that the cost of a row depends on; compared as text. Rows with a null in it share one key.
    returns
        Columns of the results, as in ``"user STRING, score DOUBLE"``; the weight is added.
    latency
        Seconds from arrival to commit, on average; or a constraint, such as ``MaximumLatency(seconds=5)``.
    checkpoint, weight, grace_seconds, seed, name
        As in :func:`penstock.spark.shed.shed`.
    arrival
        Timestamp column; without it rows count as evenly spread over the time since the batch before.
    policy
        :class:`~penstock.policy.rows.load_aware.LoadAware` by default, or
        :class:`~penstock.policy.rows.density.Density`.
    utility
        Numeric column that says what a row is worth to the density policy; 1 by default.
    true_cost
        Column with the true cost in seconds, for policies that are given it.
    batchwise, chunk_tuples
        Whether the function takes batches, and of how many rows at most.
    probe_tuples
        Before costs are known, a batch takes at most this many rows, chosen at random.
    on_error
        What to do when the function raises: ``"fail"`` fails the query, ``"skip"`` counts the row and leaves it out.
    spill
        Folder in which rows that are not executed are stored as Parquet, or a
        :class:`~penstock.spark.spill.options.Spill` that says more. By default they are only counted.

    Examples
    --------
    >>> import penstock as ps, tempfile
    >>> spark = ps.local_session()
    >>> events = spark.readStream.format("rate").option("rowsPerSecond", 100).load()
    >>> square = ps.operator(
    ...     lambda row: {"value": row["value"], "square": row["value"] ** 2},
    ...     key="value",
    ...     returns="value BIGINT, square BIGINT",
    ...     latency=5,
    ...     checkpoint=tempfile.mkdtemp(),
    ... )
    >>> writer = events.transform(square).writeStream.format("noop")
    >>> with square.start(writer) as run:
    ...     first = next(run.watch())
    >>> first.offered == first.kept + first.shed
    True
    """
    require_function("function", function, meaning="what is run on each row, or on each batch with batchwise=True")
    if isinstance(latency, (int, float)):
        require_positive("latency", latency, meaning="the seconds from arrival to commit to hold on average")
        latency = AverageLatency(seconds=float(latency))
    require_kind("latency", latency, get_args(Constraint), called="seconds or a constraint", example="5.0")
    policy = LoadAware() if policy is None else policy
    require_kind("policy", policy, TuplePolicy, called="a policy that decides row by row", example="LoadAware()")
    Workshop(policy, latency)
    require_name(name)
    require_seed(seed)
    require_choice("on_error", on_error, (FAIL, SKIP), meaning="what to do when the function raises")
    require_flag("batchwise", batchwise, meaning="whether the function takes batches of rows")
    require_whole("chunk_tuples", chunk_tuples, meaning="how many rows a call gets at most")
    utility, true_cost = name_of("utility", utility), name_of("true_cost", true_cost)
    if policy.KNOWS == TRUE and true_cost is None:
        raise InvalidInputError("the policy is to be given true costs; name the column that holds them: true_cost=...")
    if not (keys := names_of("key", key)):
        raise InvalidInputError("key must name at least one column; costs are learned by key")
    arrival = name_of("arrival", arrival)
    require_text("returns", returns, meaning="the columns of the results, as in 'user STRING, score DOUBLE'")
    weight_of(weight, beside=(*keys, arrival, utility, true_cost))
    return Operator(
        function=function,
        returns=returns,
        planner=WorkPlanner(
            checkpoint=place(checkpoint),
            target=Target(latency_seconds=latency.seconds, probe_tuples=probe_tuples, grace_seconds=grace_seconds),
            name=name,
            rule=RowRule(policy=policy, constraint=latency, utility=utility, true_cost=true_cost),
        ),
        columns=Columns(key=keys, arrival=arrival, utility=utility, true_cost=true_cost),
        options={"weight": weight, "batchwise": batchwise, "chunk_tuples": chunk_tuples, "on_error": on_error},
        seed=seed,
        spill=to_spill(spill),
    )


class Operator(Spilling):
    """What :func:`operator` returns: a transformation of a streaming DataFrame, and the way to start its query."""

    CALLED = ("operator", "operator")
    _planner: WorkPlanner

    def __init__(
        self,
        *,
        function: Callable[[Any], Any],
        returns: str,
        planner: WorkPlanner,
        columns: Columns,
        options: dict[str, Any],
        seed: int,
        spill: Spill | None = None,
    ) -> None:
        super().__init__(planner=planner, spill=spill)
        self._function = function
        self._returns = returns
        self._columns = columns
        self._options = options
        self._seed = seed

    def __call__(self, events: DataFrame) -> DataFrame:
        """Execute the function on what fits; for ``events.transform(operator)``."""
        if self._events is not None:
            raise InvalidInputError(
                "this operator is already applied to a stream; a second one needs its own operator()"
            )
        require_stream("what an operator runs on", events, otherwise=", or mapInArrow here")
        self._columns.check(events)
        self._check_storable(events)
        self._events = events
        marks, spill = self._marks(), None
        if self._spill is not None:
            weight = self._options["weight"]
            spill = Part.of(events.schema, spill=self._spill, planner=self._planner, weight=weight)
        running = replace(marks, task=replace(marks.task, execute=True, spill=spill))
        reported = running.reported(events)
        counted = reported.observe(self._planner.name, *running.counts(reported))
        return counted.where(F.col(REPORT).isNull()).drop(REPORT)

    def start(self, writer: DataStreamWriter) -> Run:
        """Start the query that was built on the results, and control it; the writer gets the operator's checkpoint."""
        if self._events is None:
            raise InvalidInputError("nothing runs yet; build the query on events.transform(operator), then start it")
        require_writer(writer)
        events, planner = self._events, self._planner
        planner.log.verify()
        pinned = {"key": list(self._columns.key), "arrival": self._columns.arrival, "seed": self._seed}
        planner.log.pin_sampling({**pinned, "salt": planner.log.salt()})
        recount = StreamRecount(events=events, planner=planner, marking=self._marks())  # type: ignore[arg-type]
        return start_run(
            spark=events.sparkSession,
            writer=writer,
            planner=planner,
            recount=recount,
            compose=lambda costs: {"costs": costs, "operator": OperatorLearner(planner)},
            tidy=self._tidying(),
        )

    def backfill(
        self,
        query: Callable[[DataFrame], DataFrame],
        *,
        window: Column,
        into: Location,
        since: Moment | None = None,
        until: Moment | None = None,
    ) -> Backfilled:
        """Answer again, exactly, for every window in which rows were shed.

        All rows of these windows are taken from the spill, if it has them (``Spill(rows="all")``), or else read again
        from the source as a replay would read them. Then the operator's function runs over all of them, however long
        that takes, and the query over its results, whose weights are 1. See ``docs/backfill.md``.

        Parameters
        ----------
        query
            What follows the operator: the function that was applied to ``events.transform(operator)``.
        window
            The window of a row that comes in, as in ``F.window("timestamp", "10 seconds")``.
        into
            Folder for the rows and the exact answers.
        since, until
            Answer only windows that start in this stretch of event time, ``until`` not included: moments, or texts that
            say them. By default all.
        """
        marks = self._marks()

        def execute(rows: DataFrame) -> DataFrame:
            # The function sees what it saw in the stream: no weight of Penstock's, and nothing of what became of rows.
            return marks.executed(rows.select(*stream_columns(rows)))

        try:
            return self._backfill(
                query, window=window, into=into, since=since, until=until, mark=marks, prepare=execute
            )
        except Exception as failure:
            # What the function raised in a worker, without what Spark wrapped around it.
            raise own_error(failure) or failure from failure

    def _marks(self) -> WorkMarks:
        """Decide without executing: what a recount and a backfill need to know."""
        weight = self._options["weight"]
        calling = Calling(function=self._function, schema=_returned(self._returns, weight), **self._options)
        stage = stage_seed(self._planner.log.salt(), seed=self._seed)
        task = WorkTask(calling=calling, planner=self._planner, stage=stage, execute=False)
        return WorkMarks(task=task, columns=self._columns, returns=f"{self._returns}, {quoted(weight)} DOUBLE")


def _returned(returns: str, weight: str) -> pa.Schema:
    """Read the promised columns as Arrow types."""
    schema = parsed_schema("returns", returns, example="user STRING, score DOUBLE")
    names_of("returns", schema.names)
    if weight in schema.names:
        raise InvalidInputError(f"returns must name columns other than the weight {weight!r}, got {returns!r}")
    # Arrow holds times as microseconds of UTC, whatever the session shows.
    return to_arrow_schema(schema, timezone="UTC")
