"""What a network is compiled on: streams and the plan of each batch, or stored rows and plans that are known."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import Column, DataFrame

from penstock.spark.compile.layout import Layout, planner_of
from penstock.spark.compile.stages import PLAN
from penstock.spark.plan.network_column import network_plan_column
from penstock.spark.spill.network_writer import StageSpill, stage_spill

if TYPE_CHECKING:
    from penstock.spark.network import Network


def everything(frame: DataFrame) -> DataFrame:
    """Leave all rows in."""
    return frame


@dataclass(frozen=True, slots=True, kw_only=True)
class Ground:
    """The rows of the sources, where their plans come from, and what is done beside.

    Attributes
    ----------
    frames
        Rows by source.
    with_plan
        Adds the column with the plan; asked for the rows of the sources, and again below joins.
    observe
        Counts what passes a stage, under its name; None where nobody wants to know.
    spill
        Where stages store what they drop; None for nowhere.
    only
        Chooses what of windows, pairs and rows goes on.
    hidden
        Columns that are not the network's own: outputs do not give them.
    """

    frames: Mapping[str, DataFrame]
    with_plan: Callable[[DataFrame], DataFrame]
    observe: Callable[[DataFrame, str, Sequence[Column]], DataFrame] | None = None
    spill: StageSpill | None = None
    only: Callable[[DataFrame], DataFrame] = everything
    hidden: frozenset[str] = frozenset()


def streaming_ground(network: Network, layout: Layout) -> Ground:
    """The streams of a network, planned batch by batch, counted, and spilled where the user wants that."""
    planner = planner_of(network)

    def with_plan(frame: DataFrame) -> DataFrame:
        return frame.withColumn(PLAN, network_plan_column(frame.sparkSession, planner, layout.arcs))

    return Ground(
        frames={name: source.frame for name, source in network.steps.sources.items()},
        with_plan=with_plan,
        observe=lambda frame, name, metrics: frame.observe(name, *metrics),
        spill=stage_spill(network, layout),
    )
