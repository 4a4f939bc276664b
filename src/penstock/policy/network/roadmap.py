"""The Load Shedding Road Map: plans worked out ahead, each shedding more than the one before ([Aurora03] 4.3).

| here | in the paper |
|---|---|
| `RoadMap`, a row of it | LSRM, its entries |
| `savings`, `coefficients` of a row | cycle savings (CSC) |
| `plan` of a row | drop insertion plan (DIP) |
| `cursors` of a row: delivered share of each output | percent delivery cursors (PDC) |
| `step` | STEP_SIZE |
| `drop_seconds` | D, the cost of a drop |

Deviation: the paper sorts the loss/gain ratios of places and QoS pieces once. Once a branch has a drop of its own, a
drop above it no longer costs that branch anything, and saves less: the ratio has changed. So ratios are taken anew for
every row (``rule="marginal"``). Then the road map of a network without unions or joins below splits is optimal at
every row: utility is concave and the load convex in the shares, and the load of a split is the largest share below it,
a submodular function, so the best shares only fall as more load must go. ``rule="static"`` is the paper's.

With unions below splits, and with joins, steps are not always best. The plans of small networks are then solved for
(:mod:`penstock.policy.network.linear`) or chosen among several ways (:mod:`penstock.policy.network.merge`), and a row
may take back a drop of the one before.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass
from html import escape
from typing import Any

import numpy as np

from penstock.model.network import OUTSIDE, Arc, Network
from penstock.model.network_plan import Drop, NetworkPlan
from penstock.model.quality import Histogram
from penstock.policy.network.build import Rule, build_plans, check_options
from penstock.policy.network.kernel import place_keeps, spread_shares
from penstock.policy.network.merge import Part
from penstock.policy.network.place_graph import Floats, PlaceGraph, graph_arrays, place_graph
from penstock.policy.network.places import Place
from penstock.policy.network.semantic import merged


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One plan of the road map.

    Attributes
    ----------
    index
        0 is the row without drops.
    savings
        Seconds of work per second that the plan saves, at the rates of the network.
    utility_lost
        What all outputs together lose.
    plan
        The drops.
    cursors
        Delivered share of each output.
    """

    index: int
    savings: float
    utility_lost: float
    plan: NetworkPlan
    cursors: Mapping[str, float]


class RoadMap:
    """All plans of a network, in the order in which they shed more.

    Examples
    --------
    Two queries behind one filter; the second one tolerates loss better.

    >>> from penstock.model.network import Operator, Output, Source
    >>> from penstock.model.quality import LossTolerance
    >>> network = Network(
    ...     (
    ...         Source(name="in", tuples_per_second=100),
    ...         Operator(name="shared", kind="filter", inputs=("in",), seconds_per_tuple=0.01, selectivity=0.5),
    ...         Operator(name="a", kind="map", inputs=("shared",), seconds_per_tuple=0.01),
    ...         Operator(name="b", kind="map", inputs=("shared",), seconds_per_tuple=0.01),
    ...         Output(name="A", input="a"),
    ...         Output(name="B", input="b", loss=LossTolerance.of((1, 1), (0.4, 0.9))),
    ...     )
    ... )
    >>> road_map = RoadMap.build(network)
    >>> row = road_map.row(road_map.look_up(0.2))
    >>> row.plan.describe(), round(row.savings, 2), {name: round(share, 2) for name, share in row.cursors.items()}
    ('shared -> b: keep 60.0%', 0.2, {'A': 1.0, 'B': 0.6})
    """

    def __init__(self, network: Network, graph: PlaceGraph, plans: Part, *, semantic: bool) -> None:
        self.network = network
        self.semantic = semantic
        self._graph = graph
        self._arrays: Mapping[str, Any] = graph_arrays(graph, list(range(len(graph.kind))))
        self._place_ids = np.array(list(graph.places), dtype=np.int64)
        self.savings, self.utility_lost = plans.savings, plans.lost
        self._savings: list[float] = self.savings.tolist()
        # The changes of row n stand between n and n+1.
        self._change_from = np.searchsorted(plans.changes[:, 0], np.arange(1, len(self._savings) + 1))
        self._change_node = plans.changes[:, 1].astype(np.int64)
        self._change_target = plans.changes[:, 2].copy()
        self._snapshot_rows, self._snapshots = self._take_snapshots()

    @staticmethod
    def build(
        network: Network,
        *,
        semantic: bool = False,
        step: float = 0.01,
        drop_seconds: float = 0.0,
        chunk_size: float | None = None,
        spreads: Mapping[Arc, Histogram] | None = None,
        rule: Rule = "marginal",
    ) -> RoadMap:
        """Work out all plans.

        Parameters
        ----------
        semantic
            Drop by value where all outputs below a place have value graphs, else at random.
        step
            Most that the delivered share of a place falls from one row to the next.
        drop_seconds
            What a drop costs per tuple that it sees. The step must be large enough for a drop to pay.
        chunk_size
            Width of the chunks that sloped pieces of value graphs are cut into.
        spreads
            How values are spread at some places, where that was measured; else it follows from the sources.
        rule
            See the module.
        """
        check_options(network, step=step, drop_seconds=drop_seconds, rule=rule)
        graph = place_graph(network, semantic=semantic, chunk_size=chunk_size, spreads=spreads)
        plans = build_plans(graph, step=step, drop_seconds=drop_seconds, rule=rule)
        return RoadMap(network, graph, plans, semantic=semantic)

    def __len__(self) -> int:
        return len(self._savings)

    @property
    def places(self) -> tuple[Place, ...]:
        """Places in the order of :meth:`keeps`."""
        return tuple(self._graph.places.values())

    def look_up(self, load: float, *, cursor: int = 0) -> int:
        """Find the first row that saves this many seconds of work per second; the last one where none does.

        The search goes down from the row in use when more load must go, and up when load returns.
        """
        rows = self._savings
        wanted = load * (1 - 1e-12)
        low, high = (0, cursor + 1) if wanted <= rows[cursor] else (cursor, len(rows))
        return min(bisect_left(rows, wanted, low, high), len(rows) - 1)

    def keeps(self, index: int) -> Floats:
        """Keep rates of a row, of every place: what is left of the tuples that reach it."""
        arrays = self._arrays
        keeps: Floats = place_keeps(
            arrays["kind"], arrays["parent_from"], arrays["parent_of"], arrays["weight"], self._targets(index),
            self._place_ids,
        )  # fmt: skip
        return keeps

    def row(self, index: int, *, reason: str = "") -> Row:
        """Spell out a row."""
        saved = self._savings[index]
        lost = float(self.utility_lost[index])
        said = f"row {index} of {len(self) - 1}: saves {saved:.4g} s of work a second, utility -{lost:.4g}"
        return Row(
            index=index,
            savings=saved,
            utility_lost=lost,
            plan=NetworkPlan(drops=self._drops(index), reason=f"{reason}; {said}" if reason else said, row=index),
            cursors=self.cursors(index),
        )

    def cursors(self, index: int) -> dict[str, float]:
        """Delivered share of each output in a row; over all values, where drops go by value."""
        share = self._shares(index)
        kept: dict[str, list[tuple[float, float]]] = {}
        for node, name in self._graph.outputs.items():
            kept.setdefault(name, []).append((self._graph.flow[node], float(share[node])))
        found = {}
        for name, lanes in kept.items():
            total = math.fsum(flow for flow, _ in lanes)
            found[name] = math.fsum(flow * part for flow, part in lanes) / total if total else lanes[0][1]
        return found

    def utilities(self, index: int) -> dict[str, float]:
        """Utility of each output in a row."""
        share = self._shares(index)
        found: dict[str, float] = {}
        for node, name in self._graph.outputs.items():
            found[name] = found.get(name, 0.0) + self._graph.graphs[node].utility(float(share[node]))
        return found

    def coefficients(self, index: int) -> dict[str, float]:
        """Seconds saved per tuple of each source in a row; for random drops."""
        whole, left = self.network.coefficients(), self.network.coefficients(self.row(index).plan.arc_keep)
        names = [source.name for source in self.network.sources]
        return {name: whole[(OUTSIDE, name)] - left[(OUTSIDE, name)] for name in names}

    def _repr_html_(self) -> str:
        """About a dozen rows, for notebooks."""
        shown = sorted({round(n * (len(self) - 1) / 11) for n in range(12)})
        lines = []
        for index in shown:
            row = self.row(index)
            cursors = ", ".join(f"{name} {share:.0%}" for name, share in row.cursors.items())
            cells = (f"{index}", f"{row.savings:.4g}", f"{row.utility_lost:.4g}", row.plan.describe(), cursors)
            lines.append("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in cells) + "</tr>")
        head = "".join(f"<th>{name}</th>" for name in ("row", "savings", "utility lost", "drops", "delivered"))
        return f"<table><tr>{head}</tr>{''.join(lines)}</table>"

    def _drops(self, index: int) -> dict[Arc, Drop]:
        share, keeps = self._shares(index), self.keeps(index)
        graph = self._graph
        drops: dict[Arc, Drop] = {}
        for arc, lanes in self._lanes_of_arcs().items():
            if graph.places[lanes[0][1]].lane is None:
                keep = float(keeps[lanes[0][0]])
                if keep < 1 - 1e-12:
                    drops[arc] = Drop(keep)
                continue
            if all(keeps[position] >= 1 - 1e-12 for position, _ in lanes):
                continue
            ranges, kept, reaching = [], 0.0, 0.0
            for _, node in lanes:
                low, high = graph.places[node].lane or (0.0, 0.0)
                # Ranges are dropped from their low end, here and above alike, so what counts is the share of all.
                part = share[node] / self._random_share(node, share)
                if part < 1 - 1e-12:
                    ranges.append((low, high - part * (high - low)))
                above = graph.parents[node]
                kept += graph.lane_shares[node] * share[node]
                reaching += graph.lane_shares[node] * (share[above[0][0]] if above else 1.0)
            drops[arc] = Drop(min(1.0, kept / reaching) if reaching else 1.0, merged(ranges))
        return drops

    def _lanes_of_arcs(self) -> dict[Arc, list[tuple[int, int]]]:
        together: dict[Arc, list[tuple[int, int]]] = {}
        for position, (node, place) in enumerate(self._graph.places.items()):
            together.setdefault(place.arc, []).append((position, node))
        return together

    def _random_share(self, node: int, share: Floats) -> float:
        """Share that random drops above a lane leave of it."""
        graph = self._graph
        while graph.parents[node]:
            node = graph.parents[node][0][0]
            if node in graph.places and graph.places[node].lane is None:
                return float(share[node]) or 1.0
        return 1.0

    def _shares(self, index: int) -> Floats:
        arrays = self._arrays
        target = self._targets(index)
        share = np.empty_like(target)
        spread_shares(arrays["kind"], arrays["parent_from"], arrays["parent_of"], arrays["weight"], target, share)
        return share

    def _targets(self, index: int) -> Floats:
        at = bisect_left(self._snapshot_rows, index + 1) - 1
        target = self._snapshots[at].copy()
        first, last = self._change_from[self._snapshot_rows[at]], self._change_from[index]
        # The changes of row n stand between n-1 and n; of several to one place the last one holds.
        target[self._change_node[first:last]] = self._change_target[first:last]
        return target

    def _take_snapshots(self) -> tuple[list[int], list[Floats]]:
        """Keep the targets of some rows, so that no row is far from one."""
        target = np.ones(len(self._graph.kind))
        rows, snapshots = [0], [target.copy()]
        spacing = max(64, len(target) // 2)
        taken = 0
        for index in range(1, len(self._change_from)):
            last = int(self._change_from[index])
            if last - taken >= spacing:
                target[self._change_node[taken:last]] = self._change_target[taken:last]
                rows.append(index)
                snapshots.append(target.copy())
                taken = last
        return rows, snapshots
