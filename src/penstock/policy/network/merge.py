"""Put plans together: of parts that share nothing, and of ways to shed the same part.

Where shedding ever more of a part costs ever more utility per second saved, the rows of all parts are simply taken in
the order of what they cost. Joins break that: a join is the product of its inputs, so the more of it is gone, the less
the next step costs, and it is better to shed one query whole than two by half. Such a part has a *dent*: plans that
lose more than the straight line between two others. Two parts of which one has a dent are put together by looking at
all pairs of their plans; the plans of the result need then not contain each other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np
import numpy.typing as npt
from numba import njit

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

# Plans that are kept of all that were looked at differ by such a part of the savings, or of the utility lost.
STEPS = 1_000
# In a network of so many plans the dent of one part does not show, and counts as if it were filled.
MANY = 5_000


@dataclass(frozen=True, slots=True)
class Part:
    """Plans in the order of what they save; row 0 drops nothing.

    Attributes
    ----------
    savings, lost
        Work saved and utility lost, by row.
    changes
        (row, place, target) in the order of rows: what a row does otherwise than the one before.
    """

    savings: Floats
    lost: Floats
    changes: Floats

    @staticmethod
    def of(rows: Floats, changes: Floats) -> Part:
        """Take what the kernel built: rows without the first one, and changes that number them from 0."""
        return Part(
            np.concatenate([[0.0], rows[:, 0]]), np.concatenate([[0.0], rows[:, 1]]), changes + np.array([1.0, 0, 0])
        )

    @staticmethod
    def with_targets(savings: Floats, lost: Floats, targets: Mapping[float, Floats]) -> Part:
        """Take plans by the targets of their places, by row."""
        made = [np.empty((0, 3))]
        for place, target in targets.items():
            (rows,) = np.nonzero(np.diff(target, prepend=1.0))
            made.append(np.column_stack([rows, np.full(len(rows), place), target[rows]]))
        changes = np.concatenate(made)
        return Part(savings, lost, changes[np.argsort(changes[:, 0], kind="stable")])

    def __len__(self) -> int:
        return len(self.savings)

    def targets(self, rows: Ints) -> dict[float, Floats]:
        """Target of every place that has a drop in some row, in each of these rows."""
        found = {}
        by_place = self.changes[np.argsort(self.changes[:, 1], kind="stable")]
        places, first = np.unique(by_place[:, 1], return_index=True)
        for place, changes in zip(places.tolist(), np.split(by_place, first[1:]), strict=True):
            last = np.searchsorted(changes[:, 0], rows, side="right")
            found[place] = np.concatenate([[1.0], changes[:, 2]])[last]
        return found


def merged(parts: Sequence[Part]) -> Part:
    """Put parts that share nothing together."""
    if not parts:
        return Part(np.zeros(1), np.zeros(1), np.empty((0, 3)))
    costs: list[Floats] = [hull_slopes(part.savings, part.lost) for part in parts]
    slight = 1e-9 * sum(float(part.lost[-1]) for part in parts)
    many = sum(map(len, parts)) > MANY
    plain = [n for n, part in enumerate(parts) if many or _dent(part, costs[n]) <= slight]
    together = [by_cost([parts[n] for n in plain], [costs[n] for n in plain])] if plain else []
    together += [part for n, part in enumerate(parts) if n not in plain]
    return reduce(_best_pairs, together)


def by_cost(parts: Sequence[Part], costs: Sequence[Floats]) -> Part:
    """Take the rows of all parts by their costs, utility lost per work saved, which never fall within a part."""
    order = np.argsort(np.concatenate(costs), kind="stable")
    saved = np.concatenate([np.diff(part.savings) for part in parts])[order]
    lost = np.concatenate([np.diff(part.lost) for part in parts])[order]
    first = np.cumsum([0, *(len(part) - 1 for part in parts[:-1])])
    new_row = np.empty(len(order), dtype=np.int64)
    new_row[order] = np.arange(1, len(order) + 1)
    shifted = [part.changes + np.array([start - 1, 0, 0]) for part, start in zip(parts, first, strict=True)]
    moved = np.concatenate(shifted)
    moved[:, 0] = new_row[moved[:, 0].astype(np.int64)]
    moved = moved[np.argsort(moved[:, 0], kind="stable")]
    return Part(np.cumsum([0.0, *saved]), np.cumsum([0.0, *lost]), moved)


def best_of(ways: Sequence[Part]) -> Part:
    """Choose for every amount of work among ways to shed the same part."""
    if len(ways) == 1:
        return ways[0]
    saved, lost = np.concatenate([way.savings for way in ways]), np.concatenate([way.lost for way in ways])
    number = np.repeat(np.arange(len(ways)), [len(way) for way in ways])
    row = np.concatenate([np.arange(len(way)) for way in ways])
    best = _unbeaten(saved, lost)
    number, row = number[best], row[best]
    target: dict[float, Floats] = {}
    for which, way in enumerate(ways):
        for place, found in way.targets(row).items():
            target[place] = np.where(number == which, found, target.get(place, np.ones(len(best))))
    return Part.with_targets(saved[best], lost[best], target)


def _best_pairs(one: Part, other: Part) -> Part:
    saved = np.add.outer(one.savings, other.savings).ravel()
    lost = np.add.outer(one.lost, other.lost).ravel()
    best = _unbeaten(saved, lost)
    rows = np.unravel_index(best, (len(one), len(other)))
    return Part.with_targets(saved[best], lost[best], one.targets(rows[0]) | other.targets(rows[1]))


def _unbeaten(saved: Floats, lost: Floats) -> Ints:
    """Find plans that no other beats, from none to all, and leave out those that hardly differ from one before."""
    order = np.lexsort((lost, -saved))  # from the most saved down
    least = np.minimum.accumulate(np.r_[np.inf, lost[order]])
    best = order[lost[order] < least[:-1]][::-1]
    passed = np.floor(STEPS * saved[best] / saved.max()) + np.floor(STEPS * lost[best] / (lost.max() or 1.0))
    kept = np.diff(passed, prepend=-1.0) > 0
    kept[-1] = True  # whatever the others lose, the last plan drops all
    found: Ints = best[kept]
    return found if saved[found[0]] == 0 else np.insert(found, 0, np.argmin(saved))


def _dent(part: Part, slopes: Floats) -> float:
    """How far plans lie above the straight line between two others, in utility."""
    return float(np.max(part.lost - np.cumsum([0.0, *(slopes * np.diff(part.savings))])))


@njit(cache=True)
def hull_slopes(saved: Any, lost: Any) -> Any:
    """Utility lost per work saved from row to row, of the lower convex hull: it never falls."""
    corner, corners = np.zeros(len(saved), dtype=np.int64), 1
    for row in range(1, len(saved)):
        while corners > 1:
            one, two = corner[corners - 2], corner[corners - 1]
            before = (lost[two] - lost[one]) * (saved[row] - saved[two])
            if before <= (lost[row] - lost[two]) * (saved[two] - saved[one]):
                break
            corners -= 1
        corner[corners] = row
        corners += 1
    slopes, steepest = np.empty(len(saved) - 1), 0.0
    for n in range(1, corners):
        one, two = corner[n - 1], corner[n]
        # Rounding must not turn the order of rows round.
        steepest = max(steepest, (lost[two] - lost[one]) / (saved[two] - saved[one]))
        slopes[one:two] = steepest
    return slopes
