"""What happens to one window in one bucket when the watermark has passed it: shed, apply the function, account."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import pandas as pd

from penstock.model.errors import InvalidInputError
from penstock.policy.contract import Policy
from penstock.policy.strata.allocation import Quotas
from penstock.policy.strata.concept import ConceptDriven
from penstock.policy.strata.groups import GroupConcept, Ints
from penstock.policy.strata.join import allocate_join
from penstock.policy.strata.selection import select
from penstock.policy.strata.windows import Survivors, shed_window
from penstock.spark.windows.blocks import Cut, Stored, gather


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """What became of the tuples of a window, within one bucket; ``offered = kept + shed``, each counted on its own."""

    offered: int
    kept: int
    shed: int
    groups: int
    missing_groups: int
    missing_tuples: int

    def __post_init__(self) -> None:
        if self.offered != self.kept + self.shed:
            raise InvalidInputError(
                f"a window does not balance: offered {self.offered} != kept {self.kept} + shed {self.shed}"
            )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Part:
    """One side of a window in one bucket: its blocks, and the concept of the whole window on that side."""

    blocks: Sequence[Stored]
    whole: GroupConcept

    def present(self, cut: Cut, bucket: int) -> GroupConcept:
        """The concept of the groups that live in this bucket."""
        if cut.buckets == 1:
            return self.whole
        here = cut.bucket_of(self.whole.keys) == bucket
        return GroupConcept(
            keys=self.whole.keys[here],
            counts=self.whole.counts[here],
            means=self.whole.means[here],
            squares=self.whole.squares[here],
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Answered:
    """What the function returned, None where nothing was left to apply it to; the account; the survivors by side."""

    rows: pd.DataFrame | None
    account: Account
    left: Sequence[Survivors]


class Work(Protocol):
    """Answers a window from its parts, one per side."""

    def answer(self, parts: Sequence[Part], cut: Cut, bucket: int, *, policy: Policy) -> Answered:
        """Shed the window as the plan of the batch says, and apply the function."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class OneStream:
    """A function of the rows of a window."""

    function: Callable[[pd.DataFrame], pd.DataFrame]
    columns: tuple[str, ...]
    weight: str

    def answer(self, parts: Sequence[Part], cut: Cut, bucket: int, *, policy: Policy) -> Answered:
        """Shed by stratum in one scan, and hand the survivors with their weights to the function."""
        (part,) = parts
        present = part.present(cut, bucket)
        coded = [block.coded(present) for block in part.blocks]
        left = shed_window(policy, coded, present, part.whole)
        account = _account([part], [left])
        if not left.kept:
            return Answered(rows=None, account=account, left=(left,))
        rows = weighted(part.blocks, left, self.weight)
        return Answered(rows=checked(self.function(rows), self.columns), account=account, left=(left,))


@dataclass(frozen=True, slots=True, kw_only=True)
class TwoStreams:
    """A function of the rows of two streams in the same window, shed by what they have in common."""

    function: Callable[[pd.DataFrame, pd.DataFrame], pd.DataFrame]
    columns: tuple[str, ...]
    weight: str

    def answer(self, parts: Sequence[Part], cut: Cut, bucket: int, *, policy: Policy) -> Answered:
        """Shed both sides, keys that only one side has wholly, and hand both to the function."""
        both = self._shed(policy, parts, cut, bucket)
        frames = [weighted(part.blocks, left, self.weight) for part, left in zip(parts, both, strict=True)]
        account = _account(parts, both)
        if frames[0].empty or frames[1].empty:
            return Answered(rows=None, account=account, left=both)
        return Answered(rows=checked(self.function(*frames), self.columns), account=account, left=both)

    @staticmethod
    def _shed(policy: Policy, parts: Sequence[Part], cut: Cut, bucket: int) -> tuple[Survivors, Survivors]:
        if not isinstance(policy, ConceptDriven):
            shed = [
                shed_window(
                    policy,
                    [block.coded(part.present(cut, bucket)) for block in part.blocks],
                    part.present(cut, bucket),
                )
                for part in parts
            ]
            return shed[0], shed[1]
        one, other = parts[0].whole, parts[1].whole
        quotas = allocate_join(one, other, policy.budget(one.tuples + other.tuples), wins=policy.wins)
        matched = np.intersect1d(one.keys, other.keys, assume_unique=True)
        return (
            _shed_side(parts[0], quotas.left.of(parts[0].present(cut, bucket)), matched),
            _shed_side(parts[1], quotas.right.of(parts[1].present(cut, bucket)), matched),
        )


def _shed_side(part: Part, quotas: Quotas, matched: Ints) -> Survivors:
    coded = [block.coded(quotas.concept) for block in part.blocks]
    rows = select(quotas, coded)
    common = np.isin(quotas.concept.keys, matched, assume_unique=True)
    missing = common & (quotas.tuples == 0)
    by_group = quotas.weights
    return Survivors(
        rows=rows,
        weights=[by_group[codes[kept]] for (codes, _), kept in zip(coded, rows, strict=True)],
        offered=sum(len(codes) for codes, _ in coded),
        kept=sum(len(kept) for kept in rows),
        groups=int(common.sum()),
        missing_groups=int(missing.sum()),
        missing_tuples=int(quotas.concept.counts[missing].sum()),
    )


def weighted(blocks: Sequence[Stored], left: Survivors, weight: str) -> pd.DataFrame:
    """Rows of the survivors, with the weight of each in a column of its own."""
    if not blocks:
        return pd.DataFrame()
    rows = gather(blocks, left.rows)
    own = np.concatenate(left.weights)
    # Rows that were weighed before, by a shedder upstream, keep that weight too.
    rows[weight] = rows[weight] * own if weight in rows.columns else own
    return rows


def checked(answered: object, columns: tuple[str, ...]) -> pd.DataFrame:
    """Hold what the function returned to its schema."""
    if not isinstance(answered, pd.DataFrame) or set(answered.columns) != set(columns):
        found = list(answered.columns) if isinstance(answered, pd.DataFrame) else type(answered).__name__
        raise InvalidInputError(
            f"the window function must return a DataFrame with the columns {', '.join(columns)}, got {found}; "
            "change the function, or the schema it was given with"
        )
    return answered[list(columns)]


def _account(parts: Sequence[Part], left: Sequence[Survivors]) -> Account:
    """Add the sides up; groups are those that the sides have in common, so those of the first."""
    shed = [
        int(np.count_nonzero(its_left.left_out(number, len(block.rows))))
        for part, its_left in zip(parts, left, strict=True)
        for number, block in enumerate(part.blocks)
    ]
    return Account(
        offered=sum(side.offered for side in left),
        kept=sum(side.kept for side in left),
        shed=sum(shed),
        groups=left[0].groups,
        missing_groups=left[0].missing_groups,
        missing_tuples=sum(side.missing_tuples for side in left),
    )
