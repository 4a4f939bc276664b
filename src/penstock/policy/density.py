"""Ours: drop first what yields least per second of work.

[LAS20] drops whatever comes while the threshold is hit; its Theorem 4 calls that optimal, but it is so only among
shedders that do just that. The work that does not fit sits in fewer tuples if these are the expensive ones. So a tuple
has a *price*, its expected cost per unit of utility, and is kept while the price is below a limit that moves until
what is admitted just fits. The latency constraint stays on guard behind it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from penstock.policy.shedding import NOP, admit, breaks_constraint, queuing_seconds
from penstock.sketch.jit import compiled

# The queue is held at this share of tau: below it for fear of breaking the constraint, near it because an operator that
# runs idle has wasted its time.
TARGET = 0.85
# How far the limit bends with the queue at once, and how far each tuple moves it for good.
BEND, DRIFT = 0.5, 0.004
CEILING_FADES = 1.0 / 8192


@compiled
def keep_rate(shedder: Any, window: NDArray[np.float64], now: float, cost: float, utility: float) -> float:
    """Give a tuple's chance to be kept, 1 or the floor, and move the limit; the inverse is the weight of a survivor.

    The chance depends on what came before and on the tuple itself, never on the draw: sums of weighted survivors are
    unbiased, as long as the floor is above zero.
    """
    if shedder.state == NOP:
        return 1.0
    queued = queuing_seconds(shedder, now)
    price = cost / utility if utility > 0.0 else np.inf
    if np.isfinite(price):
        shedder.price_ceiling = max(price, shedder.price_ceiling * (1.0 - CEILING_FADES))
    target = TARGET * shedder.limit_seconds
    slack = max(-1.0, min(1.0, (target - queued) / target)) if target > 0.0 else (1.0 if queued == 0.0 else -1.0)
    limit = shedder.price_limit * np.exp(DRIFT * slack)
    # While the load fits, the limit rests at the ceiling: then no price is above it.
    shedder.price_limit = min(max(limit, 1e-4 * shedder.price_ceiling), shedder.price_ceiling)
    if price <= shedder.price_limit * (1.0 + BEND * slack) and not breaks_constraint(shedder, window, queued):
        return 1.0
    return float(shedder.min_keep)


@compiled
def keeps_by_density(shedder: Any, window: NDArray[np.float64], now: float, cost: float, utility: float, draw: float) -> float:  # fmt: skip
    """Decide on one tuple; its weight if it is kept, 0 if it is shed."""
    rate = keep_rate(shedder, window, now, cost, utility)
    if draw >= rate:
        return 0.0
    if shedder.state != NOP:
        admit(shedder, window, now, queuing_seconds(shedder, now), cost)
    return 1.0 / rate
