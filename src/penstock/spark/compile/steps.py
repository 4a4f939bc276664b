"""What the user puts into a network: the Spark side of its sources, operators and outputs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pyspark.sql import Column, DataFrame


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceStep:
    """A stream, what identifies its rows, and its times."""

    name: str
    frame: DataFrame
    row_id: tuple[str, ...]
    arrival: str | None
    event_time: str | None
    watermark: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FilterStep:
    """Keeps rows for which the condition holds."""

    condition: Column


@dataclass(frozen=True, slots=True, kw_only=True)
class MapStep:
    """Adds columns."""

    columns: Mapping[str, Column]


@dataclass(frozen=True, slots=True, kw_only=True)
class UnionStep:
    """Takes rows from several streams."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinStep:
    """Pairs rows with equal columns whose event times are close."""

    on: tuple[str, ...]
    within_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class AggregateStep:
    """Counts and sums rows by key and window."""

    by: tuple[str, ...]
    of: Column | None
    window_seconds: int
    slide_seconds: int


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputStep:
    """Ends a query; for rows, which columns to give."""

    columns: tuple[str, ...]


Step = FilterStep | MapStep | UnionStep | JoinStep | AggregateStep | OutputStep


@dataclass(slots=True)
class Steps:
    """All of them, by the name of their node."""

    sources: dict[str, SourceStep] = field(default_factory=dict)
    steps: dict[str, Step] = field(default_factory=dict)
    value_column: str | None = None
