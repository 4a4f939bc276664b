"""Shed one window that is stored in blocks: the step that Spark's window operator and the evaluation share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from penstock.model.errors import InvalidInputError
from penstock.policy.baseline import KeepAll, Uniform
from penstock.policy.contract import Policy
from penstock.policy.strata.concept import ConceptDriven
from penstock.policy.strata.groups import Floats, GroupConcept, Ints
from penstock.policy.strata.selection import WHOLE, Codes, select


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Survivors:
    """What is left of a window, and what that leaves out.

    Attributes
    ----------
    rows
        For each block the positions of its survivors; None if all of them survive.
    weights
        For each block the weight of its survivors, in the order of ``rows``.
    offered, kept
        Tuples of the window before and after.
    groups, missing_groups, missing_tuples
        Groups in the window, groups without a survivor, and the tuples of these.
    """

    rows: list[Ints] | None
    weights: list[Floats]
    offered: int
    kept: int
    groups: int
    missing_groups: int
    missing_tuples: int

    def left_out(self, number: int, size: int) -> npt.NDArray[np.bool_]:
        """Tell for each of the tuples of a block whether it was shed."""
        out = np.ones(size, dtype=bool)
        out[slice(None) if self.rows is None else self.rows[number]] = False
        return out


def require_window_policy(policy: Policy) -> None:
    """Refuse a policy that cannot shed windows, before anything starts."""
    if not isinstance(policy, (ConceptDriven, Uniform, KeepAll)):
        given: object = policy
        told = f"the class {given.__name__}" if isinstance(given, type) else repr(given)
        raise InvalidInputError(
            f"windows are shed by ConceptDriven, Uniform or KeepAll, got {told}; give policy=ConceptDriven(), or leave "
            "it out"
        )


def require_window_settings(policy: Policy, *, value: str | None) -> None:
    """Refuse also what a policy is asked for and cannot do for windows, or not without a value column."""
    require_window_policy(policy)
    if not isinstance(policy, ConceptDriven):
        return
    for name, default in (("passes", 1), ("rest_share", 0.5), ("min_keep", 0.0)):
        if (given := getattr(policy, name)) != default:
            raise InvalidInputError(
                f"{name}={given!r} is for micro-batches, and does nothing for windows, whose groups are all known; "
                "leave it out"
            )
    if value is None and (policy.relative_error is not None or policy.rule == "neyman"):
        asks = "relative_error" if policy.relative_error is not None else "rule='neyman'"
        raise InvalidInputError(
            f"{asks} goes by how the values of each group spread, and no column was named; give value=..., as in "
            "value='fare'"
        )


def require_join_settings(policy: Policy) -> None:
    """Refuse what a policy is asked for and cannot do for windows of two streams."""
    if isinstance(policy, ConceptDriven) and policy.relative_error is not None:
        raise InvalidInputError(
            "relative_error says how precise the sum of one stream is to be, and does nothing for pairs; give a join "
            "its budget: ConceptDriven(keep=0.05) or ConceptDriven(max_tuples=50_000)"
        )
    if isinstance(policy, ConceptDriven) and policy.rule != "equal":
        raise InvalidInputError(
            f"rule={policy.rule!r} says how groups of one stream share, and does nothing for pairs, which share by how "
            "many there are and, with value=..., by how their values spread; leave it out"
        )
    require_window_settings(policy, value=None)


def under_plan(policy: Policy, keep: float) -> Policy:
    """Let a policy keep no more of a window than a plan does; less, where it says so itself.

    >>> under_plan(ConceptDriven(), 0.2).keep, under_plan(Uniform(keep=0.05), 0.2).keep
    (0.2, 0.05)
    """
    if isinstance(policy, (ConceptDriven, Uniform)):
        return replace(policy, keep=keep if policy.keep is None else min(policy.keep, keep))
    return policy


def shed_window(
    policy: Policy, blocks: Sequence[tuple[Codes, Ints]], present: GroupConcept, whole: GroupConcept | None = None
) -> Survivors:
    """Decide which tuples of a window survive.

    Parameters
    ----------
    policy
        ``ConceptDriven``, ``Uniform`` or ``KeepAll``.
    blocks
        For each block the group of every tuple (its place in ``present``) and its hash in [0, 2**53).
    present
        Concept of the tuples in the blocks.
    whole
        Concept of the whole window, where the blocks are a part of it that holds some groups completely. The budget is
        shared among all groups of the window, so that every part comes to the same quotas.

    Examples
    --------
    >>> import numpy as np
    >>> from penstock.policy.strata.selection import spread
    >>> codes = np.repeat([0, 1], [990, 10])
    >>> concept = GroupConcept.of_codes(np.array([5, 8]), codes)
    >>> left = shed_window(ConceptDriven(keep=0.04), [(codes, spread(np.arange(1000), seed=1))], concept)
    >>> left.kept, left.missing_groups, sorted(set(left.weights[0].tolist()))
    (40, 0, [1.0, 33.0])
    """
    require_window_policy(policy)
    sizes = [len(codes) for codes, _ in blocks]
    if isinstance(policy, ConceptDriven):
        quotas = policy.quotas(present if whole is None else whole)
        if whole is not None:
            quotas = quotas.of(present)
        rows = select(quotas, blocks)
        by_group = quotas.weights
        weights = [by_group[codes[kept]] for (codes, _), kept in zip(blocks, rows, strict=True)]
    elif isinstance(policy, Uniform) and policy.keep is not None and policy.keep < 1:
        threshold = round(max(policy.keep, policy.min_keep) * WHOLE)
        rows = [np.flatnonzero(hashes < threshold) for _, hashes in blocks]
        weights = [np.full(len(kept), WHOLE / max(threshold, 1)) for kept in rows]
    else:
        return Survivors(
            rows=None,
            weights=[np.ones(size) for size in sizes],
            offered=sum(sizes),
            kept=sum(sizes),
            groups=present.groups,
            missing_groups=0,
            missing_tuples=0,
        )
    left = np.zeros(present.groups, dtype=bool)
    for (codes, _), kept in zip(blocks, rows, strict=True):
        left[codes[kept]] = True
    return Survivors(
        rows=rows,
        weights=weights,
        offered=sum(sizes),
        kept=sum(len(kept) for kept in rows),
        groups=present.groups,
        missing_groups=int((~left).sum()),
        missing_tuples=int(present.counts[~left].sum()),
    )
