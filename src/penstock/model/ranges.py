"""Ranges of offsets to read when reading all would take too long: the same ones on every replay."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from itertools import pairwise

from penstock.model.errors import InvalidInputError, require_fraction

CELLS = 32
# A range is found by a seek and read in bulk; shorter ones cost more than they save.
SHORTEST_CELL = 2_000


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetRange:
    """Offsets from ``start`` up to, but without, ``end``; each of them stands for ``weight`` offsets."""

    start: int
    end: int
    weight: float

    def __len__(self) -> int:
        return self.end - self.start


def sampled_ranges(start: int, end: int, *, keep: float, salt: str) -> list[OffsetRange]:
    """Choose what to read of a run of offsets: a block in each of up to 32 equal cells.

    Blocks are spread over the whole run, so every moment of it is seen. A block starts at a pseudo-random place of its
    cell and wraps around its end, so each offset is read with the same probability; its weight is the length of the
    cell against that of the block. The weights add up to the number of offsets, exactly.

    Parameters
    ----------
    start, end
        The run, ``end`` excluded.
    keep
        Share of it to read; at least one offset of each cell is.
    salt
        Names the run (whose draw it is, topic and partition); the same salt and run give the same blocks.

    Examples
    --------
    >>> ranges = sampled_ranges(1_000, 9_000, keep=0.25, salt="clicks-0")
    >>> sum(map(len, ranges)), sum(len(each) * each.weight for each in ranges)
    (2000, 8000.0)
    >>> sampled_ranges(0, 10, keep=1.0, salt="clicks-0")
    [OffsetRange(start=0, end=10, weight=1.0)]
    """
    require_fraction("keep", keep, meaning="the share of the offsets to read")
    if end < start:
        raise InvalidInputError(f"a run of offsets ends at or after its start, got {start} to {end}")
    if keep == 1 or start == end:
        return [OffsetRange(start=start, end=end, weight=1.0)] if end > start else []
    length = end - start
    cells = max(1, min(CELLS, length // SHORTEST_CELL))
    edges = [start + length * number // cells for number in range(cells + 1)]
    chosen: list[OffsetRange] = []
    for low, high in pairwise(edges):
        size = high - low
        block = max(1, round(keep * size))
        begin = low + _pick(f"{salt}:{low}:{high}", size)
        wrapped = max(0, begin + block - high)
        if wrapped:
            chosen.append(OffsetRange(start=low, end=low + wrapped, weight=size / block))
        chosen.append(OffsetRange(start=begin, end=min(begin + block, high), weight=size / block))
    return chosen


def _pick(text: str, below: int) -> int:
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big") % below
