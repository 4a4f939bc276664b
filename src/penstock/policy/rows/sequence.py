"""Decide on a sequence of tuples at once: what Spark's workers call, over the steps that the simulator runs."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from penstock.policy.rows.constraint import Constraint
from penstock.policy.rows.density import weight_by_density
from penstock.policy.rows.load_aware import AT_RANDOM, BY_DENSITY, CheckUtility, Learning
from penstock.policy.rows.shedding import keeps
from penstock.sketch.hashing import chance
from penstock.sketch.jit import compiled, inlined


@runtime_checkable
class TuplePolicy(Protocol):
    """A policy that decides tuple by tuple, where the work is done.

    A frozen value that can be pickled. What it knows of costs and by which rule it decides are numbers, because
    compiled code reads them.
    """

    @property
    def KNOWS(self) -> int:  # noqa: N802 - a constant in most policies
        """Where expected costs come from: LEARNED, MEAN or TRUE."""
        ...

    @property
    def RULE(self) -> int:  # noqa: N802
        """How fates are decided: BY_LATENCY, BY_DENSITY or AT_RANDOM."""
        ...

    @property
    def learning(self) -> Learning:
        """How costs are learned."""
        ...

    @property
    def check_utility(self) -> CheckUtility | None:
        """Which tuples may be dropped."""
        ...

    def shedder(self, constraint: Constraint) -> NDArray[np.void]:
        """Make the shedder's state at its start."""
        ...


@inlined
def weight_of(
    rule: int,
    shedder: Any,
    window: NDArray[np.float64],
    now: float,
    cost: float,
    utility: float,
    seed: np.uint64,
    number: np.uint64,
) -> float:
    """Decide on one tuple: its weight if it is kept, 0 if it is shed.

    The keep rate of a tuple that load-aware shedding drops is zero, and none could be weighed for it: survivors weigh 1
    here. What a batch lost is known when it is decided as a whole; see :mod:`penstock.spark.work.task`.
    """
    if rule == BY_DENSITY:
        return weight_by_density(shedder, window, now, cost, utility, seed, number)
    if rule == AT_RANDOM:
        return 1.0 / shedder.min_keep if chance(seed, number) < shedder.min_keep else 0.0
    return 1.0 if keeps(shedder, window, now, cost, utility < np.inf) else 0.0


@compiled
def decide(
    rule: int,
    shedders: NDArray[np.void],
    window: NDArray[np.float64],
    arrived_at: NDArray[np.float64],
    costs: NDArray[np.float64],
    utility: NDArray[np.float64],
    seed: np.uint64,
    first: int,
) -> NDArray[np.float64]:
    """Decide on tuples in the order of their arrival; ``first`` is the number of the first one, for the draws."""
    shedder = shedders[0]
    weights = np.empty(arrived_at.size)
    for index in range(arrived_at.size):
        number = np.uint64(first + index)
        weights[index] = weight_of(rule, shedder, window, arrived_at[index], costs[index], utility[index], seed, number)
    return weights
