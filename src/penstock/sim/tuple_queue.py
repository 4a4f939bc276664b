"""One operator behind one queue, tuple by tuple on a simulated clock, with the messages of [LAS20] between the two."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from penstock.policy.density import keeps_by_density
from penstock.policy.shedding import NOP, RUN, SEND, execute, keeps, learn, sent
from penstock.sketch.cost_pair import Cells, expected_cost, mean_cost
from penstock.sketch.hashing import Items, chance
from penstock.sketch.jit import compiled

# Where the expected cost of a tuple comes from.
LEARNED, MEAN, TRUE = 0, 1, 2
# How a tuple's fate is decided.
BY_LATENCY, BY_DENSITY, AT_RANDOM = 0, 1, 2


@compiled
def run_queue(
    items: Items,
    arrived_at: NDArray[np.float64],
    costs: NDArray[np.float64],
    utility: NDArray[np.float64],
    shedders: NDArray[np.void],
    window: NDArray[np.float64],
    operators: NDArray[np.void],
    pair: Cells,
    known: Cells,
    mail: NDArray[np.float64],
    coefficients: NDArray[np.uint64],
    knows: int,
    rule: int,
    keep: float,
    sync_every: int,
    count_from: int,
    seed: np.uint64,
    weights: NDArray[np.float64],
    waited: NDArray[np.float64],
) -> int:
    """Send every tuple through shedder and operator; return the number of tuples before the first model came.

    ``mail`` holds pairs on their way to the shedder: they leave when the operator has executed the tuple after which
    they were sent. The reply to a synchronisation request travels likewise, and only one is under way at a time: two
    would each correct the same error.
    """
    shedder, operator = shedders[0], operators[0]
    posted_at = np.full(mail.shape[0], np.inf)
    first, posted = 0, 0
    reply_at, reply = np.inf, 0.0
    snapshot = np.zeros(pair.shape[:2])
    first_model = -1
    since_sync = 0
    for index in range(items.size):
        now = arrived_at[index]
        while first < posted and posted_at[first % mail.shape[0]] <= now:
            known[:] = mail[first % mail.shape[0]]
            first += 1
            shedder.fallback_seconds = mean_cost(known, shedder.fallback_seconds)
            shedder.state = SEND
            if first_model < 0:
                first_model = index
        if reply_at <= now:
            shedder.busy_until += reply
            reply_at = np.inf
        if index == count_from:
            # The average is taken over the tuples that are counted, for every policy alike.
            shedder.queued_seconds, shedder.admitted = 0.0, 0.0
        if knows == TRUE:
            cost = costs[index]
        elif knows == MEAN:
            cost = shedder.fallback_seconds
        else:
            cost = expected_cost(known, coefficients, items[index], shedder.fallback_seconds)
        draw = chance(seed, np.uint64(index))
        if rule == AT_RANDOM:
            weight = 1.0 / keep if draw < keep or index < count_from else 0.0
        elif rule == BY_DENSITY:
            weight = keeps_by_density(shedder, window, now, cost, utility[index], draw)
        else:
            weight = 1.0 if keeps(shedder, window, now, cost, utility[index] < np.inf) else 0.0
        weights[index] = weight
        if weight == 0.0:
            waited[index] = np.nan
            continue
        waited[index] = max(0.0, operator.busy_until - now)
        done_at = execute(operator, now, costs[index])
        if knows != LEARNED:
            continue
        since_sync += 1
        if shedder.state == RUN and sync_every > 0 and since_sync >= sync_every:
            shedder.state = SEND
        if shedder.state == SEND and reply_at == np.inf:
            reply_at, reply = done_at, done_at - shedder.busy_until
            shedder.state = RUN
            since_sync = 0
        if learn(operator, pair, snapshot, coefficients, items[index], costs[index]):
            mail[posted % mail.shape[0]] = pair
            posted_at[posted % mail.shape[0]] = done_at
            posted += 1
            sent(operator, pair, coefficients, items[index], costs[index])
    return first_model
