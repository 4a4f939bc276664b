"""The two state machines of [LAS20] as compiled steps: the load shedder (Listing 3.2) and the operator (Listing 3.1).

Both keep their state in one record of numbers, so that the simulator and Spark's workers run the same machine code.
Times are seconds. Where the listings are mended, the line says so; PAPERS.md has the list.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from penstock.policy.rows.constraint import AVERAGE, MAXIMUM
from penstock.sketch.cost_pair import Cells, add_cost, instability, take_snapshot
from penstock.sketch.jit import compiled, inlined

# NOP: nothing learned yet, keep all. SEND: a pair came, ask for synchronisation with the next kept tuple. RUN: shed.
NOP, SEND, RUN = 0, 1, 2
START, STABILIZING = 0, 1

SHEDDER = np.dtype(
    [
        ("state", np.int64),
        ("busy_until", np.float64),  # the instant at which the operator will have done all that was admitted (C-hat)
        ("fallback_seconds", np.float64),  # mean cost: what an item costs that nobody has seen
        ("margin", np.float64),  # 1 + eps, by which estimates are raised
        ("constraint", np.int64),
        ("limit_seconds", np.float64),  # tau
        ("queued_seconds", np.float64),  # Q: sum of the queuing latencies of admitted tuples
        ("admitted", np.float64),  # l
        ("window_at", np.int64),
        ("price_limit", np.float64),  # density: what a tuple may cost per unit of utility
        ("price_ceiling", np.float64),  # density: about the highest price seen lately
        ("min_keep", np.float64),  # density: the floor under each tuple's keep rate
        ("target", np.float64),  # density: share of tau that the queue is held at
        ("bend", np.float64),  # density: how far the price limit bends with the queue at once
        ("drift", np.float64),  # density: how far each tuple moves it for good
        ("negligible_seconds", np.float64),  # density: what costs less is not held up by the constraint
    ]
)
OPERATOR = np.dtype(
    [
        ("state", np.int64),
        ("executed", np.int64),
        ("busy_until", np.float64),  # the instant at which it is done with all it got (C, with the idle time in it)
        ("every_tuples", np.int64),  # N
        ("tolerance", np.float64),  # mu
        ("by_traffic", np.bool_),
        ("eager", np.bool_),  # send every snapshot, and fade the pair instead of resetting it
        ("fade_above", np.float64),
    ]
)


@inlined
def queuing_seconds(shedder: Any, now: float) -> float:
    """How long a tuple that comes now would wait.

    Deviation: never below zero (Lindley's recursion). ``C-hat - elapsed`` turns negative in a quiet time, and the
    shedder would take that for credit and let a burst through.
    """
    return float(max(0.0, shedder.busy_until - now))


@inlined
def breaks_constraint(shedder: Any, window: NDArray[np.float64], queued: float) -> bool:
    """Tell whether admitting a tuple that waits so long would break the constraint.

    Deviation: the average is ``(Q + q) / (l + 1)``; [LAS16] leaves q out, [LAS20] divides by l, which is zero at first.
    Deviation: once tuples that must not be dropped have pushed the average above the limit, one that waits less than
    the limit mends it; refusing that one would leave the average where it is, and shut out all that follow.
    """
    if shedder.constraint == MAXIMUM:
        return bool(queued > shedder.limit_seconds)
    if shedder.constraint == AVERAGE:
        total = shedder.queued_seconds + queued
        return bool(queued > shedder.limit_seconds and total > shedder.limit_seconds * (shedder.admitted + 1.0))
    remembered = min(shedder.admitted, window.size - 1.0)
    # The oldest of a full window makes room for this one.
    leaving = window[shedder.window_at] if shedder.admitted >= window.size else 0.0
    mends = queued <= shedder.limit_seconds and queued <= leaving
    total = shedder.queued_seconds - leaving + queued
    return bool(not mends and total > shedder.limit_seconds * (remembered + 1.0))


@inlined
def admit(shedder: Any, window: NDArray[np.float64], now: float, queued: float, cost: float) -> None:
    """Enter an admitted tuple: its waiting into the average, its cost into the backlog."""
    if window.size > 0:
        if shedder.admitted >= window.size:
            shedder.queued_seconds -= window[shedder.window_at]
        window[shedder.window_at] = queued
        shedder.window_at = shedder.window_at + 1 if shedder.window_at + 1 < window.size else 0
    shedder.queued_seconds += queued
    shedder.admitted += 1.0
    shedder.busy_until = max(shedder.busy_until, now) + cost * shedder.margin


@inlined
def keeps(shedder: Any, window: NDArray[np.float64], now: float, cost: float, droppable: bool) -> bool:
    """Decide on one tuple (SHED in Listing 3.2, turned round: True keeps it).

    ``droppable`` is what ``check_utility`` says of the tuple. Deviation: a tuple that must not be dropped is entered
    into the average although it breaks the constraint; the listing forgets it.
    """
    if shedder.state == NOP:
        return True
    queued = queuing_seconds(shedder, now)
    if droppable and breaks_constraint(shedder, window, queued):
        return False
    admit(shedder, window, now, queued, cost)
    return True


@compiled
def learn(
    operator: Any,
    pair: Cells,
    snapshot: Cells,
    coefficients: NDArray[np.uint64],
    item: np.uint64,
    seconds: float,
    weight: float,
) -> bool:
    """Take in one execution (UPDATE in Listing 3.1); True if the pair is to be sent to the shedder before it goes on.

    After True the caller takes a copy of the pair and calls :func:`sent`. An eager operator sends every snapshot.
    """
    operator.executed += 1
    send = False
    if operator.executed % operator.every_tuples == 0:
        if operator.eager:
            send = True
        elif operator.state == START:
            take_snapshot(pair, snapshot)
            operator.state = STABILIZING
        elif instability(pair, snapshot, operator.by_traffic) <= operator.tolerance:
            send = True
        else:
            take_snapshot(pair, snapshot)
    if not send:
        add_cost(pair, coefficients, item, seconds, weight)
    return send


@compiled
def sent(
    operator: Any, pair: Cells, coefficients: NDArray[np.uint64], item: np.uint64, seconds: float, weight: float
) -> None:
    """Go on after a pair was sent: start anew, or let the past fade, then take in the execution that was left out."""
    if operator.eager:
        if pair[0, :, 0].sum() > operator.fade_above:
            pair *= 0.5
    else:
        pair[:] = 0.0
        operator.state = START
    add_cost(pair, coefficients, item, seconds, weight)


@compiled
def execute(operator: Any, arrived_at: float, seconds: float) -> float:
    """Queue a tuple at the operator and tell when it is done; idle time is not saved up."""
    operator.busy_until = max(operator.busy_until, arrived_at) + seconds
    return float(operator.busy_until)
