"""Load-aware shedding, and what [LAS20] compares it with, as settings of one and the same code."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from penstock.model.errors import (
    InvalidInputError,
    require_flag,
    require_fraction,
    require_function,
    require_kind,
    require_not_negative,
    require_positive,
    require_seed,
    require_whole,
)
from penstock.policy.rows.constraint import Constraint
from penstock.policy.rows.shedding import NOP, OPERATOR, RUN, SHEDDER
from penstock.sketch.count_min import Shape
from penstock.sketch.hashing import Items

# Where the expected cost of a tuple comes from.
LEARNED, MEAN, TRUE = 0, 1, 2
# How a tuple's fate is decided.
BY_LATENCY, BY_DENSITY, AT_RANDOM = 0, 1, 2

CheckUtility = Callable[[Items], NDArray[np.bool_]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Learning:
    """How an operator learns what items cost, and when it tells.

    Parameters
    ----------
    eps, delta
        Precision of the sketches; see :meth:`penstock.sketch.count_min.Shape.of`.
    every_tuples
        A snapshot is taken each time this many tuples were executed (N in [LAS20]).
    tolerance
        The pair is sent when estimates moved by no more than this share since the snapshot before (mu).
    by_traffic
        Weigh each cell by its traffic in that comparison. Deviation: the paper weighs all cells alike, and cells that
        are hardly used then delay the first model of a large sketch, or on a skewed stream, by thousands of tuples.
    eager
        Send every snapshot, without waiting for estimates to settle, and halve the pair instead of resetting it.
    sync_every_tuples
        Ask the operator how late it really is each time this many tuples were kept; 0 asks with each new pair only,
        as the paper does. Deviation: when all costs double at once (phase F of the paper's figure 9), the first
        pair that knows it waits in the queue that it is to shorten, and its reply waits once more; asking regularly
        finds the backlog early.
    fade_above_tuples
        An eager pair is halved when it holds more than this.
    seed
        Chooses the hash functions.
    """

    eps: float = 0.05
    delta: float = 0.1
    every_tuples: int = 1024
    tolerance: float = 0.05
    by_traffic: bool = True
    eager: bool = False
    sync_every_tuples: int = 512
    fade_above_tuples: float = 4_096.0
    seed: int = 0

    def __post_init__(self) -> None:
        Shape.of(eps=self.eps, delta=self.delta)
        require_whole("every_tuples", self.every_tuples, meaning="how many executions lie between two snapshots")
        require_seed(self.seed)
        require_flag("by_traffic", self.by_traffic, meaning="whether cells are weighed by their traffic")
        require_flag("eager", self.eager, meaning="whether every snapshot is sent")
        require_not_negative("tolerance", self.tolerance, meaning="how far estimates may move and count as stable")
        require_whole("sync_every_tuples", self.sync_every_tuples, least=0, meaning="a count of kept tuples")
        require_positive("fade_above_tuples", self.fade_above_tuples, meaning="how much past an eager pair holds")

    @property
    def shape(self) -> Shape:
        """Size and hash functions of the sketches."""
        return Shape.of(eps=self.eps, delta=self.delta, seed=self.seed)

    def operator(self) -> NDArray[np.void]:
        """Make the operator's state at its start."""
        operator = np.zeros(1, OPERATOR)
        operator["every_tuples"] = self.every_tuples
        operator["tolerance"] = self.tolerance
        operator["by_traffic"] = self.by_traffic
        operator["eager"] = self.eager
        operator["fade_above"] = self.fade_above_tuples
        return operator


def require_learning(learning: Learning, check_utility: CheckUtility | None) -> None:
    """Refuse what costs cannot be learned by, and what cannot say which tuples may be dropped."""
    require_kind("learning", learning, Learning, called="a Learning", example="Learning()")
    if check_utility is not None:
        require_function("check_utility", check_utility, meaning="what says, for items, which tuples may be dropped")


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadAware:
    """Learn what each tuple costs; drop what comes while the latency constraint would break (LAS in [LAS20]).

    Parameters
    ----------
    learning
        How costs are learned.
    check_utility
        Says, for items, which tuples may be dropped; by default all may. The paper's CHECKUTILITY.

    Examples
    --------
    >>> from penstock.policy.rows.constraint import AverageLatency
    >>> shedder = LoadAware().shedder(AverageLatency(seconds=0.0064))
    >>> float(shedder["margin"][0])
    1.05
    """

    KNOWS: ClassVar[int] = LEARNED
    RULE: ClassVar[int] = BY_LATENCY

    learning: Learning = field(default_factory=Learning)
    check_utility: CheckUtility | None = None

    def __post_init__(self) -> None:
        require_learning(self.learning, self.check_utility)

    def shedder(self, constraint: Constraint) -> NDArray[np.void]:
        """Make the shedder's state at its start: it waits for the first pair and keeps all."""
        # Estimates are raised by the factor by which they may be too low ([LAS20] Listing 3.2 line 21).
        return new_shedder(constraint, state=NOP, margin=1.0 + self.learning.eps)


@dataclass(frozen=True, slots=True, kw_only=True)
class StrawMan:
    """Shed as load-aware shedding does, but take every tuple for an average one.

    Parameters
    ----------
    mean_seconds
        What a tuple costs on average, known beforehand and never learned again, as in the paper.
    """

    KNOWS: ClassVar[int] = MEAN
    RULE: ClassVar[int] = BY_LATENCY

    mean_seconds: float
    learning: Learning = field(default_factory=Learning)
    check_utility: CheckUtility | None = None

    def __post_init__(self) -> None:
        require_positive("mean_seconds", self.mean_seconds, meaning="what a tuple costs on average")
        require_learning(self.learning, self.check_utility)

    def shedder(self, constraint: Constraint) -> NDArray[np.void]:
        """Make the shedder's state at its start."""
        return new_shedder(constraint, state=RUN, fallback_seconds=self.mean_seconds)


@dataclass(frozen=True, slots=True, kw_only=True)
class FullKnowledge:
    """Shed as load-aware shedding does, with the true cost of every tuple from an oracle."""

    KNOWS: ClassVar[int] = TRUE
    RULE: ClassVar[int] = BY_LATENCY

    learning: Learning = field(default_factory=Learning)
    check_utility: CheckUtility | None = None

    def __post_init__(self) -> None:
        require_learning(self.learning, self.check_utility)

    def shedder(self, constraint: Constraint) -> NDArray[np.void]:
        """Make the shedder's state at its start."""
        return new_shedder(constraint, state=RUN)


@dataclass(frozen=True, slots=True, kw_only=True)
class BaseLine:
    """Drop at random the share that does not fit, whatever the tuples cost and however long they wait.

    Parameters
    ----------
    keep
        Share of tuples that survive: one less the under-provisioning.
    """

    KNOWS: ClassVar[int] = MEAN
    RULE: ClassVar[int] = AT_RANDOM

    keep: float
    learning: Learning = field(default_factory=Learning)
    check_utility: CheckUtility | None = None

    def __post_init__(self) -> None:
        require_fraction("keep", self.keep, meaning="the share of tuples that survive")
        require_learning(self.learning, self.check_utility)

    def shedder(self, constraint: Constraint) -> NDArray[np.void]:
        """Make the shedder's state at its start; ``min_keep`` has the rate."""
        shedder = new_shedder(constraint, state=RUN)
        shedder["min_keep"] = self.keep
        return shedder


def new_shedder(
    constraint: Constraint, *, state: int, margin: float = 1.0, fallback_seconds: float = 0.0
) -> NDArray[np.void]:
    """Fill in the record that :mod:`penstock.policy.rows.shedding` works on."""
    shedder = np.zeros(1, SHEDDER)
    shedder["state"] = state
    shedder["margin"] = margin
    shedder["fallback_seconds"] = fallback_seconds
    shedder["constraint"] = constraint.KIND
    shedder["limit_seconds"] = constraint.seconds
    return shedder


def utility_of(items: Items, check_utility: CheckUtility | None) -> NDArray[np.float64]:
    """Turn ``check_utility`` into what the kernels read: 1, or infinite where a tuple must not be dropped."""
    utility = np.ones(items.size)
    if check_utility is not None:
        droppable = np.asarray(check_utility(items))
        if droppable.shape != items.shape or droppable.dtype != np.bool_:
            raise InvalidInputError(
                f"check_utility must give one True or False for each of {items.size} items, "
                f"got {droppable.dtype} of shape {droppable.shape}"
            )
        utility[~droppable] = np.inf
    return utility
