"""``ps.Network``: many queries over the same streams, in one Spark query that sheds where it costs least."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

from pyspark.sql import DataFrame
from pyspark.sql.streaming.readwriter import DataStreamWriter

from penstock.control.governor import Governor
from penstock.model import network as model
from penstock.model.errors import (
    InvalidInputError,
    NotSupportedError,
    require_choice,
    require_name,
    require_seed,
    require_text,
)
from penstock.policy.network.build import require_step
from penstock.spark.checks import TIMES, require_columns, require_frame, require_stream, require_type, require_writer
from penstock.spark.compile.steps import AggregateStep, MapStep, OutputStep, SourceStep, Step, Steps
from penstock.spark.names import name_of, names_of
from penstock.spark.network_stream import Stream
from penstock.spark.spill.options import Spill, to_spill
from penstock.spark.store.paths import Location, place

if TYPE_CHECKING:
    from penstock.spark.backfill.reach import Moment
    from penstock.spark.backfill.result import NetworkBackfilled
    from penstock.spark.run.handle import Run

Shedding = Literal["random", "semantic", "uniform", "none"]
SHEDDING: tuple[Shedding, ...] = ("random", "semantic", "uniform", "none")
DEFAULT_LATENCY_SECONDS = 5.0


class Network:
    """A network of queries, built from DataFrames and Column expressions; it compiles to one streaming query.

    Parameters
    ----------
    checkpoint
        Folder of the query's checkpoint, or its address in HDFS or S3; plan log and ledger live in it.
    latency_seconds
        Target from arrival to commit. None lets the latency graphs of the outputs choose it; without any of those it
        is 5 seconds.
    shedding
        ``"random"`` and ``"semantic"`` follow the road map, with random drops, or with drops by value where all outputs
        below have value graphs; ``"uniform"`` drops at the inputs only; ``"none"`` only counts.
    late_share, probe_tuples, grace_seconds
        See :class:`~penstock.control.governor.Governor`.
    step
        Most that the delivered share of an output falls from one row of the road map to the next.
    seed
        Another seed keeps other rows.
    name
        Names the plan log within the checkpoint and the metrics in Spark's progress.
    spill
        Folder in which dropped rows are stored as Parquet while they are dropped, with the arc, or a
        :class:`~penstock.spark.spill.options.Spill` that says more. By default they are only counted.

    Examples
    --------
    >>> import penstock as ps, tempfile
    >>> from pyspark.sql import functions as F
    >>> spark = ps.local_session()
    >>> events = spark.readStream.format("rate").option("rowsPerSecond", 100).load()
    >>> network = ps.Network(checkpoint=tempfile.mkdtemp(), latency_seconds=5)
    >>> numbers = network.source("numbers", events, row_id="value", arrival="timestamp", event_time="timestamp")
    >>> even = numbers.filter("even", F.col("value") % 2 == 0)
    >>> even.output("even numbers", columns=["value"], loss=ps.LossTolerance.of((1, 1), (0.5, 0.9)))
    >>> counted = even.aggregate("counted", window_seconds=10)
    >>> counted.output("even numbers per window")
    >>> [ps_arc for ps_arc in network.model.arcs if ps_arc[0] == "even"]
    [('even', 'even numbers'), ('even', 'counted')]
    """

    def __init__(
        self,
        *,
        checkpoint: Location,
        latency_seconds: float | None = None,
        shedding: Shedding = "random",
        late_share: float = 0.05,
        probe_tuples: int = 20_000,
        grace_seconds: float = 60.0,
        step: float = 0.02,
        seed: int = 0,
        name: str = "network",
        spill: Location | Spill | None = None,
    ) -> None:
        require_choice("shedding", shedding, SHEDDING, meaning="how rows are dropped")
        require_step(step)
        require_name(name)
        require_seed(seed)
        self.checkpoint = place(checkpoint)
        self.shedding: Shedding = shedding
        self.name = name
        self.seed = seed
        self.step = step
        self.spill = to_spill(spill)
        self.latency_chosen = latency_seconds is None
        self.governor = Governor(
            latency_seconds=DEFAULT_LATENCY_SECONDS if latency_seconds is None else latency_seconds,
            late_share=late_share,
            probe_tuples=probe_tuples,
            grace_seconds=grace_seconds,
        )
        self.steps = Steps()
        self._nodes: list[model.Source | model.Operator | model.Output] = []
        self._model: model.Network | None = None
        self._columns: set[str] = set()

    def source(
        self,
        name: str,
        frame: DataFrame,
        *,
        row_id: str | Sequence[str],
        arrival: str | None = None,
        event_time: str | None = None,
        watermark: str = "10 seconds",
    ) -> Stream:
        """Add a stream.

        Parameters
        ----------
        row_id
            Column or columns that identify a row; their hash decides a row's fate.
        arrival
            Timestamp column that says when a row arrived, to measure the latency.
        event_time
            Timestamp column that windows and joins go by.
        watermark
            How late rows may be, as Spark takes it.
        """
        self._refuse_late(name)
        require_stream(f"source {name!r}", frame, otherwise="")
        ids = names_of("row_id", row_id)
        if not ids:
            raise InvalidInputError(
                f"row_id of source {name!r} names no column; name what identifies a row, as in 'id'"
            )
        arrival, event_time = name_of("arrival", arrival), name_of("event_time", event_time)
        require_text("watermark", watermark, meaning="how late rows may be, as in '10 seconds'")
        require_columns(f"row_id of source {name!r}", ids, frame)
        for role, column in (("arrival", arrival), ("event_time", event_time)):
            if column is not None:
                require_columns(f"{role} of source {name!r}", [column], frame)
                require_type(f"{role} of source {name!r}", column, frame, *TIMES, meaning="it must be a timestamp")
        names_of(f"source {name!r}", frame.columns)
        for column in frame.columns:
            if column.startswith("__"):
                raise InvalidInputError(f"source {name!r} has a column {column!r}; rename it, names with __ are ours")
        self.steps.sources[name] = SourceStep(
            name=name, frame=frame, row_id=ids, arrival=arrival, event_time=event_time, watermark=watermark
        )
        self._columns.update(frame.columns)
        self._nodes.append(model.Source(name=name, tuples_per_second=1.0))
        return Stream(self, name)

    def require_columns(self, role: str, names: Sequence[str]) -> None:
        """Refuse columns that no source brings and no map makes."""
        for name in names:
            if name not in self._columns:
                raise InvalidInputError(
                    f"{role} names the column {name!r}, which the network does not have; it has "
                    f"{', '.join(sorted(self._columns))}"
                )

    def add(self, operator: model.Operator, step: Step) -> Stream:
        """Add an operator; the methods of :class:`Stream` do."""
        self._refuse_late(operator.name)
        if isinstance(step, MapStep):
            for column in step.columns:
                if column in self._columns:
                    raise InvalidInputError(
                        f"map {operator.name!r} makes the column {column!r}, which there is already; give a new name: "
                        "in a network a column means the same everywhere"
                    )
                self._columns.add(column)
        self._nodes.append(operator)
        self.steps.steps[operator.name] = step
        return Stream(self, operator.name)

    def end(self, output: model.Output, step: OutputStep, value_column: str | None) -> None:
        """Add an output; :meth:`Stream.output` does."""
        self._refuse_late(output.name)
        if value_column is not None:
            if self.steps.value_column not in (None, value_column):
                raise NotSupportedError(
                    f"output {output.name!r} has a value graph by {value_column!r}, another one by "
                    f"{self.steps.value_column!r}; semantic drops go by one column in a network"
                )
            self.steps.value_column = value_column
        if output.error is not None and not isinstance(self.steps.steps.get(output.input), AggregateStep):
            raise InvalidInputError(
                f"output {output.name!r} has a target for its error, which only answers of windows have; put an "
                "aggregate in front of it"
            )
        self._nodes.append(output)
        self.steps.steps[output.name] = step

    @property
    def model(self) -> model.Network:
        """The network as policies see it; costs of 0 are to be learned."""
        if self._model is None:
            self._model = model.Network(tuple(self._nodes))
        return self._model

    def answers(self) -> DataFrame:
        """Compile to a streaming DataFrame with the answers of all outputs; docs/networks.md names its columns."""
        from penstock.spark.compile.query import compile_network

        return compile_network(self)

    def windows(self, answers: DataFrame, output: str) -> DataFrame:
        """Put the windows of an output together from stored answers, with standard errors and bounds.

        Where the output has a target for its error, an answer that misses it is treated as the target says.

        Parameters
        ----------
        answers
            What the query has written, read as a batch: ``spark.read.parquet(...)``.
        output
            An output behind an aggregate.
        """
        from penstock.spark.compile.panes import assemble_windows

        require_frame("answers", answers)
        node = next((o for o in self.model.outputs if o.name == output), None)
        step = self.steps.steps.get(node.input) if node else None
        if not isinstance(step, AggregateStep):
            raise InvalidInputError(f"{output!r} is no output of windows; outputs behind an aggregate are")
        return assemble_windows(answers, step, output, target=node.error if node else None)

    def spilled(self) -> DataFrame:
        """Read what the spill has of committed batches.

        There is one record for each drop, with the row as it was there, ``arc``, ``batch``, ``reason``, ``sampled``
        (whether the drop went by the row's hash) and ``weight`` (rows that it stood for). With ``Spill(rows="all")``
        there is one more for each row of a source, as it came: not ``shed``, without an arc, but with its ``source``.
        Each batch appears once, however often it was replayed. A batch that the ledger has and the spill has not, or
        not all of it, is an error that names it, unless it was pruned, or committed before anything was spilled.

        >>> network.spilled().where("shed").groupBy("batch", "arc", "reason").count()  # doctest: +SKIP
        """
        from penstock.spark.spill.network_reader import spilled_drops

        if self.spill is None:
            raise InvalidInputError("this network has no spill; name the folder it was run with: Network(spill=...)")
        return spilled_drops(self, self.spill)

    def backfill(
        self, *, into: Location, since: Moment | None = None, until: Moment | None = None
    ) -> NetworkBackfilled:
        """Answer again, exactly, for all that drops have touched.

        A batch with drops is taken from the spill, if all of its rows are there (``Spill(rows="all")``). Else it is
        read again from the sources, as a replay would read it, and its rows are stored as Parquet in ``into``/rows. So
        are batches beside it that hold rows of the same panes, or partners in a join. Then the network runs over them
        with nothing dropped. What is stored already is not read again, so a backfill that was cut short goes on where
        it was. A batch that is gone is passed over: panes that may lack its rows are not answered, and the result names
        both. See ``docs/backfill.md``.

        Parameters
        ----------
        into
            Folder for the rows and the exact answers.
        since, until
            Answer only panes that start in this stretch of event time, ``until`` not included, and of outputs of rows
            all that batches with rows in it gave: moments, or texts that say them. By default all.

        Examples
        --------
        >>> done = network.backfill(into="/data/tasks-backfill")  # doctest: +SKIP
        >>> done.correct(spark.read.parquet("/data/answers"))  # doctest: +SKIP
        """
        from penstock.spark.backfill.network import backfill_network

        return backfill_network(self, into=into, since=since, until=until)

    def start(self, writer: DataStreamWriter) -> Run:
        """Start the query that was built on :meth:`answers`, and control it."""
        from penstock.spark.run.network import start_network

        require_writer(writer)
        return start_network(self, writer)

    def _refuse_late(self, name: str) -> None:
        require_text("the name of a node", name, meaning="how a source, an operator or an output is told from others")
        if ":" in name or ">" in name:
            raise InvalidInputError(
                f"node name {name!r} has ':' or '>' in it, by which arcs are told apart; leave it out"
            )
        if self._model is not None:
            raise InvalidInputError("the network was compiled already; add all operators and outputs before that")
        if any(node.name == name for node in self._nodes):
            raise InvalidInputError(f"node name {name!r} is given twice; operators and outputs need names of their own")

    def _repr_svg_(self) -> str:
        from penstock.model.drawing import network_svg

        return network_svg(self.model)
