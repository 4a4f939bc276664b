"""A road map, or any other network policy, as a short table that travels to where batches are planned."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from penstock.model.errors import require_fraction
from penstock.model.load import Load
from penstock.model.network import OUTSIDE, Network
from penstock.model.network_plan import Drop, NetworkPlan
from penstock.model.plan import Plan
from penstock.policy.network.roadmap import RoadMap

MOST_ROWS = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class TableRow:
    """One plan, with the share of the work that it leaves and what each output gets.

    Attributes
    ----------
    index
        Its row in the road map.
    work_share
        Work under the plan against the work without drops.
    plan
        The drops.
    cursors, utilities
        Delivered share and utility of each output.
    """

    index: int
    work_share: float
    plan: NetworkPlan
    cursors: Mapping[str, float] = field(default_factory=dict)
    utilities: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        require_fraction("work_share", self.work_share, meaning="the work left by a plan")

    @property
    def utility(self) -> float:
        """Utility of all outputs together."""
        return sum(self.utilities.values())

    def to_json(self) -> dict[str, Any]:
        """Convert to what JSON can hold."""
        return {
            "index": self.index,
            "work_share": self.work_share,
            "plan": self.plan.to_json(),
            "cursors": dict(self.cursors),
            "utilities": dict(self.utilities),
        }

    @staticmethod
    def from_json(fields: Mapping[str, Any]) -> TableRow:
        """Restore what :meth:`to_json` gave."""
        return TableRow(**{**fields, "plan": NetworkPlan.from_json(fields["plan"])})


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanTable:
    """Plans in the order in which they leave less work; a policy for batches of a network.

    Under overload it takes the first row that leaves no more work than fits. The batch before does not matter: when
    load returns, the same look-up finds a row further up.

    Examples
    --------
    >>> from penstock.model.load import Cost
    >>> rows = tuple(TableRow(index=n, work_share=1 - n / 10, plan=NetworkPlan(reason=f"row {n}")) for n in range(11))
    >>> load = Load(
    ...     offered_tuples=40_000,
    ...     cost=Cost(fixed_seconds=0.0, kept_seconds=1e-4),
    ...     available_seconds=2.0,
    ...     headroom=0.9,
    ... )
    >>> plan = PlanTable(rows=rows).decide(load)
    >>> round(plan.keep, 6), plan.reason
    (0.4, 'load 2.00 > headroom 0.90: 40,000 tuples need 4.00 s of 2.00 s; row 6')
    """

    rows: tuple[TableRow, ...]

    def decide(self, load: Load) -> Plan:
        """Keep all while it fits, else look up the share of work that does."""
        if not load.overloaded or len(self.rows) < 2:
            said = load.explain() if len(self.rows) != 1 else f"{load.explain()}; nothing may be shed, as asked"
            return replace(Plan.keep_all(said), network=replace(self.rows[0].plan, reason=said))
        row = self.row_for(load.fitting_keep())
        reason = f"{load.explain()}; {row.plan.reason}"
        return Plan(keep=row.work_share, reason=reason, network=replace(row.plan, reason=reason))

    def row_for(self, work_share: float) -> TableRow:
        """First row that leaves no more than this share of the work; the last one where none does."""
        at = bisect_left(self.rows, -work_share - 1e-12, key=lambda row: -row.work_share)
        return self.rows[min(at, len(self.rows) - 1)]

    def to_json(self) -> dict[str, Any]:
        """Convert to what JSON can hold."""
        return {"rows": [row.to_json() for row in self.rows]}

    @staticmethod
    def from_json(fields: Mapping[str, Any]) -> PlanTable:
        """Restore what :meth:`to_json` gave."""
        return PlanTable(rows=tuple(TableRow.from_json(row) for row in fields["rows"]))


def road_map_table(road_map: RoadMap, *, most_rows: int = MOST_ROWS) -> PlanTable:
    """Take rows of a road map at about equal steps of savings, the last one included."""
    whole = float(road_map.savings[-1])
    steps = most_rows - 1
    if len(road_map) <= most_rows or whole <= 0:
        chosen: Iterable[int] = range(len(road_map))
    else:
        chosen = sorted({0, *(road_map.look_up(whole * n / steps) for n in range(1, steps + 1))})
    rows = []
    for index in chosen:
        left = 1 - float(road_map.savings[index]) / whole if whole > 0 else 1.0
        row = road_map.row(index)
        said = f"row {index} of {len(road_map) - 1}: leaves {left:.0%} of the work, utility -{row.utility_lost:.3g}"
        rows.append(
            TableRow(
                index=index,
                work_share=min(1.0, max(0.0, left)),
                plan=replace(row.plan, reason=said),
                cursors=row.cursors,
                utilities=road_map.utilities(index),
            )
        )
    return PlanTable(rows=tuple(rows))


def input_uniform_table(network: Network, *, rows: int = 101) -> PlanTable:
    """The baseline on batches: the same keep rate at every input (Input-Uniform of one source)."""
    table = []
    whole = network.load()
    for index in range(rows):
        keep = 1 - index / (rows - 1)
        drops = {(OUTSIDE, source.name): Drop(keep) for source in network.sources} if keep < 1 else {}
        arc_keep = {arc: drop.keep for arc, drop in drops.items()}
        delivered = network.delivered(arc_keep)
        table.append(
            TableRow(
                index=index,
                work_share=min(1.0, network.load(arc_keep) / whole) if whole else keep,
                plan=NetworkPlan(drops=drops, reason=f"input uniform: keep {keep:.0%} of every source"),
                cursors=delivered,
                utilities={o.name: o.importance * o.loss.utility(delivered[o.name]) for o in network.outputs},
            )
        )
    return PlanTable(rows=tuple(table))


def keep_all_table(network: Network) -> PlanTable:
    """No shedding, as a policy."""
    row = TableRow(
        index=0,
        work_share=1.0,
        plan=NetworkPlan(reason="keep all, as asked"),
        cursors={output.name: 1.0 for output in network.outputs},
        utilities={output.name: output.importance * output.loss.full for output in network.outputs},
    )
    return PlanTable(rows=(row,))
