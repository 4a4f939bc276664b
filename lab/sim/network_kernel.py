"""Tuples through a network of filters and unions under round-robin scheduling, compiled."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit


@njit(cache=True)
def _passes(arc: int, value: float, keep: Any, range_from: Any, range_low: Any, range_high: Any) -> bool:
    """Whether a tuple survives the drop on an arc."""
    first, last = range_from[arc], range_from[arc + 1]
    for number in range(first, last):
        if range_low[number] <= value < range_high[number]:
            return False
    return bool(last > first or keep[arc] >= 1 or np.random.random() < keep[arc])  # noqa: NPY002 - numba has no Generator here


@njit(cache=True)
def seed_kernel(seed: int) -> None:
    """Fix what the drops draw."""
    np.random.seed(seed)  # noqa: NPY002


@njit(cache=True)
def run_until(
    end: float, state: Any, arrived_at: Any, arrived_from: Any, arrived_value: Any, seconds: Any, low: Any,
    out_from: Any, out_arc: Any, out_to: Any, output_of: Any, keep: Any, range_from: Any, range_low: Any,
    range_high: Any, queue: Any, since: Any, head: Any, size: Any, boundary: float, delivered: Any, busy: Any,
    lateness: Any,
) -> None:  # fmt: skip
    """Serve operators in turn until ``end``, each up to a few tuples; arrivals enter as their time comes.

    Nodes are sources, operators and outputs in one numbering; ``state`` holds the clock, the next arrival and whose
    turn it is. Tuples are counted at outputs by value interval.
    """
    now, following, turn = state[0], int(state[1]), int(state[2])
    count, capacity = queue.shape
    quantum = 10
    while now < end:
        while following < len(arrived_at) and arrived_at[following] <= now:
            _put(
                int(arrived_from[following]), arrived_value[following], arrived_at[following], now, out_from, out_arc,
                out_to, output_of, keep, range_from, range_low, range_high, queue, since, head, size, boundary,
                delivered, lateness,
            )  # fmt: skip
            following += 1
        served = -1
        for ahead in range(count):
            node = (turn + ahead) % count
            if size[node] > 0:
                served = node
                break
        if served < 0:
            # Nothing waits: let time pass until the next arrival.
            now = min(end, arrived_at[following]) if following < len(arrived_at) else end
            continue
        turn = (served + 1) % count
        for _ in range(min(quantum, size[served])):
            value, born = queue[served, head[served]], since[served, head[served]]
            head[served] = (head[served] + 1) % capacity
            size[served] -= 1
            now += seconds[served]
            busy[0] += seconds[served]
            if value >= low[served]:
                _put(
                    served, value, born, now, out_from, out_arc, out_to, output_of, keep, range_from, range_low,
                    range_high, queue, since, head, size, boundary, delivered, lateness,
                )  # fmt: skip
    state[0], state[1], state[2] = now, following, turn


@njit(cache=True)
def _put(
    node: int, value: float, born: float, now: float, out_from: Any, out_arc: Any, out_to: Any, output_of: Any,
    keep: Any, range_from: Any, range_low: Any, range_high: Any, queue: Any, since: Any, head: Any, size: Any,
    boundary: float, delivered: Any, lateness: Any,
) -> None:  # fmt: skip
    """Send a tuple along every arc out of a node, through their drops."""
    capacity = queue.shape[1]
    for number in range(out_from[node], out_from[node + 1]):
        if not _passes(out_arc[number], value, keep, range_from, range_low, range_high):
            continue
        below = out_to[number]
        output = output_of[below]
        if output >= 0:
            delivered[output, 1 if value >= boundary else 0] += 1
            lateness[0] += now - born
            lateness[1] += 1
        elif size[below] < capacity:
            at = (head[below] + size[below]) % capacity
            queue[below, at], since[below, at] = value, born
            size[below] += 1
        else:
            lateness[2] += 1  # a full queue: counted, for it must not happen under a plan that fits
