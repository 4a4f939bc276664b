"""``ps.Network``: many queries over the same streams, in one Spark query that sheds where it costs least."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T
from pyspark.sql.streaming.readwriter import DataStreamWriter

from penstock.control.governor import Governor
from penstock.model import network as model
from penstock.model.errors import InvalidInputError, NotSupportedError, require_positive
from penstock.model.quality import LINEAR, LatencyGraph, LossTolerance, ValueGraph
from penstock.spark.network_steps import (
    AggregateStep,
    FilterStep,
    JoinStep,
    MapStep,
    OutputStep,
    SourceStep,
    Step,
    Steps,
    UnionStep,
)
from penstock.spark.storage import local_path

if TYPE_CHECKING:
    from penstock.spark.network_run import NetworkRun

Shedding = Literal["random", "semantic", "uniform", "none"]
SHEDDING: tuple[Shedding, ...] = ("random", "semantic", "uniform", "none")
DEFAULT_LATENCY_SECONDS = 5.0


class Network:
    """A network of queries, built from DataFrames and Column expressions; it compiles to one streaming query.

    Parameters
    ----------
    checkpoint
        Folder of the query's checkpoint; plan log and ledger live in it.
    latency_seconds
        Target from arrival to commit. None lets the latency graphs of the outputs choose it; without any of those it
        is 5 seconds.
    shedding
        ``"random"`` and ``"semantic"`` follow the road map, with random drops, or with drops by value where all outputs
        below have value graphs; ``"uniform"`` drops at the inputs only; ``"none"`` only counts.
    headroom, dwell_batches, probe_tuples, grace_seconds
        See :class:`~penstock.control.governor.Governor`.
    step
        Most that the delivered share of an output falls from one row of the road map to the next.
    seed
        Another seed keeps other rows.
    name
        Names the plan log within the checkpoint and the metrics in Spark's progress.

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
        checkpoint: str,
        latency_seconds: float | None = None,
        shedding: Shedding = "random",
        headroom: float = 0.8,
        dwell_batches: int = 2,
        probe_tuples: int = 20_000,
        grace_seconds: float = 60.0,
        step: float = 0.02,
        seed: int = 0,
        name: str = "network",
    ) -> None:
        if shedding not in SHEDDING:
            raise InvalidInputError(f"shedding must be one of {', '.join(SHEDDING)}, got {shedding!r}")
        self.checkpoint = local_path(checkpoint)
        self.shedding: Shedding = shedding
        self.name = name
        self.seed = seed
        self.step = step
        self.latency_chosen = latency_seconds is None
        self.governor = Governor(
            latency_seconds=DEFAULT_LATENCY_SECONDS if latency_seconds is None else latency_seconds,
            headroom=headroom,
            dwell_batches=dwell_batches,
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
        if not frame.isStreaming:
            raise InvalidInputError(f"source {name!r} must be a streaming DataFrame; use spark.readStream")
        ids = (row_id,) if isinstance(row_id, str) else tuple(row_id)
        if not ids:
            raise InvalidInputError(f"row_id of source {name!r} must name a column that identifies a row")
        for column in (*ids, *([arrival] if arrival else []), *([event_time] if event_time else [])):
            if column not in frame.columns:
                raise InvalidInputError(f"source {name!r} has no column {column!r}; it has {', '.join(frame.columns)}")
        for column in frame.columns:
            if column.startswith("__"):
                raise InvalidInputError(f"source {name!r} has a column {column!r}; rename it, names with __ are ours")
        for column in (c for c in (arrival, event_time) if c):
            if not isinstance(frame.schema[column].dataType, (T.TimestampType, T.TimestampNTZType)):
                raise InvalidInputError(f"column {column!r} of source {name!r} must be a timestamp")
        self.steps.sources[name] = SourceStep(
            name=name, frame=frame, row_id=ids, arrival=arrival, event_time=event_time, watermark=watermark
        )
        self._columns.update(frame.columns)
        self._nodes.append(model.Source(name=name, tuples_per_second=1.0))
        return Stream(self, name)

    def add(self, operator: model.Operator, step: Step) -> Stream:
        """Add an operator; the methods of :class:`Stream` do."""
        self._refuse_late()
        if any(node.name == operator.name for node in self._nodes):
            raise InvalidInputError(f"node name {operator.name!r} is given twice; each node needs its own")
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
        self._refuse_late()
        if value_column is not None:
            if self.steps.value_column not in (None, value_column):
                raise NotSupportedError(
                    f"output {output.name!r} has a value graph by {value_column!r}, another one by "
                    f"{self.steps.value_column!r}; semantic drops go by one column in a network"
                )
            self.steps.value_column = value_column
        self._nodes.append(output)
        self.steps.steps[output.name] = step

    @property
    def model(self) -> model.Network:
        """The network as policies see it; costs of 0 are to be learned."""
        if self._model is None:
            self._model = model.Network(tuple(self._nodes))
        return self._model

    def answers(self) -> DataFrame:
        """Compile to a streaming DataFrame with the answers of all outputs; see the guide on networks for its columns."""
        from penstock.spark.network_compile import compile_network

        return compile_network(self)

    def windows(self, answers: DataFrame, output: str) -> DataFrame:
        """Put the windows of an output together from stored answers, with standard errors of what was sampled.

        Parameters
        ----------
        answers
            What the query has written, read as a batch: ``spark.read.parquet(...)``.
        output
            An output behind an aggregate.
        """
        from penstock.spark.network_windows import assemble_windows

        node = next((o for o in self.model.outputs if o.name == output), None)
        step = self.steps.steps.get(node.input) if node else None
        if not isinstance(step, AggregateStep):
            raise InvalidInputError(f"{output!r} is no output of windows; outputs behind an aggregate are")
        return assemble_windows(answers, step, output)

    def start(self, writer: DataStreamWriter) -> NetworkRun:
        """Start the query that was built on :meth:`answers`, and control it."""
        from penstock.spark.network_run import start_network

        return start_network(self, writer)

    def _refuse_late(self) -> None:
        if self._model is not None:
            raise InvalidInputError("the network was compiled already; add all operators and outputs before that")

    def _repr_svg_(self) -> str:
        from penstock.model.drawing import network_svg

        return network_svg(self.model)


class Stream:
    """Rows on their way through a network; every method adds one operator, under a name of its own.

    ``seconds_per_tuple`` is learned; give it where you know it.
    """

    def __init__(self, network: Network, name: str) -> None:
        self._network = network
        self.name = name

    def filter(self, name: str, condition: Column | str, *, seconds_per_tuple: float = 0.0) -> Stream:
        """Keep rows for which the condition holds."""
        step = FilterStep(condition=F.expr(condition) if isinstance(condition, str) else condition)
        return self._add(name, "filter", step, seconds_per_tuple)

    def map(self, name: str, *, seconds_per_tuple: float = 0.0, **columns: Column) -> Stream:
        """Add columns, under names that the network does not have yet."""
        if not columns:
            raise InvalidInputError(f"map {name!r} must make columns, as in map({name!r}, price=F.col('cents') / 100)")
        return self._add(name, "map", MapStep(columns=dict(columns)), seconds_per_tuple)

    def union(self, name: str, *others: Stream, seconds_per_tuple: float = 0.0) -> Stream:
        """Take the rows of several streams together; a row that is in two of them comes twice."""
        inputs = (self.name, *(other.name for other in others))
        operator = model.Operator(name=name, kind="union", inputs=inputs, seconds_per_tuple=seconds_per_tuple)
        return self._network.add(operator, UnionStep())

    def join(
        self,
        name: str,
        other: Stream,
        *,
        on: str | Sequence[str],
        within_seconds: float,
        seconds_per_tuple: float = 0.0,
    ) -> Stream:
        """Pair rows with equal columns whose event times are at most so far apart.

        The columns of the other side come as ``right_...``. The weight of a pair is the product of the weights.
        """
        require_positive("within_seconds", within_seconds, meaning="how far apart the event times may be")
        columns = (on,) if isinstance(on, str) else tuple(on)
        operator = model.Operator(
            name=name, kind="join", inputs=(self.name, other.name), seconds_per_tuple=seconds_per_tuple
        )
        return self._network.add(operator, JoinStep(on=columns, within_seconds=within_seconds))

    def aggregate(
        self,
        name: str,
        *,
        window_seconds: int,
        slide_seconds: int | None = None,
        by: str | Sequence[str] = (),
        of: Column | None = None,
        seconds_per_tuple: float = 0.0,
    ) -> Stream:
        """Count rows, and sum a value, by key and window of event time; weighted, so that drops do not bias them."""
        slide = window_seconds if slide_seconds is None else slide_seconds
        if slide < 1 or window_seconds % slide:
            raise InvalidInputError(
                f"window_seconds of {name!r} must be a multiple of slide_seconds, got {window_seconds} and {slide}; "
                "windows are put together from panes of one slide each"
            )
        keys = (by,) if isinstance(by, str) else tuple(by)
        step = AggregateStep(by=keys, of=of, window_seconds=window_seconds, slide_seconds=slide)
        return self._add(name, "aggregate", step, seconds_per_tuple)

    def output(
        self,
        name: str,
        *,
        columns: Sequence[str] = (),
        loss: LossTolerance = LINEAR,
        value: ValueGraph | Mapping[str, ValueGraph] | None = None,
        latency: LatencyGraph | None = None,
        importance: float = 1.0,
    ) -> None:
        """End a query here.

        Parameters
        ----------
        columns
            What to give of each row; all by default. An aggregate gives its answers.
        loss
            Utility by delivered share.
        value
            Utility by the value of a column, as in ``{"priority": ValueGraph.of(...)}``; loss tolerance is then derived
            from it.
        latency
            Utility by lateness.
        importance
            Factor on the utility.
        """
        column, graph = None, None
        if value is not None:
            if not isinstance(value, Mapping) or len(value) != 1:
                raise InvalidInputError(
                    f"value of output {name!r} must name one column, as in value={{'priority': ValueGraph.of(...)}}"
                )
            ((column, graph),) = value.items()
        output = model.Output(
            name=name, input=self.name, loss=loss, value=graph, latency=latency, importance=importance
        )
        self._network.end(output, OutputStep(columns=tuple(columns)), column)

    def _add(self, name: str, kind: model.Kind, step: Step, seconds_per_tuple: float) -> Stream:
        operator = model.Operator(name=name, kind=kind, inputs=(self.name,), seconds_per_tuple=seconds_per_tuple)
        return self._network.add(operator, step)
