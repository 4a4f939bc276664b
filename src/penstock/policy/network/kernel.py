"""The inner loop of building a road map, compiled: which place to drop at next, and how far.

Every function works on the arrays of :func:`penstock.policy.network.places.graph_arrays`: nodes in order, each after
its parents. `share` is the part of a node's tuples that still flows, `target` the most that a place lets through.
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
def place_keeps(kind: Any, parent_from: Any, parent_of: Any, weight: Any, target: Any, places: Any) -> Any:
    """Keep rate of each place: what it lets through of what reaches it."""
    share = np.empty(len(kind))
    spread_shares(kind, parent_from, parent_of, weight, target, share)
    keep = np.ones(len(places))
    for number in range(len(places)):
        node = places[number]
        above = share[parent_of[parent_from[node]]] if parent_from[node + 1] > parent_from[node] else 1.0
        if above > 0:
            keep[number] = share[node] / above
    return keep


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
    piece_slope: Any, leaning: Any, target: Any, share: Any, least_slope: float, gain: Any, loss: Any,
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
            loss[node] = leaning[node] * max(
                least_slope, _slope(piece_from, piece_low, piece_slope, node, share[node])[0]
            )
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
    far = float(share[moved])
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
    return float(far)


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
def _best_place(kind: Any, share: Any, gain: Any, loss: Any) -> tuple[int, float]:
    """The place of least loss per gain; of equal ones that with the larger gain, which lies further up."""
    best, least = -1, np.inf
    for node in range(len(kind)):
        if kind[node] == PLACE and share[node] > TINY and gain[node] > 1e-300:
            ratio = loss[node] / gain[node]
            if ratio < least * (1 - 1e-12) or (ratio <= least * (1 + 1e-12) and gain[node] > gain[best]):
                best, least = node, ratio
    return best, least


@njit(cache=True)
def _room(table: Any, used: int) -> Any:
    """The table, with room for another line."""
    if used < len(table):
        return table
    larger = np.empty((2 * len(table), table.shape[1]))
    larger[:used] = table
    return larger


@njit(cache=True)
def _note_changes(kind: Any, target: Any, before: Any, row: int, changes: Any, used: int) -> Any:
    """Enter which targets this row has changed."""
    for node in range(len(kind)):
        if kind[node] == PLACE and target[node] != before[node]:
            changes = _room(changes, used)
            changes[used, 0], changes[used, 1], changes[used, 2] = float(row), float(node), target[node]
            before[node] = target[node]
            used += 1
    return changes, used


@njit(cache=True)
def _next_listed(order: Any, listed: int, share: Any) -> int:
    """Skip what is done already."""
    while listed < len(order) and share[int(order[listed, 0])] <= order[listed, 1] + TINY:
        listed += 1
    return listed


@njit(cache=True)
def build_rows(
    kind: Any, parent_from: Any, parent_of: Any, weight: Any, work: Any, flow: Any, piece_from: Any, piece_low: Any,
    piece_slope: Any, leaning: Any, step: float, drop_seconds: float, order: Any,
) -> Any:  # fmt: skip
    """Take the place of least loss per gain, again and again, until nothing flows.

    With ``order`` (place, target and ratio), follow that list instead of choosing: the paper's rule, whose ratios
    are sorted once. Returns per row (savings, utility lost, ratio) and per change (row, place, target).
    """
    count = len(kind)
    target, share, before = np.ones(count), np.ones(count), np.ones(count)
    gain, loss, change, need = np.zeros(count), np.zeros(count), np.zeros(count), np.zeros(count)
    full_utility, full_load = utility_and_load(
        kind, parent_from, parent_of, work, flow, piece_from, piece_low, piece_slope, share, drop_seconds
    )
    least_slope = 1e-9 * (piece_slope.max() if len(piece_slope) and piece_slope.max() > 0 else 1.0)
    rows, changes = np.empty((256, 3)), np.empty((256, 3))
    row_count, change_count, listed, saved, lost = 0, 0, 0, 0.0, 0.0
    # Without joins everything is linear between two events, so the rows between them need no new look.
    linear = drop_seconds == 0 and len(order) == 0 and not np.any(kind == JOIN)
    while True:
        _ratios(
            kind, parent_from, parent_of, weight, work, piece_from, piece_low, piece_slope, leaning, target, share,
            least_slope, gain, loss,
        )  # fmt: skip
        if len(order) > 0:
            listed = _next_listed(order, listed, share)
            if listed == len(order):
                break
            best, ratio = int(order[listed, 0]), order[listed, 2]
            move = min(step, share[best] - order[listed, 1])
        else:
            best, ratio = _best_place(kind, share, gain, loss)
            if best < 0:
                break
            move = share[best]
            if drop_seconds == 0:
                # With a cost per drop a first step must not be cut short: it has to pay for the drop.
                move = _reach(
                    kind, parent_from, parent_of, weight, piece_from, piece_low, piece_slope, target, share, best,
                    change,
                )  # fmt: skip
            move = move if linear else min(step, move)
        start = share[best]
        target[best] = start - move if start - move > TINY else 0.0
        spread_shares(kind, parent_from, parent_of, weight, target, share)
        if _push_up(kind, parent_from, parent_of, target, share, need):
            spread_shares(kind, parent_from, parent_of, weight, target, share)
        utility, load = utility_and_load(
            kind, parent_from, parent_of, work, flow, piece_from, piece_low, piece_slope, share, drop_seconds
        )
        if full_load - load <= saved * (1 + 1e-12) + 1e-300:
            continue  # a drop that does not pay yet: the next row has it too
        saved_before, lost_before = saved, lost
        saved, lost = full_load - load, full_utility - utility
        parts = int(np.ceil(move / step - 1e-9))
        for part in range(1, parts):
            done = part * step / move
            rows, changes = _room(rows, row_count), _room(changes, change_count)
            rows[row_count, 0] = saved_before + done * (saved - saved_before)
            rows[row_count, 1] = lost_before + done * (lost - lost_before)
            rows[row_count, 2] = ratio
            changes[change_count, 0], changes[change_count, 1] = float(row_count), float(best)
            changes[change_count, 2] = start - part * step
            row_count += 1
            change_count += 1
        rows = _room(rows, row_count)
        rows[row_count, 0], rows[row_count, 1] = saved, lost
        rows[row_count, 2] = ratio
        changes, change_count = _note_changes(kind, target, before, row_count, changes, change_count)
        row_count += 1
    return rows[:row_count].copy(), changes[:change_count].copy()
