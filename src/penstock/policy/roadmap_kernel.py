"""The inner loop of building a road map, compiled: which place to drop at next, and how far.

Every function works on the arrays of :func:`penstock.policy.places.graph_arrays`: nodes in order, each after its
parents. `share` is the part of a node's tuples that still flows, `target` the most that a place lets through.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

PLACE, MIX, JOIN, OUTPUT = 0, 1, 2, 3
TINY = 1e-10


@njit(cache=True)
def spread_shares(kind: Any, parent_from: Any, parent_of: Any, weight: Any, target: Any, share: Any) -> None:
    """Compute the share of every node from the targets of the places."""
    for node in range(len(kind)):
        first, last = parent_from[node], parent_from[node + 1]
        if kind[node] == MIX:
            mean = 0.0
            for k in range(first, last):
                mean += weight[k] * share[parent_of[k]]
            share[node] = mean
        elif kind[node] == JOIN:
            share[node] = share[parent_of[first]] * share[parent_of[first + 1]]
        else:
            above = share[parent_of[first]] if last > first else 1.0
            share[node] = min(target[node], above)


@njit(cache=True)
def utility_and_load(
    kind: Any, parent_from: Any, parent_of: Any, work: Any, flow: Any, piece_from: Any, piece_low: Any,
    piece_slope: Any, share: Any, drop_seconds: float,
) -> tuple[float, float]:  # fmt: skip
    """Sum the utility of all outputs, and the load, drops included."""
    utility, load = 0.0, 0.0
    for node in range(len(kind)):
        load += work[node] * share[node]
        if kind[node] == OUTPUT:
            high = 1.0
            for piece in range(piece_from[node], piece_from[node + 1]):
                low = piece_low[piece]
                utility += piece_slope[piece] * max(0.0, min(share[node], high) - low)
                high = low
        elif kind[node] == PLACE and drop_seconds > 0:
            above = share[parent_of[parent_from[node]]] if parent_from[node + 1] > parent_from[node] else 1.0
            if share[node] < above - TINY:
                load += drop_seconds * flow[node] * above
    return utility, load


@njit(cache=True)
def _slope(piece_from: Any, piece_low: Any, piece_slope: Any, node: int, share: float) -> tuple[float, float]:
    """Utility lost per share just below the cursor, and where that piece ends."""
    for piece in range(piece_from[node], piece_from[node + 1]):
        if share > piece_low[piece] + TINY:
            return piece_slope[piece], piece_low[piece]
    return 0.0, 0.0


@njit(cache=True)
def _ratios(
    kind: Any, parent_from: Any, parent_of: Any, weight: Any, work: Any, piece_from: Any, piece_low: Any,
    piece_slope: Any, target: Any, share: Any, least_slope: float, gain: Any, loss: Any,
) -> None:  # fmt: skip
    """Per unit of share taken from a node: the load saved, and the utility lost, at it and below.

    Flat pieces count as all but flat: loss that costs nothing is still used up, and goes where it saves most.
    """
    for node in range(len(kind)):
        gain[node] = work[node]
        loss[node] = 0.0
    for node in range(len(kind) - 1, -1, -1):
        first, last = parent_from[node], parent_from[node + 1]
        if kind[node] == OUTPUT:
            loss[node] = max(least_slope, _slope(piece_from, piece_low, piece_slope, node, share[node])[0])
        for k in range(first, last):
            above = parent_of[k]
            if kind[node] == MIX:
                part = weight[k]
            elif kind[node] == JOIN:
                part = share[parent_of[first + 1]] if k == first else share[parent_of[first]]
            elif kind[node] == PLACE and target[node] < share[above] - TINY:
                part = 0.0  # a drop here hides what happens above
            else:
                part = 1.0
            gain[above] += part * gain[node]
            loss[above] += part * loss[node]


@njit(cache=True)
def _reach(
    kind: Any, parent_from: Any, parent_of: Any, weight: Any, piece_from: Any, piece_low: Any, piece_slope: Any,
    target: Any, share: Any, moved: int, change: Any,
) -> float:  # fmt: skip
    """How far a place can move until the ratio of some place changes: a corner of a graph, or a drop that is met."""
    far = share[moved]
    change[: len(kind)] = 0.0
    change[moved] = 1.0
    for node in range(moved + 1, len(kind)):
        first, last = parent_from[node], parent_from[node + 1]
        if kind[node] == JOIN:
            one, other = parent_of[first], parent_of[first + 1]
            change[node] = change[one] * share[other] + change[other] * share[one]
        elif kind[node] == MIX:
            for k in range(first, last):
                change[node] += weight[k] * change[parent_of[k]]
        elif last > first:
            above = parent_of[first]
            if change[above] <= 0:
                continue
            if kind[node] == PLACE and target[node] < share[above] - TINY:
                far = min(far, (share[above] - target[node]) / change[above])
                continue
            change[node] = change[above]
            if kind[node] == OUTPUT:
                ends = _slope(piece_from, piece_low, piece_slope, node, share[node])[1]
                if share[node] > ends + TINY:
                    far = min(far, (share[node] - ends) / change[node])
    return far


@njit(cache=True)
def _push_up(kind: Any, parent_from: Any, parent_of: Any, target: Any, share: Any, need: Any) -> bool:
    """Lower places to what is used of them: drops that all branches of a split have in common move above it."""
    lowered = False
    need[: len(kind)] = -1.0
    for node in range(len(kind) - 1, -1, -1):
        first, last = parent_from[node], parent_from[node + 1]
        if kind[node] == OUTPUT or need[node] < 0:
            need[node] = share[node]  # an output needs what it gets; what has nothing below is left alone
        if kind[node] == PLACE:
            need[node] = min(need[node], share[node])
            if need[node] < share[node] - TINY:
                target[node] = need[node]
                lowered = True
        # Through a union all inputs shrink alike, through a join only the first does.
        scale = need[node] / share[node] if share[node] > 0 else 1.0
        for k in range(first, last):
            above = parent_of[k]
            wanted = need[node]
            if kind[node] == MIX or (kind[node] == JOIN and k == first):
                wanted = share[above] * scale
            elif kind[node] == JOIN:
                wanted = share[above]
            need[above] = max(need[above], wanted)
    return lowered


@njit(cache=True)
def build_rows(
    kind: Any, parent_from: Any, parent_of: Any, weight: Any, work: Any, flow: Any, piece_from: Any, piece_low: Any,
    piece_slope: Any, step: float, drop_seconds: float, order: Any,
) -> Any:  # fmt: skip
    """Take the place of least loss per gain, again and again, until nothing flows.

    With ``order`` (place, target and ratio), follow that list instead of choosing: the paper's rule, whose ratios
    are sorted once. Returns per row (savings, utility, ratio, place) and per change (row, place, target).
    """
    count = len(kind)
    target, share = np.ones(count), np.ones(count)
    gain, loss, change, need = np.zeros(count), np.zeros(count), np.zeros(count), np.zeros(count)
    before = np.ones(count)
    spread_shares(kind, parent_from, parent_of, weight, target, share)
    full_utility, full_load = utility_and_load(
        kind, parent_from, parent_of, work, flow, piece_from, piece_low, piece_slope, share, drop_seconds
    )
    least_slope = 1e-9 * (piece_slope.max() if len(piece_slope) and piece_slope.max() > 0 else 1.0)
    rows = np.empty((256, 4))
    changes = np.empty((256, 3))
    row_count, change_count, saved = 0, 0, 0.0
    listed, follow = 0, len(order) > 0
    while True:
        _ratios(
            kind, parent_from, parent_of, weight, work, piece_from, piece_low, piece_slope, target, share, least_slope,
            gain, loss,
        )  # fmt: skip
        best, least, wanted = -1, np.inf, 0.0
        if follow:
            while listed < len(order) and share[int(order[listed, 0])] <= order[listed, 1] + TINY:
                listed += 1
            if listed < len(order):
                best, wanted, least = int(order[listed, 0]), order[listed, 1], order[listed, 2]
        else:
            for node in range(count):
                if kind[node] == PLACE and share[node] > TINY and gain[node] > 1e-300:
                    ratio = loss[node] / gain[node]
                    # Of equal ratios the larger gain: the place further up.
                    if ratio < least * (1 - 1e-12) or (ratio <= least * (1 + 1e-12) and gain[node] > gain[best]):
                        best, least = node, ratio
        if best < 0:
            break
        move = min(step, share[best])
        if follow:
            move = min(move, share[best] - wanted)
        elif drop_seconds == 0:
            # With a cost per drop a first step must not be cut short: it has to pay for the drop.
            move = min(move, _reach(
                kind, parent_from, parent_of, weight, piece_from, piece_low, piece_slope, target, share, best, change
            ))  # fmt: skip
        target[best] = share[best] - move
        if target[best] < TINY:
            target[best] = 0.0
        spread_shares(kind, parent_from, parent_of, weight, target, share)
        if _push_up(kind, parent_from, parent_of, target, share, need):
            spread_shares(kind, parent_from, parent_of, weight, target, share)
        utility, load = utility_and_load(
            kind, parent_from, parent_of, work, flow, piece_from, piece_low, piece_slope, share, drop_seconds
        )
        if full_load - load <= saved * (1 + 1e-12) + 1e-300:
            continue  # a drop that does not pay yet: the next row has it too
        saved = full_load - load
        if row_count == len(rows):
            larger = np.empty((2 * len(rows), 4))
            larger[:row_count] = rows
            rows = larger
        rows[row_count, 0], rows[row_count, 1] = saved, full_utility - utility
        rows[row_count, 2], rows[row_count, 3] = least, float(best)
        for node in range(count):
            if kind[node] == PLACE and target[node] != before[node]:
                if change_count == len(changes):
                    more = np.empty((2 * len(changes), 3))
                    more[:change_count] = changes
                    changes = more
                changes[change_count, 0], changes[change_count, 1] = float(row_count), float(node)
                changes[change_count, 2] = target[node]
                change_count += 1
                before[node] = target[node]
        row_count += 1
    return rows[:row_count].copy(), changes[:change_count].copy()
