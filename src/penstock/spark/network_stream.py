"""The user's way through a network: every method adds one operator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from pyspark.sql import Column
from pyspark.sql import functions as F

from penstock.model import network as model
from penstock.model.error_target import MaxError
from penstock.model.errors import (
    InvalidInputError,
    NotSupportedError,
    require_kind,
    require_positive,
    require_whole,
)
from penstock.model.quality import LINEAR, LatencyGraph, LossTolerance, ValueGraph
from penstock.spark.checks import require_expression
from penstock.spark.compile.steps import AggregateStep, FilterStep, JoinStep, MapStep, OutputStep, Step, UnionStep
from penstock.spark.names import names_of

if TYPE_CHECKING:
    from penstock.spark.network import Network


class Stream:
    """Rows on their way through a network; every method adds one operator, under a name of its own.

    ``seconds_per_tuple`` is learned; give it where you know it.
    """

    def __init__(self, network: Network, name: str) -> None:
        self._network = network
        self.name = name

    def filter(self, name: str, condition: Column | str, *, seconds_per_tuple: float = 0.0) -> Stream:
        """Keep rows for which the condition holds."""
        require_expression(f"the condition of filter {name!r}", condition)
        step = FilterStep(condition=F.expr(condition) if isinstance(condition, str) else condition)
        return self._add(name, "filter", step, seconds_per_tuple)

    def map(self, name: str, *, seconds_per_tuple: float = 0.0, **columns: Column) -> Stream:
        """Add columns, under names that the network does not have yet."""
        if not columns:
            raise InvalidInputError(
                f"map {name!r} must make columns; name them, as in map({name!r}, price=F.col('cents') / 100)"
            )
        for column, made_of in columns.items():
            require_kind(f"column {column!r} of map {name!r}", made_of, Column, called="a Column", example="F.col('x')")
            if not column.strip() or column.startswith("__"):
                raise InvalidInputError(
                    f"map {name!r} makes the column {column!r}; give another name, those with __ are ours"
                )
        return self._add(name, "map", MapStep(columns=dict(columns)), seconds_per_tuple)

    def union(self, name: str, *others: Stream, seconds_per_tuple: float = 0.0) -> Stream:
        """Take the rows of several streams together; a row that is in two of them comes twice."""
        for other in others:
            self._require_own(f"union {name!r}", other)
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
        self._require_own(f"join {name!r}", other)
        require_positive("within_seconds", within_seconds, meaning="how far apart the event times may be")
        if not (columns := names_of("on", on)):
            raise InvalidInputError(f"join {name!r} needs columns to pair rows by; name them, as in on='user'")
        self._network.require_columns("on", columns)
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
        require_whole("window_seconds", window_seconds, meaning="the length of the windows")
        require_whole("slide_seconds", slide, meaning="how far one window starts after another")
        if window_seconds % slide:
            raise InvalidInputError(
                f"window_seconds of {name!r} must be a multiple of slide_seconds, got {window_seconds} and {slide}; "
                "windows are put together from panes of one slide each"
            )
        keys = names_of("by", by)
        self._network.require_columns("by", keys)
        if of is not None:
            require_kind("of", of, Column, called="a Column", example="F.col('fare')")
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
        error: MaxError | None = None,
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
        error
            How wrong an answer of windows may be. The share of rows that this takes is learned, and stands in for
            ``loss``: rows beyond it are worth next to nothing. :meth:`Network.windows` holds the answers to it.
        """
        wanted = names_of("columns", columns)
        require_kind(
            "loss", loss, LossTolerance, called="a LossTolerance", example="LossTolerance.of((1, 1), (0.5, 0.9))"
        )
        if latency is not None:
            require_kind("latency", latency, LatencyGraph, called="a LatencyGraph", example="LatencyGraph.of((2, 1))")
        if error is not None:
            require_kind("error", error, MaxError, called="a MaxError", example="MaxError(relative=0.05)")
        if error is not None and (loss != LINEAR or value is not None):
            raise InvalidInputError(
                f"output {name!r} has a target for its error and a graph by loss or value; give one of them"
            )
        if error is not None and error.method != "normal":
            raise NotSupportedError(
                f"output {name!r} wants bounds by {error.method!r}, and windows of a network have those of the normal "
                "distribution; leave method out, or use ps.shed with answers(...)"
            )
        column, graph = None, None
        if value is not None:
            if not isinstance(value, Mapping) or len(value) != 1:
                raise InvalidInputError(
                    f"value of output {name!r} must name one column; as in value={{'priority': ValueGraph.of(...)}}"
                )
            ((column, graph),) = value.items()
            self._network.require_columns("value", names_of("value", column))
            require_kind("value", graph, ValueGraph, called="a ValueGraph", example="ValueGraph.of((0, 50, 0.2))")
        output = model.Output(
            name=name, input=self.name, loss=loss, value=graph, latency=latency, importance=importance, error=error
        )
        self._network.end(output, OutputStep(columns=wanted), column)

    def _require_own(self, role: str, other: Stream) -> None:
        given: object = other
        if not isinstance(given, Stream) or given._network is not self._network:
            raise InvalidInputError(
                f"{role} takes streams of the same network, got {other!r}; give what source, filter or map returned"
            )

    def _add(self, name: str, kind: model.Kind, step: Step, seconds_per_tuple: float) -> Stream:
        operator = model.Operator(name=name, kind=kind, inputs=(self.name,), seconds_per_tuple=seconds_per_tuple)
        return self._network.add(operator, step)
