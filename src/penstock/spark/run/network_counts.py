"""What a batch of a network counted, and what each output got of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from penstock.control.network_learning import NetworkCounts, PaneCounts
from penstock.model.batch import Batch
from penstock.model.errors import InvalidInputError
from penstock.model.network import Arc, Output, arc_name, inputs_of
from penstock.model.network import Network as NetworkModel
from penstock.model.network_plan import NetworkPlan
from penstock.policy.network.semantic import mean_utility
from penstock.spark.compile.layout import Layout
from penstock.spark.compile.steps import AggregateStep, Steps


@dataclass(frozen=True, slots=True, kw_only=True)
class ArcCount:
    """Rows at the drop of one arc in one batch: each is counted, and ``offered = kept + shed``."""

    arc: Arc
    offered: int
    kept: int
    shed: int

    def __post_init__(self) -> None:
        if self.offered != self.kept + self.shed:
            raise InvalidInputError(
                f"arc {arc_name(self.arc)} does not balance: offered {self.offered} != kept {self.kept} + "
                f"shed {self.shed}"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputStatus:
    """What one output got in one batch.

    Attributes
    ----------
    delivered
        Share of its rows that arrived, as measured by their weights; of drops by value, by what was counted at them.
    utility
        What that is worth by its loss-tolerance or value graph, times what the latency leaves of it.
    latency_seconds
        Arrival to commit of the oldest row; None where it is not known.
    row, reason
        The row of the road map in force, and why.
    """

    name: str
    delivered: float
    utility: float
    latency_seconds: float | None
    row: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkBatch:
    """One finished batch of a network."""

    batch: Batch
    plan: NetworkPlan
    arcs: tuple[ArcCount, ...]
    outputs: tuple[OutputStatus, ...]
    operator_tuples: Mapping[str, int]

    @property
    def utility(self) -> float:
        """Utility of all outputs together."""
        return sum(output.utility for output in self.outputs)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reporter:
    """Reads the metrics of a batch by the layout of the compiled query."""

    network: NetworkModel
    steps: Steps
    layout: Layout

    def counts(self, metrics: Mapping[str, Any]) -> NetworkCounts:
        """Sort the metrics of a batch by node and arc."""
        layout = self.layout
        present = {
            name.removeprefix("present:"): int(v or 0) for name, v in metrics.items() if name.startswith("present:")
        }
        kept = {arc: int(metrics.get(f"kept:{n}") or 0) for n, arc in enumerate(layout.arcs)}
        shed = {arc: int(metrics.get(f"shed:{n}") or 0) for n, arc in enumerate(layout.arcs)}
        lanes = {
            arc: {lane: int(metrics.get(f"lane:{layout.arcs.index(arc)}:{n}") or 0) for n, lane in enumerate(ranges)}
            for arc, ranges in layout.lanes.items()
        }
        panes = {
            output.name: PaneCounts(
                tuples=_sum(metrics, "weight", output.input),
                keys=_sum(metrics, "keys", output.input),
                total=_sum(metrics, "total", output.input),
                squares=_sum(metrics, "squares", output.input),
            )
            for output in self.network.outputs
            if output.error is not None
        }
        return NetworkCounts(present=present, kept=kept, shed=shed, lanes=lanes, panes=panes)

    def arcs(self, counts: NetworkCounts) -> tuple[ArcCount, ...]:
        """What every arc that may have a drop was offered, kept and shed."""
        return tuple(
            ArcCount(arc=arc, offered=counts.offered(arc), kept=counts.kept[arc], shed=counts.shed[arc])
            for arc in self.layout.arcs
        )

    def arcs_in(self, metrics: Mapping[str, Any]) -> tuple[ArcCount, ...]:
        """Offered and kept on those arcs that the metrics tell of: a recount does not get below joins."""
        told = {arc for n, arc in enumerate(self.layout.arcs) if f"kept:{n}" in metrics}
        return tuple(count for count in self.arcs(self.counts(metrics)) if count.arc in told)

    def outputs(
        self,
        batch: Batch,
        plan: NetworkPlan,
        metrics: Mapping[str, Any],
        *,
        statistics: NetworkModel,
    ) -> tuple[OutputStatus, ...]:
        """What each output got in a batch."""
        counts = self.counts(metrics)
        expected = statistics.delivered(plan.arc_keep)
        found = []
        for output in self.network.outputs:
            step = self.steps.steps.get(output.input)
            end = output.input if isinstance(step, AggregateStep) else output.name
            reached, weight = _sum(metrics, "reached", end), _sum(metrics, "weight", end)
            delivered = min(1.0, reached / weight) if weight else expected[output.name]
            delivered *= self._kept_by_value(output.name, plan, counts)
            # A target for the error has its graph learned.
            loss = next(known.loss for known in statistics.outputs if known.name == output.name)
            worth = output.importance * loss.utility(delivered)
            if output.value is not None:
                worth = output.importance * self._value_utility(
                    output, plan, counts, statistics, worth=_sum(metrics, "worth", end)
                )
            if output.latency is not None and batch.latency_seconds is not None:
                worth *= output.latency.utility(batch.latency_seconds)
            found.append(
                OutputStatus(
                    name=output.name,
                    delivered=delivered,
                    utility=worth,
                    latency_seconds=batch.latency_seconds,
                    row=plan.row,
                    reason=plan.reason,
                )
            )
        return tuple(found)

    def _value_utility(
        self, output: Output, plan: NetworkPlan, counts: NetworkCounts, statistics: NetworkModel, *, worth: float
    ) -> float:
        """What the values delivered are worth, against all: those counted in front of the first drop by value."""
        assert output.value is not None  # noqa: S101 - asked for outputs with value graphs
        base = statistics.base_flows()
        flows = statistics.flows(plan.arc_keep)
        whole = 0.0
        for arc, lanes in counts.lanes.items():
            if output.name in self._below(arc[1]) and base[arc] > 0:
                if flows[arc] <= 0:
                    return 0.0  # all of it was dropped further up
                passed = base[(output.input, output.name)] / base[arc]
                offered = sum(mean_utility(output.value, *lane) * count for lane, count in lanes.items())
                whole += offered * passed * base[arc] / flows[arc]
        return min(1.0, worth / whole) if whole else 1.0

    def _kept_by_value(self, output: str, plan: NetworkPlan, counts: NetworkCounts) -> float:
        """Share that drops by value above an output have left: survivors of those have no larger weight."""
        share = 1.0
        for arc in plan.drops:
            if plan.drops[arc].ranges and output in self._below(arc[1]):
                offered = next(count for count in self.arcs(counts) if count.arc == arc)
                share *= offered.kept / offered.offered if offered.offered else 1.0
        return share

    def _below(self, name: str) -> set[str]:
        found = {name}
        for node in self.network.order:
            if found & set(inputs_of(node)):
                found.add(node.name)
        return found


def _sum(metrics: Mapping[str, Any], kind: str, end: str) -> float:
    """Sum a metric over all arcs into a node."""
    return sum(
        float(value or 0) for name, value in metrics.items() if name.startswith(f"{kind}:") and name.endswith(f">{end}")
    )
