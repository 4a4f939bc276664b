"""Shed a window by stratum in one scan: just so many tuples of each group, whatever their order.

Of each group those tuples survive whose hash is smallest. So the same tuples survive on every replay, even where a
shuffle delivers them in another order, and each group keeps exactly its quota: none goes missing by bad luck, as it
would with an independent draw per tuple.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from penstock.policy.strata.allocation import Quotas
from penstock.policy.strata.groups import Ints

HASH_BITS = 53
WHOLE = 1 << HASH_BITS

Codes = npt.NDArray[np.integer]


def limits_of(quotas: Quotas) -> Ints:
    """For each group a bound on the hash below which its quota very likely lies.

    Among ``size`` uniform hashes, those below ``p`` are binomial. With so much to spare, the bound is too tight for
    less than one group in a hundred, and :func:`select` then looks at all tuples of that group.
    """
    sizes = np.maximum(quotas.concept.counts, 1)
    ample = quotas.tuples + 2.5 * np.sqrt(quotas.tuples) + 2.0
    limits = np.minimum(ample / sizes, 1.0) * WHOLE
    limits[quotas.tuples >= quotas.concept.counts] = WHOLE
    limits[quotas.tuples == 0] = 0
    return limits.astype(np.int64)


def select(quotas: Quotas, blocks: Sequence[tuple[Codes, Ints]]) -> list[Ints]:
    """Pick the survivors of a window that is stored in blocks.

    Parameters
    ----------
    quotas
        How many tuples of each group survive.
    blocks
        For each block the group of every tuple (its place in the concept) and its hash in [0, 2**53).

    Returns
    -------
    list
        For each block the positions of its survivors, ascending.

    Examples
    --------
    >>> import numpy as np
    >>> from penstock.policy.strata.allocation import allocate
    >>> from penstock.policy.strata.groups import GroupConcept
    >>> codes = np.array([0, 0, 0, 1, 0])
    >>> quotas = allocate(GroupConcept.of_codes(np.array([10, 20]), codes), 3)
    >>> select(quotas, [(codes, np.array([9, 4, 7, 1, 8]))])[0].tolist()
    [1, 2, 3]
    """
    limits = limits_of(quotas)
    found = [np.flatnonzero(hashes < limits[codes]) for codes, hashes in blocks]
    codes = _codes(blocks, found)
    present = np.bincount(codes, minlength=quotas.concept.groups)
    short = present < quotas.tuples
    if short.any():
        found = [_with_all_of(short, codes, rows) for rows, (codes, _) in zip(found, blocks, strict=True)]
        codes = _codes(blocks, found)
        present = np.bincount(codes, minlength=quotas.concept.groups)
    return _trim(quotas, blocks, found, codes, present)


def _with_all_of(short: npt.NDArray[np.bool_], codes: Codes, rows: Ints) -> Ints:
    """Add to the rows found in a block all rows of some groups."""
    return np.sort(np.concatenate([rows[~short[codes[rows]]], np.flatnonzero(short[codes])]))


def _codes(blocks: Sequence[tuple[Codes, Ints]], found: list[Ints]) -> Codes:
    parts = [codes[rows] for (codes, _), rows in zip(blocks, found, strict=True)]
    return np.concatenate(parts) if parts else np.empty(0, dtype=np.int64)


def _trim(
    quotas: Quotas, blocks: Sequence[tuple[Codes, Ints]], found: list[Ints], codes: Codes, present: Ints
) -> list[Ints]:
    """Keep, of the tuples found, the quota of each group with the smallest hashes."""
    crowded = (present > quotas.tuples)[codes]
    if not crowded.any():
        return found
    hashes = np.concatenate([block[1][rows] for block, rows in zip(blocks, found, strict=True)])
    places = np.flatnonzero(crowded)
    order = places[_by_group_and_hash(codes[places], hashes[places], quotas.concept.groups)]
    ordered = codes[order]
    starts = np.concatenate([[0], np.flatnonzero(np.diff(ordered)) + 1])
    rank = np.arange(len(order)) - np.repeat(starts, np.diff([*starts.tolist(), len(order)]))
    kept = ~crowded
    kept[order[rank < quotas.tuples[ordered]]] = True
    edges = np.cumsum([0, *(len(rows) for rows in found)])
    return [rows[kept[low:high]] for rows, low, high in zip(found, edges[:-1], edges[1:], strict=True)]


def _by_group_and_hash(codes: Codes, hashes: Ints, groups: int) -> npt.NDArray[np.intp]:
    """Order tuples by group, then by hash: both in one integer, which sorts several times faster than two.

    The integer has room for all 53 bits of the hash with up to 1,024 groups, and for 43 with a million.
    """
    bits = max(groups - 1, 1).bit_length()
    dropped = max(0, HASH_BITS + bits - 63)
    return np.argsort((codes.astype(np.int64) << (HASH_BITS - dropped)) | (hashes >> dropped))


def spread(numbers: Ints, *, seed: int) -> Ints:
    """Hash row numbers to [0, 2**53): a fixed integer mix (splitmix64), for streams whose rows have no hash yet.

    >>> spread(np.array([0, 1, 2]), seed=1).tolist() == spread(np.array([0, 1, 2]), seed=1).tolist()
    True
    """
    mixed = (numbers.astype(np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    mixed += np.uint64((seed * 0xD1342543DE82EF95) % 2**64)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return ((mixed ^ (mixed >> np.uint64(31))) >> np.uint64(64 - HASH_BITS)).astype(np.int64)


def batch_thresholds(quotas: Quotas, least_hashes: Ints) -> Ints:
    """Thresholds by group for a filter that looks at one tuple at a time, where the groups of the batch are known.

    A tuple survives if its hash lies below its group's threshold, so a group keeps its quota on average only. The
    threshold is raised to just above the group's least hash where that is larger: a group with a quota always keeps a
    tuple. That happens to one in ``exp(quota)`` groups, and its weight, the inverse of the threshold, is then that much
    smaller.

    >>> import numpy as np
    >>> from penstock.policy.strata.allocation import allocate
    >>> from penstock.policy.strata.groups import GroupConcept
    >>> quotas = allocate(GroupConcept.of(np.repeat([1, 2], [100, 10])), 20)
    >>> (batch_thresholds(quotas, np.array([WHOLE // 2, 7])) / WHOLE).round(3).tolist()
    [0.5, 1.0]
    """
    rates = np.divide(
        quotas.tuples, quotas.concept.counts, out=np.ones(quotas.concept.groups), where=quotas.concept.counts > 0
    )
    thresholds = np.round(rates * WHOLE).astype(np.int64)
    return np.where(quotas.tuples > 0, np.maximum(thresholds, least_hashes + 1), 0)
