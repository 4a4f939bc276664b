"""Concept-Driven shedding: keep rates by group, from how often groups occur ([CoD18] section V, Algorithm 2).

| here | in the paper |
|---|---|
| concept of a window | C_w |
| `keep`, the share of a window that is processed | 1 - b, where b is the shed bias |
| quota of a group | b_g times the window's size |

The same value sheds windows of known concept (:meth:`ConceptDriven.quotas`) and micro-batches whose concept is that of
the batches before (:meth:`ConceptDriven.decide`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import get_args

import numpy as np

from penstock.model.errors import InvalidInputError, require_choice, require_fraction, require_positive
from penstock.model.load import Load
from penstock.model.plan import ByGroup, Plan, Rule, Wins
from penstock.policy.strata.allocation import Quotas, allocate, share_out
from penstock.policy.strata.groups import GroupConcept
from penstock.policy.strata.scalar import ScalarConcept


@dataclass(frozen=True, slots=True, kw_only=True)
class ConceptDriven:
    """Keep small groups whole and let the large ones share what is left of the budget.

    Parameters
    ----------
    keep
        Share of the tuples to keep. None (the default) keeps what fits.
    max_tuples
        Most tuples of a window to keep; a window that is no larger is kept whole.
    relative_error
        For windows: keep of each group what its mean and variance say a sum needs to be this precise in 19 windows of
        20, within the budget if one is given too. Needs a value column.
    rule
        How the large groups share: ``"equal"``, ``"proportional"`` or ``"neyman"``, which needs a value column.
    wins
        With more groups than the budget has tuples: ``"budget"`` leaves the smallest groups out and counts them,
        ``"coverage"`` keeps one tuple of each and exceeds the budget.
    passes
        For micro-batches (``start_each_batch``): 1 uses the concept of the batches so far, 2 counts the groups of
        the batch itself in a first pass.
    rest_share
        Most of the budget that keys without a rate of their own may take, where concepts come from earlier batches.
    min_keep
        No rate of a key, and not the common rate, falls below this.

    Examples
    --------
    >>> import numpy as np
    >>> concept = GroupConcept.of(np.repeat([1, 2, 3], [900, 90, 10]))
    >>> ConceptDriven(keep=0.1).quotas(concept).tuples.tolist()
    [45, 45, 10]

    Of a micro-batch, with the groups of the batches before:

    >>> from penstock.model.load import Cost
    >>> load = Load(
    ...     offered_tuples=40_000,
    ...     cost=Cost(fixed_seconds=0, kept_seconds=1e-4),
    ...     available_seconds=1.0,
    ...     headroom=0.8,
    ...     key_tuples={"a": 30_000, "b": 9_000},
    ... )
    >>> plan = ConceptDriven().decide(load)
    >>> plan.keep, {key: round(keep, 3) for key, keep in plan.key_keep.items()}
    (1.0, {'a': 0.117, 'b': 0.389})
    """

    keep: float | None = None
    max_tuples: int | None = None
    relative_error: float | None = None
    rule: Rule = "equal"
    wins: Wins = "budget"
    passes: int = 1
    rest_share: float = 0.5
    min_keep: float = 0.0

    def __post_init__(self) -> None:
        if self.keep is not None:
            require_fraction("keep", self.keep, meaning="the share of tuples that survive")
        if self.max_tuples is not None:
            require_positive("max_tuples", self.max_tuples, meaning="the most tuples of a window to keep")
        if self.relative_error is not None:
            require_positive("relative_error", self.relative_error, meaning="how far off a sum may be, as a share")
        require_choice("rule", self.rule, get_args(Rule), meaning="how the large groups share the budget")
        require_choice("wins", self.wins, get_args(Wins), meaning="what gives way with more groups than budget")
        require_choice("passes", self.passes, (1, 2), meaning="how often a batch is read")
        require_fraction("rest_share", self.rest_share, meaning="the share of the budget for keys without a rate")
        require_fraction("min_keep", self.min_keep, meaning="the least share of a key's tuples to keep")

    def budget(self, offered_tuples: float) -> float:
        """Tuples that may survive of so many."""
        if self.keep is None and self.max_tuples is None and self.relative_error is None:
            raise InvalidInputError(
                "windows are shed to a budget or an error, and neither keep nor max_tuples nor relative_error was "
                "given; for example ConceptDriven(keep=0.05) or ConceptDriven(max_tuples=50_000)"
            )
        share = offered_tuples * (1.0 if self.keep is None else self.keep)
        budget = min(share, share if self.max_tuples is None else float(self.max_tuples))
        # Some answer is always possible: what is not empty keeps a tuple.
        return max(budget, 1.0) if budget > 0 else budget

    def quotas(self, concept: GroupConcept) -> Quotas:
        """Share the budget of a window among its groups."""
        if self.relative_error is not None:
            needed = self._needed(concept, self.relative_error)
            if needed.kept <= self.budget(concept.tuples):
                return needed
        return allocate(concept, self.budget(concept.tuples), rule=self.rule, wins=self.wins)

    @staticmethod
    def _needed(concept: GroupConcept, relative_error: float) -> Quotas:
        variances = concept.squares / np.maximum(concept.counts, 1)
        keeps = [
            ScalarConcept(tuples=count, mean=mean, variance=variance).keep_for(relative_error=relative_error)
            for count, mean, variance in zip(
                concept.counts.tolist(), concept.means.tolist(), variances.tolist(), strict=True
            )
        ]
        return Quotas(concept=concept, tuples=np.ceil(concept.counts * np.array(keeps) - 1e-9).astype(np.int64))

    def decide(self, load: Load) -> Plan:
        """Give rates to the large groups known so far; groups not known are small, and are kept whole if they fit."""
        if not load.overloaded:
            return Plan.keep_all(load.explain())
        keep = max(load.fitting_keep() if self.keep is None else self.keep, self.min_keep)
        if self.passes == 2:
            reason = f"{load.explain()}; groups counted in the batch itself"
            return Plan(keep=keep, reason=reason, by_group=ByGroup(rule=self.rule, wins=self.wins))
        if not load.key_tuples:
            return Plan(keep=keep, reason=f"{load.explain()}; no groups known yet, all alike")
        return self._by_group(load, load.key_tuples, keep)

    def _by_group(self, load: Load, key_tuples: Mapping[str, float], keep: float) -> Plan:
        names = list(key_tuples)
        # A group that is expected to have less than a tuple still may have one.
        sizes = np.ceil(np.fromiter(key_tuples.values(), dtype=np.float64)).astype(np.int64)
        rest = max(0.0, load.offered_tuples - float(sum(key_tuples.values())))
        budget = keep * load.offered_tuples
        rest_keep = 1.0 if rest == 0 else min(1.0, self.rest_share * budget / rest)
        appetite = np.ones(len(names)) if self.rule != "proportional" else sizes.astype(np.float64)
        quotas = share_out(
            sizes,
            appetite,
            max(0.0, budget - rest * rest_keep),
            wins="coverage",
            prices=np.ones(len(names)),
            first=sizes,
        )
        if rest_keep < 1.0:
            # What the known groups left over goes to the others.
            rest_keep = min(1.0, (budget - float(quotas.sum())) / rest) if budget > quotas.sum() else rest_keep
        rates = np.maximum(quotas / np.maximum(sizes, 1), self.min_keep)
        rest_keep = max(rest_keep, self.min_keep)
        # Groups whose rate is the common one need no place in the table.
        key_keep = {name: float(rate) for name, rate in zip(names, rates, strict=True) if abs(rate - rest_keep) > 1e-12}
        return Plan(
            keep=rest_keep,
            key_keep=key_keep,
            reason=f"{load.explain()}; rates for {len(key_keep):,} of {len(names):,} groups known, the others "
            + ("whole" if rest_keep == 1 else f"{rest_keep:.3f}"),
        )


def require_batch_settings(policy: ConceptDriven, *, value: str | None) -> None:
    """Refuse for micro-batches what only windows can do, before it would silently do something else."""
    if policy.max_tuples is not None or policy.relative_error is not None:
        raise InvalidInputError(
            "max_tuples and relative_error are for windows (shed_windows); a micro-batch keeps what fits, or the share "
            "in ConceptDriven(keep=...)"
        )
    if policy.rule == "neyman" and policy.passes == 1:
        raise InvalidInputError(
            "rule='neyman' needs to know how the values of each group spread, which is not remembered from earlier "
            "batches; count it in the batch itself with passes=2, or use shed_windows"
        )
    if policy.rule == "neyman" and value is None:
        raise InvalidInputError("rule='neyman' needs the column whose spread it goes by; give shed(value=...)")
