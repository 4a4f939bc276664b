"""The best plans of a part without joins, as a linear programme.

Without joins the load is linear in the shares, utility is the least of a few lines over them, and so is what a place, a
union or an output lets through of what is above it. So the best plan for a load solves a linear programme. Going down
step by step gives the same, except where a union lies below a split: there less load may ask for a drop to be taken
back.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from scipy.optimize import linprog

from penstock.policy.place_graph import MIX, PLACE, Floats, PlaceGraph
from penstock.policy.roadmap_merge import Part


@dataclass(frozen=True, slots=True)
class _Best:
    """The best plan for a load: shares of all nodes, utility, and the utility that more load would add."""

    load: float
    shares: Floats
    utility: float
    slope: float


def best_plans(graph: PlaceGraph, nodes: list[int], *, step: float) -> Part:
    """All best plans, from all load to none, no share further from one to the next than a step."""
    programme = _Programme(graph, nodes)
    corners = programme.corners()
    shares = [corners[0].shares]
    for one, two in pairwise(corners):
        # From corner to corner the best shares lie on a line.
        steps = max(1, math.ceil(np.max(np.abs(two.shares - one.shares)) / step - 1e-9))
        shares += [one.shares + part / steps * (two.shares - one.shares) for part in range(1, steps + 1)]
    table = np.array(shares)
    savings, lost = programme.whole - table @ programme.work, programme.full - programme.utility(table)
    return Part.with_targets(
        savings, lost, {float(node): table[:, at] for at, node in enumerate(nodes) if graph.kind[node] == PLACE}
    )


class _Programme:
    """Most utility for a load; its variables are the share of every node, then the utility of every output."""

    def __init__(self, graph: PlaceGraph, nodes: list[int]) -> None:
        column = {node: number for number, node in enumerate(nodes)}
        self._graphs = {column[node]: graph.graphs[node] for node in nodes if node in graph.graphs}
        self.work = np.array([graph.work[node] for node in nodes])
        self.whole, self.full = float(self.work.sum()), sum(loss.full for loss in self._graphs.values())
        width = len(nodes) + len(self._graphs)
        self._at_most, self._limits = [np.r_[self.work, np.zeros(len(self._graphs))]], [0.0]
        self._equal: list[Floats] = []
        for node, at in column.items():
            line = np.zeros(width)
            line[at] = 1.0
            for parent, share in graph.parents[node]:
                line[column[parent]] -= share if graph.kind[node] == MIX else 1.0
            if graph.kind[node] != PLACE:
                self._equal.append(line)
            elif graph.parents[node]:
                self._at_most.append(line)
                self._limits.append(0.0)
        for number, (at, loss) in enumerate(self._graphs.items(), start=len(nodes)):
            for (low, u), (high, v) in pairwise(loss.points):
                line, slope = np.zeros(width), (v - u) / (high - low)
                line[number], line[at] = 1.0, -slope
                self._at_most.append(line)
                self._limits.append(u - slope * low)

    def corners(self) -> list[_Best]:
        """Loads between which the best utility is a straight line, the largest first."""
        none, whole = self._solved(0.0), self._solved(self.whole)
        # Flat up there: what is worth nothing goes first.
        found = {0.0: none, self.whole: _Best(self.whole, np.ones(len(self.work)), whole.utility, 0.0)}
        between = [(none, found[self.whole])]
        while between:
            one, two = between.pop()
            if one.slope - two.slope <= 1e-9 * self.full / self.whole:
                continue
            # No best plan lies above the lines of its neighbours, and there is a corner where they meet, or below.
            load = (two.utility - one.utility + one.slope * one.load - two.slope * two.load) / (one.slope - two.slope)
            if not one.load + 1e-9 * self.whole < load < two.load - 1e-9 * self.whole:
                continue
            corner = self._solved(load)
            found[load] = corner
            if corner.utility < one.utility + one.slope * (load - one.load) - 1e-9 * self.full:
                between += [(one, corner), (corner, two)]
        return [found[load] for load in sorted(found, reverse=True)]

    def utility(self, shares: Floats) -> Floats:
        """Utility of all outputs, row by row."""
        total = np.zeros(len(shares))
        for at, loss in self._graphs.items():
            corners = np.array(loss.points)
            total += np.interp(shares[:, at], corners[:, 0], corners[:, 1])
        return total

    def _solved(self, load: float) -> _Best:
        worth = np.r_[np.zeros(len(self.work)), -np.ones(len(self._graphs))]
        bounds = [(0.0, 1.0)] * len(self.work) + [(0.0, loss.full) for loss in self._graphs.values()]
        solved: Any = linprog(
            worth, A_ub=np.array(self._at_most), b_ub=[load, *self._limits[1:]], A_eq=np.array(self._equal),
            b_eq=np.zeros(len(self._equal)), bounds=bounds,
        )  # fmt: skip
        shares = np.clip(solved.x[: len(self.work)], 0.0, 1.0)
        return _Best(load, shares, -float(solved.fun), -float(solved.ineqlin.marginals[0]))
