"""One operator behind one queue, tuple by tuple on a simulated clock, with the messages of [LAS20] between the two."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lab.sim.tuple_stream import TupleStream
from penstock.policy.rows.constraint import Constraint
from penstock.policy.rows.load_aware import LEARNED, TRUE, utility_of
from penstock.policy.rows.sequence import TuplePolicy, weight_of
from penstock.policy.rows.shedding import RUN, SEND, execute, learn, sent
from penstock.sketch.cost_pair import Cells, CostPair, expected_cost, mean_cost
from penstock.sketch.hashing import Items
from penstock.sketch.jit import compiled

MAIL_PAIRS = 8


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
    sync_every: int,
    calm: int,
    seed: np.uint64,
    weights: NDArray[np.float64],
    waited: NDArray[np.float64],
) -> int:
    """Send every tuple through shedder and operator; return how many came before the first model, -1 for none.

    ``mail`` holds pairs on their way to the shedder: one leaves when the operator has executed the tuple after which
    it was sent. The reply to a request for synchronisation travels likewise. Deviation: only one reply is under way at
    a time, for two would each correct the same error.
    """
    shedder, operator = shedders[0], operators[0]
    room = mail.shape[0]
    posted_at = np.full(room, np.inf)
    taken, posted = 0, 0
    reply_at, reply = np.inf, 0.0
    snapshot = np.zeros(pair.shape[:2])
    first_model = -1
    kept_since_sync = 0
    for index in range(items.size):
        now = arrived_at[index]
        while taken < posted and posted_at[taken % room] <= now:
            known[:] = mail[taken % room]
            taken += 1
            shedder.fallback_seconds = mean_cost(known, shedder.fallback_seconds)
            shedder.state = SEND
            if first_model < 0:
                first_model = index
        if reply_at <= now:
            # C-hat + delta, in Listing 3.2 line 12.
            shedder.busy_until += reply
            reply_at = np.inf
        if index == calm:
            # The average is taken over the tuples that are counted, for every policy alike.
            shedder.queued_seconds, shedder.admitted, shedder.window_at = 0.0, 0.0, 0
        if knows == TRUE:
            cost = costs[index]
        elif knows == LEARNED:
            cost = expected_cost(known, coefficients, items[index], shedder.fallback_seconds)
        else:
            cost = shedder.fallback_seconds
        weight = weight_of(rule, shedder, window, now, cost, utility[index], seed, np.uint64(index))
        weights[index] = weight
        if weight == 0.0:
            waited[index] = np.nan
            continue
        waited[index] = max(0.0, operator.busy_until - now)
        done_at = execute(operator, now, costs[index])
        if knows != LEARNED:
            continue
        kept_since_sync += 1
        if shedder.state == RUN and sync_every > 0 and kept_since_sync >= sync_every:
            shedder.state = SEND
        if shedder.state == SEND and reply_at == np.inf:
            reply_at, reply = done_at, done_at - shedder.busy_until
            shedder.state = RUN
            kept_since_sync = 0
        if learn(operator, pair, snapshot, coefficients, items[index], costs[index], weight):
            if posted - taken == room:
                # The youngest letter is replaced; the older ones keep their times of arrival.
                posted -= 1
            mail[posted % room] = pair
            posted_at[posted % room] = done_at
            posted += 1
            sent(operator, pair, coefficients, items[index], costs[index], weight)
    return first_model


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of each tuple of a stream.

    Attributes
    ----------
    weights
        Weight of each tuple; 0 if it was shed.
    waited_seconds
        Time each tuple waited for the operator; not a number if it was shed.
    calm
        How many tuples the learning phase has; the figures count those after it.
    first_model
        How many tuples came before the shedder had its first model; None if it never had one.
    """

    weights: NDArray[np.float64]
    waited_seconds: NDArray[np.float64]
    calm: int
    first_model: int | None

    @property
    def dropped(self) -> float:
        """Share of the counted tuples that were shed (alpha in [LAS20])."""
        return float((self.weights[self.calm :] == 0).mean())

    @property
    def mean_waited_seconds(self) -> float:
        """Mean queuing latency of the counted tuples that were kept (Q in [LAS20])."""
        waited = self.waited_seconds[self.calm :]
        return float(np.nanmean(waited)) if (~np.isnan(waited)).any() else 0.0

    def windows(self, tuples: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Mean queuing latency and share dropped over jumping windows, from the first tuple on."""
        count = self.weights.size // tuples
        waited = self.waited_seconds[: count * tuples].reshape(count, tuples)
        dropped = (self.weights[: count * tuples].reshape(count, tuples) == 0).mean(axis=1)
        kept = (~np.isnan(waited)).sum(axis=1)
        return np.nansum(waited, axis=1) / np.maximum(kept, 1), dropped


def simulate(policy: TuplePolicy, stream: TupleStream, constraint: Constraint, *, seed: int = 0) -> Outcome:
    """Run a policy over a stream.

    Examples
    --------
    >>> from penstock.policy.rows.constraint import AverageLatency
    >>> from penstock.policy.rows.load_aware import FullKnowledge
    >>> from lab.sim.tuple_stream import TupleStream
    >>> outcome = simulate(FullKnowledge(), TupleStream.draw(seed=1), AverageLatency(seconds=0.0064))
    >>> round(outcome.mean_waited_seconds * 1e3, 2), round(outcome.dropped, 2)
    (6.4, 0.25)
    """
    shape = policy.learning.shape
    pair, known = CostPair(shape), CostPair(shape)
    shedders = policy.shedder(constraint)
    weights, waited = np.empty(stream.items.size), np.empty(stream.items.size)
    first_model = run_queue(
        stream.items,
        stream.arrived_at,
        stream.costs_seconds,
        utility_of(stream.items, policy.check_utility),
        shedders,
        np.zeros(constraint.window_tuples),
        policy.learning.operator(),
        pair.cells,
        known.cells,
        np.zeros((MAIL_PAIRS, *pair.cells.shape)),
        pair.coefficients,
        policy.KNOWS,
        policy.RULE,
        policy.learning.sync_every_tuples,
        stream.calm,
        np.uint64(seed),
        weights,
        waited,
    )
    return Outcome(weights, waited, stream.calm, first_model if first_model >= 0 else None)
