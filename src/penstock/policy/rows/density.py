"""Ours: drop first what yields least per second of work.

[LAS20] drops whatever comes while the threshold is hit; its Theorem 4 calls that optimal, but it is so only among
shedders that do just that. The work that does not fit sits in fewer tuples if these are the expensive ones. So a tuple
has a *price*, its expected cost per unit of utility, and is kept while the price is below a limit that moves until
what is admitted just fits. The latency constraint stays on guard behind it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from penstock.model.errors import require_flag, require_fraction, require_not_negative, require_positive
from penstock.policy.rows.constraint import MAXIMUM, Constraint
from penstock.policy.rows.load_aware import (
    BY_DENSITY,
    LEARNED,
    TRUE,
    CheckUtility,
    Learning,
    new_shedder,
    require_learning,
)
from penstock.policy.rows.shedding import NOP, RUN, admit, breaks_constraint, queuing_seconds
from penstock.sketch.hashing import chance
from penstock.sketch.jit import inlined

CEILING_FADES = 1.0 / 8192
LOWEST_LIMIT = 1e-4
CREDIT, STEP = 2.0, 0.5


@inlined
def keep_rate(shedder: Any, window: NDArray[np.float64], now: float, cost: float, utility: float) -> float:
    """Give a tuple's chance to be kept, 1 or the floor, and move the limit; the inverse is the weight of a survivor.

    The chance depends on what came before and on the tuple itself, never on its own draw: sums over weighted
    survivors are unbiased, as long as the floor is above zero.
    """
    if shedder.state == NOP or utility == np.inf:
        return 1.0
    queued = queuing_seconds(shedder, now)
    price = cost / utility if utility > 0.0 else np.inf
    if price < np.inf:
        # While the load fits, the limit rests at the ceiling and moves with it: then no price is above it.
        resting = shedder.price_limit >= shedder.price_ceiling
        shedder.price_ceiling = max(price, shedder.price_ceiling * (1.0 - CEILING_FADES))
        shedder.price_limit = shedder.price_ceiling if resting else shedder.price_limit
    target = shedder.target * shedder.limit_seconds
    if shedder.constraint != MAXIMUM and shedder.admitted > 0.0:
        # An average that is still low leaves room for a longer queue: nothing is shed while the load fits.
        remembered = min(shedder.admitted, float(window.size)) if window.size > 0 else shedder.admitted
        target += CREDIT * max(0.0, target - shedder.queued_seconds / remembered)
    # Up to 1 with an empty queue, 0 at the target, -1 far beyond it. A target below the price of a single tuple is no
    # measure for the queue, which moves in such steps.
    slack = min(1.0, max(-1.0, (target - queued) / max(target, STEP * shedder.price_ceiling, 1e-12)))
    limit = shedder.price_limit * (1.0 + shedder.drift * slack)
    shedder.price_limit = min(max(limit, LOWEST_LIMIT * shedder.price_ceiling), shedder.price_ceiling)
    if price <= shedder.price_limit * (1.0 + shedder.bend * slack) and (
        cost < shedder.negligible_seconds or not breaks_constraint(shedder, window, queued)
    ):
        return 1.0
    return float(shedder.min_keep)


def fitting_limit(
    costs: NDArray[np.float64], utility: NDArray[np.float64], *, min_keep: float, budget_seconds: float
) -> float:
    """Find the price of the first tuples that no longer fit a budget of work, where all of a batch are known.

    Which of these are kept is then up to the queue, by the bend of the limit. What is above the limit still costs its
    floor. Where all tuples fit, the limit is the highest price.

    >>> costs = np.array([1.0, 5.0, 25.0, 1.0, 25.0])
    >>> fitting_limit(costs, np.ones(5), min_keep=0.0, budget_seconds=6.0)
    5.0
    >>> fitting_limit(costs, np.ones(5), min_keep=0.1, budget_seconds=40.0)
    25.0
    """
    priced = (utility > 0) & (utility < np.inf)
    # What is priceless is kept whatever it costs, and what is worth nothing is the first to go.
    budget_seconds -= float(costs[utility == np.inf].sum()) + min_keep * float(costs[utility <= 0].sum())
    prices, costs = costs[priced] / utility[priced], costs[priced]
    if not prices.size:
        return 0.0
    order = np.argsort(prices, kind="stable")
    below = np.cumsum(costs[order])
    work = below + min_keep * (below[-1] - below)
    first = min(int(np.searchsorted(work, budget_seconds, side="right")), prices.size - 1)
    return float(prices[order][first])


@inlined
def weight_by_density(
    shedder: Any,
    window: NDArray[np.float64],
    now: float,
    cost: float,
    utility: float,
    seed: np.uint64,
    number: np.uint64,
) -> float:
    """Decide on one tuple: its weight if it is kept, 0 if it is shed; its number in the sequence fixes its draw."""
    rate = keep_rate(shedder, window, now, cost, utility)
    if rate < 1.0 and chance(seed, number) >= rate:
        return 0.0
    if shedder.state != NOP:
        admit(shedder, window, now, queuing_seconds(shedder, now), cost)
    return 1.0 / rate


def _eager() -> Learning:
    return Learning(eager=True, sync_every_tuples=8)


@dataclass(frozen=True, slots=True, kw_only=True)
class Density:
    """Drop first what yields least per second: utility over expected cost; with equal utility, the expensive tuples.

    Parameters
    ----------
    learning
        How costs are learned; by default from the first snapshot on, and asking the operator every eight kept
        tuples how late it is. The paper's sketches (4 x 55) do; ``eps=0.0027`` makes them 64 KB and the drops fewer.
    min_keep
        Floor under the keep rate of every tuple, so that no key is shed for ever and weighted sums stay unbiased.
        With 0, what is expensive may never be seen again.
    true_costs
        Take costs from an oracle, as :class:`~penstock.policy.rows.load_aware.FullKnowledge` does.
    target
        Share of the constraint that the queue is held at: below it for fear of breaking it, near it because an
        operator that runs idle wastes time.
    bend, drift
        How far the price limit bends with the queue at once, and how far each tuple moves it for good.

    Examples
    --------
    >>> Density(min_keep=2)
    Traceback (most recent call last):
    ...
    penstock.model.errors.InvalidInputError: min_keep must be in [0, 1], got 2; it is the floor under every keep rate
    """

    RULE: ClassVar[int] = BY_DENSITY

    learning: Learning = field(default_factory=_eager)
    min_keep: float = 0.05
    true_costs: bool = False
    target: float = 0.85
    bend: float = 0.25
    drift: float = 0.004
    check_utility: CheckUtility | None = None

    def __post_init__(self) -> None:
        require_learning(self.learning, self.check_utility)
        require_flag("true_costs", self.true_costs, meaning="whether costs come from an oracle")
        require_fraction("min_keep", self.min_keep, meaning="the floor under every keep rate")
        require_positive("target", self.target, meaning="the share of the constraint that the queue is held at")
        require_not_negative("bend", self.bend, meaning="how far the price limit bends with the queue")
        require_positive("drift", self.drift, meaning="how far each tuple moves the price limit")

    @property
    def KNOWS(self) -> int:  # noqa: N802 - a constant of the policies that have no choice
        """Where costs come from."""
        return TRUE if self.true_costs else LEARNED

    def shedder(self, constraint: Constraint) -> NDArray[np.void]:
        """Make the shedder's state at its start, with a limit at rest."""
        shedder = new_shedder(constraint, state=RUN if self.true_costs else NOP)
        for name in ("min_keep", "target", "bend", "drift"):
            shedder[name] = getattr(self, name)
        return shedder
