"""The user's way through a network: every method adds one operator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from pyspark.sql import Column
from pyspark.sql import functions as F

from penstock.model import network as model
from penstock.model.error_target import MaxError
from penstock.model.errors import InvalidInputError, NotSupportedError, require_positive
from penstock.model.quality import LINEAR, LatencyGraph, LossTolerance, ValueGraph
from penstock.spark.compile.steps import AggregateStep, FilterStep, JoinStep, MapStep, OutputStep, Step, UnionStep

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
                    f"value of output {name!r} must name one column, as in value={{'priority': ValueGraph.of(...)}}"
                )
            ((column, graph),) = value.items()
        output = model.Output(
            name=name, input=self.name, loss=loss, value=graph, latency=latency, importance=importance, error=error
        )
        self._network.end(output, OutputStep(columns=tuple(columns)), column)

    def _add(self, name: str, kind: model.Kind, step: Step, seconds_per_tuple: float) -> Stream:
        operator = model.Operator(name=name, kind=kind, inputs=(self.name,), seconds_per_tuple=seconds_per_tuple)
        return self._network.add(operator, step)
