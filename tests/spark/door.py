"""A door, a function through which users give Penstock something, and what it is tried with."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from inspect import Parameter, signature
from pathlib import Path
from typing import Any

import pandas as pd
from pyspark.sql import DataFrame, SparkSession

import penstock as ps
from penstock.spark.network_stream import Stream
from penstock.spark.operator import Operator
from penstock.spark.shed import Shedder
from penstock.spark.windows.shedder import WindowShedder
from tests.spark.nonsense import BAD, CHOICE
from tests.spark.streams import numbers


@dataclass(frozen=True, kw_only=True)
class Given:
    """What doors are tried with: a folder, and, where they need one, a session."""

    folder: Path
    spark: SparkSession | None = None

    @property
    def session(self) -> SparkSession:
        assert self.spark is not None
        return self.spark

    def stream(self) -> DataFrame:
        return numbers(self.session)

    def watermarked(self) -> DataFrame:
        return self.stream().withWatermark("timestamp", "1 second")

    def shedder(self, *, applied: bool = False) -> Shedder:
        shedder = ps.shed(latency_seconds=5, checkpoint=self.folder, row_id="value")
        if applied:
            self.stream().transform(shedder)
        return shedder

    def operator(self, *, applied: bool = False) -> Operator:
        operator = ps.operator(dict, key="value", returns="value BIGINT", latency=5, checkpoint=self.folder)
        if applied:
            self.stream().transform(operator)
        return operator

    def windows(self, *, applied: bool = False) -> WindowShedder:
        windows = ps.shed_windows(pd.DataFrame, "total DOUBLE", **self.windowed())
        if applied:
            self.watermarked().transform(windows)
        return windows

    def joined(self) -> WindowShedder:
        return ps.shed_join(pd.DataFrame, "total DOUBLE", key="value", **self.windowed())

    def windowed(self) -> dict[str, Any]:
        """What windows need, whatever is done with them."""
        return {"time": "timestamp", "size_seconds": 1.0, "latency_seconds": 60.0, "checkpoint": self.folder}

    def network(self) -> ps.Network:
        return ps.Network(checkpoint=self.folder)

    def fed(self) -> ps.Network:
        """A network with a source."""
        network = self.network()
        network.source("numbers", self.stream(), row_id="value", event_time="timestamp")
        return network

    @cached_property
    def two(self) -> tuple[Stream, Stream]:
        """Two streams of one network."""
        network, options = self.network(), {"row_id": "value", "event_time": "timestamp"}
        return network.source("one", self.stream(), **options), network.source("other", self.stream(), **options)

    def source(self) -> Stream:
        return self.network().source("numbers", self.stream(), row_id="value", event_time="timestamp")


@dataclass(frozen=True, kw_only=True)
class Door:
    """A function that takes what users give.

    ``find`` gets it, ``good`` is what it works with, and ``takes`` says for each argument what that must be: a kind of
    :data:`BAD`, or the choices. ``said`` has the words by which an error names an argument, where that is not its name.
    """

    find: Callable[[Given], Callable[..., Any]]
    takes: Mapping[str, str | tuple[str, ...]]
    good: Callable[[Given], dict[str, Any]] = lambda _: {}
    said: Mapping[str, str] = field(default_factory=dict)
    spark: bool = True
    # Whether it can be opened in a test: some start queries, or need what a query has left behind.
    opens: bool = True

    def open(self, given: Given, **bad: Any) -> Any:
        function, arguments = self.find(given), {**self.good(given), **bad}
        positional: list[Any] = []
        for name, parameter in signature(function).parameters.items():
            if parameter.kind == Parameter.VAR_POSITIONAL:
                positional += arguments.pop(name, ())
            elif parameter.kind == Parameter.VAR_KEYWORD:
                arguments |= arguments.pop(name, {})
            elif _before_rest(function, name):
                positional.append(arguments.pop(name))
        return function(*positional, **arguments)

    def bad(self) -> Iterator[tuple[str, Any]]:
        for name, takes in self.takes.items():
            for value in CHOICE if isinstance(takes, tuple) else BAD[takes]:
                yield name, value


def _before_rest(function: Callable[..., Any], name: str) -> bool:
    """Whether ``*rest`` follows an argument, which is then given by its place."""
    names = list(signature(function).parameters)
    rest = [n for n, p in signature(function).parameters.items() if p.kind == Parameter.VAR_POSITIONAL]
    return bool(rest) and names.index(name) < names.index(rest[0])


def value(made: Any) -> Callable[[Given], Any]:
    return lambda _: made
