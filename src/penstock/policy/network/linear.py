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

from penstock.policy.network.merge import Part
from penstock.policy.network.place_graph import MIX, PLACE, Floats, PlaceGraph

SLIGHT = 1e-9


@dataclass(frozen=True, slots=True)
class _Best:
    """The best plan for a load: shares of all nodes, utility, and the utility that more load would add.

    Load and utility are parts of the whole, for a solver has but one notion of what is small.
    """

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
    load = table @ programme.work
    savings = (load[0] - load) * programme.whole
    # Where utility hardly changes with the load, the solver leaves load over, and corners fall together.
    rows = np.flatnonzero(savings > np.maximum.accumulate(np.r_[-1.0, savings[:-1]]))
    rows[-1] = len(table) - 1  # whatever the others save, the last plan drops all
    table, savings = table[rows], savings[rows]
    utility = programme.utility(table)
    return Part.with_targets(
        savings,
        (utility[0] - utility) * programme.full,
        {float(node): table[:, at] for at, node in enumerate(nodes) if graph.kind[node] == PLACE},
    )


class _Programme:
    """Most utility for a load; its variables are the share of every node, then the utility of every output."""

    def __init__(self, graph: PlaceGraph, nodes: list[int]) -> None:
        column = {node: number for number, node in enumerate(nodes)}
        work = np.array([graph.work[node] for node in nodes])
        self.whole = float(work.sum())
        self.work = work / self.whole
        graphs = {column[node]: graph.graphs[node] for node in nodes if node in graph.graphs}
        self.full = sum(loss.full for loss in graphs.values()) or 1.0
        # Corners by the column of their output: shares, and parts of all utility.
        self._corners = {at: np.array(loss.points).T / np.array([[1.0], [self.full]]) for at, loss in graphs.items()}
        width = len(nodes) + len(self._corners)
        self._at_most, self._limits = [np.r_[self.work, np.zeros(len(self._corners))]], [0.0]
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
        for number, (at, (shares, utilities)) in enumerate(self._corners.items(), start=len(nodes)):
            for (low, u), (high, v) in pairwise(zip(shares.tolist(), utilities.tolist(), strict=True)):
                line, slope = np.zeros(width), (v - u) / (high - low)
                line[number], line[at] = 1.0, -slope
                self._at_most.append(line)
                self._limits.append(u - slope * low)

    def corners(self) -> list[_Best]:
        """Loads between which the best utility is a straight line, the largest first."""
        none, whole = self._solved(0.0), self._solved(1.0)
        # Flat up there: what is worth nothing goes first.
        all_kept = _Best(1.0, np.ones(len(self.work)), whole.utility, 0.0)
        found = {0.0: none, 1.0: all_kept}
        between = [(none, all_kept)]
        while between:
            one, two = between.pop()
            if one.slope - two.slope <= SLIGHT:
                continue
            # No best plan lies above the lines of its neighbours, and there is a corner where they meet, or below.
            load = (two.utility - one.utility + one.slope * one.load - two.slope * two.load) / (one.slope - two.slope)
            if not one.load + SLIGHT < load < two.load - SLIGHT:
                continue
            corner = found[load] = self._solved(load)
            if corner.utility < one.utility + one.slope * (load - one.load) - SLIGHT:
                between += [(one, corner), (corner, two)]
        return [found[load] for load in sorted(found, reverse=True)]

    def utility(self, shares: Floats) -> Floats:
        """Utility of all outputs, row by row."""
        total = np.zeros(len(shares))
        for at, (corners, utilities) in self._corners.items():
            total += np.interp(shares[:, at], corners, utilities)
        return total

    def _solved(self, load: float) -> _Best:
        worth = np.r_[np.zeros(len(self.work)), -np.ones(len(self._corners))]
        solved: Any = linprog(
            worth, A_ub=np.array(self._at_most), b_ub=[load, *self._limits[1:]], A_eq=np.array(self._equal),
            b_eq=np.zeros(len(self._equal)), bounds=(0.0, 1.0),
        )  # fmt: skip
        shares = np.clip(solved.x[: len(self.work)], 0.0, 1.0)
        return _Best(load, shares, -float(solved.fun), -float(solved.ineqlin.marginals[0]))
