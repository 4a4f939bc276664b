"""Share a budget of tuples among groups: small groups whole, large ones share the rest.

Every rule has the form ``quota = clip(level * appetite, floor, size)``; the level is the one at which the quotas use
up the budget.

| rule | appetite | good for |
|---|---|---|
| equal | 1 | answers of the same precision for groups that vary alike |
| proportional | size | totals over all groups |
| neyman | coefficient of variation | the least squared relative error of the groups' means |

With costs per tuple of a group, the appetite is divided by their root, and the budget counts cost
(Cochran, "Sampling Techniques", section 5.5).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import get_args

import numpy as np
import numpy.typing as npt

from penstock.model.errors import InvalidInputError, require_not_negative
from penstock.model.plan import Rule, Wins
from penstock.policy.strata.groups import Floats, GroupConcept, Ints

ROUNDING = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Quotas:
    """How many tuples of each group survive, and what that leaves out.

    ``missing_groups`` and ``missing_tuples`` tell of groups without any survivor; they can only occur where there are
    more groups than the budget has tuples and the budget wins.
    """

    concept: GroupConcept
    tuples: Ints

    @property
    def kept(self) -> int:
        """Tuples that survive in all."""
        return int(self.tuples.sum())

    @property
    def missing_groups(self) -> int:
        """Groups that no survivor speaks for."""
        return int((self.tuples == 0).sum())

    @property
    def missing_tuples(self) -> int:
        """Tuples of these groups: what totals over the survivors lack."""
        return int(self.concept.counts[self.tuples == 0].sum())

    def of(self, part: GroupConcept) -> Quotas:
        """The quotas of a part of the groups, each of which the part holds completely."""
        return Quotas(concept=part, tuples=self.tuples[np.searchsorted(self.concept.keys, part.keys)])

    @property
    def weights(self) -> Floats:
        """Tuples that a survivor of each group stands for; 0 for a missing group."""
        whole = np.zeros(len(self.tuples))
        return np.divide(self.concept.counts, self.tuples, out=whole, where=self.tuples > 0)


def allocate(
    concept: GroupConcept,
    budget: float,
    *,
    rule: Rule = "equal",
    wins: Wins = "budget",
    costs: Floats | None = None,
) -> Quotas:
    """Share a budget among the groups of a window.

    Parameters
    ----------
    concept
        The groups.
    budget
        Tuples that may survive; with ``costs``, the cost of the tuples that may survive.
    rule
        How groups that are not kept whole share; see the module.
    wins
        Which gives way when there are more groups than the budget can hold one tuple of: with ``"budget"`` the
        smallest groups go missing (the fewest tuples are then without an answer), with ``"coverage"`` every group
        keeps one tuple and the budget is exceeded.
    costs
        Cost per tuple of each group, in the order of the concept.

    Examples
    --------
    >>> import numpy as np
    >>> concept = GroupConcept.of(np.repeat([1, 2, 3], [900, 90, 10]))
    >>> allocate(concept, 100).tuples.tolist()
    [45, 45, 10]
    >>> allocate(concept, 100, rule="proportional").tuples.tolist()
    [90, 9, 1]
    >>> quotas = allocate(concept, 2)
    >>> quotas.tuples.tolist(), quotas.missing_groups, quotas.missing_tuples
    ([1, 1, 0], 1, 10)
    """
    if rule not in get_args(Rule):
        raise InvalidInputError(f"rule must be one of {', '.join(get_args(Rule))}, got {rule!r}")
    prices = np.ones(concept.groups) if costs is None else _checked(costs, concept)
    tuples = share_out(concept.counts, _appetite(concept, rule), budget, wins=wins, prices=prices, first=concept.counts)
    return Quotas(concept=concept, tuples=tuples)


def share_out(
    sizes: Ints, appetite: Floats, budget: float, *, wins: Wins, prices: Floats, first: npt.NDArray[np.number]
) -> Ints:
    """Share a budget by appetite; where it cannot hold one tuple of each stratum, those with the most ``first`` win."""
    require_not_negative("budget", budget, meaning="what may survive")
    if wins not in get_args(Wins):
        raise InvalidInputError(f"wins must be one of {', '.join(get_args(Wins))}, got {wins!r}")
    if float((sizes * prices).sum()) <= budget:
        return sizes
    if float(prices.sum()) >= budget:
        tuples = np.ones(len(sizes), dtype=np.int64)
        if wins == "budget":
            order = np.argsort(-first, kind="stable")
            tuples[order[np.cumsum(prices[order]) > budget + ROUNDING]] = 0
        return tuples
    shares = _fill(appetite / np.sqrt(prices), sizes.astype(np.float64), prices, budget)
    return _whole_tuples(shares, sizes, prices, budget)


def _appetite(concept: GroupConcept, rule: Rule) -> Floats:
    if rule == "equal":
        return np.ones(concept.groups)
    if rule == "proportional":
        return concept.counts.astype(np.float64)
    return concept.variation()


def _fill(appetite: Floats, sizes: Floats, prices: Floats, budget: float) -> Floats:
    """Find the level at which the quotas use up the budget; every group has at least one tuple.

    What the quotas cost grows with the level in straight pieces: a group begins to grow where its share passes one
    tuple, and ends where it is whole. Where no group has any appetite, all share alike.
    """
    if not appetite.any():
        appetite = np.ones(len(appetite))
    hungry = appetite > 0
    eager, whole, price = appetite[hungry], sizes[hungry], prices[hungry]
    turns = np.concatenate([1.0 / eager, whole / eager])
    growth = np.concatenate([eager * price, -eager * price])
    order = np.argsort(turns, kind="stable")
    turns, slopes = turns[order], np.cumsum(growth[order])
    costs = float(prices.sum()) + np.concatenate([[0.0], np.cumsum(slopes[:-1] * np.diff(turns))])
    piece = int(np.searchsorted(costs, budget, side="right")) - 1
    # The last piece is flat, but for rounding: all that can grow is whole.
    rising = piece < len(turns) - 1 and slopes[piece] > 0
    level = turns[piece] + ((budget - costs[piece]) / slopes[piece] if rising else 0.0)
    shares = np.where(hungry, np.clip(level * appetite, 1.0, sizes), 1.0)
    spare = budget - float((shares * prices).sum())
    if spare > 1 and not hungry.all():
        # Groups without spread need one tuple only; what the others cannot use is theirs all the same.
        rest = np.where(hungry, 0.0, sizes - shares)
        shares += rest * min(1.0, spare / max(float((rest * prices).sum()), 1.0))
    return shares


def _whole_tuples(shares: Floats, sizes: Ints, prices: Floats, budget: float) -> Ints:
    """Round to whole tuples: down, then up where the fraction was largest, as far as the budget goes."""
    tuples = np.floor(shares + ROUNDING).astype(np.int64)
    fractions = shares - tuples
    by_fraction = np.lexsort((np.arange(len(shares)), -fractions))
    by_fraction = by_fraction[(fractions > ROUNDING)[by_fraction] & (tuples < sizes)[by_fraction]]
    spent = float((tuples * prices).sum()) + np.cumsum(prices[by_fraction])
    tuples[by_fraction[spent <= budget + ROUNDING]] += 1
    return tuples


def _checked(costs: Floats, concept: GroupConcept) -> Floats:
    prices = np.asarray(costs, dtype=np.float64)
    if prices.shape != concept.counts.shape or not (np.isfinite(prices) & (prices > 0)).all():
        raise InvalidInputError(
            f"costs must be {concept.groups} finite numbers above 0, one per group in the order of the concept's keys"
        )
    return prices
