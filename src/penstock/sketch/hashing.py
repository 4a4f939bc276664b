"""One family of 2-universal hash functions: the same columns in numba, in NumPy, in Python and on every executor.

A key becomes an *item*, 64 bits that Spark computes too (``xxhash64`` over the columns as text). A row of a sketch
then hashes the item to a column by multiply-shift on its two halves, which needs nothing but wrapping 64-bit
arithmetic. [LAS20] section 3.2 asks for Carter and Wegman's 2-universality; pair-multiply-shift (Dietzfelbinger;
Thorup 2015, "High speed hashing for integers and strings", section 3) has it, and needs no modulus by a prime.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import xxhash
from numpy.typing import NDArray

from penstock.model.errors import InvalidInputError, require_positive
from penstock.sketch.jit import compiled

Items = NDArray[np.uint64]

SPARK_SEED = 42  # the seed of Spark's xxhash64
WORD = (1 << 64) - 1
# The item of a key that is missing: no text hashes to it on purpose, and it is the same everywhere.
NULL_ITEM = 0x9E3779B97F4A7C15

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_FIRST = np.uint64(0xBF58476D1CE4E5B9)
_SECOND = np.uint64(0x94D049BB133111EB)
_HALF = np.uint64(32)
_LOW = np.uint64(0xFFFFFFFF)


@compiled
def mix(number: np.uint64) -> np.uint64:
    """Scatter 64 bits (the finisher of splitmix64)."""
    mixed = np.uint64(number) + _GOLDEN
    mixed = (mixed ^ (mixed >> np.uint64(30))) * _FIRST
    mixed = (mixed ^ (mixed >> np.uint64(27))) * _SECOND
    return np.uint64(mixed ^ (mixed >> np.uint64(31)))


@compiled
def chance(seed: np.uint64, number: np.uint64) -> float:
    """Draw a number in [0, 1) for a place in a sequence; the same place draws the same number."""
    return float(mix(mix(seed) ^ number) >> np.uint64(11)) * 2.0**-53


@compiled
def column_of(item: np.uint64, coefficients: NDArray[np.uint64], row: int, columns: np.uint64) -> int:
    """Hash an item to a column of a row."""
    low = item & _LOW
    high = item >> _HALF
    hashed = (coefficients[row, 0] + low) * (coefficients[row, 1] + high) + coefficients[row, 2]
    # The upper half is spread over the columns by a multiplication: no division.
    return int(((hashed >> _HALF) * columns) >> _HALF)


@dataclass(frozen=True, slots=True)
class HashFamily:
    """As many hash functions as a sketch has rows, fixed by a seed.

    Examples
    --------
    >>> family = HashFamily(rows=4, columns=55, seed=7)
    >>> family.columns_of(np.array([item_of("de", "mobile")], dtype=np.uint64)).shape
    (4, 1)
    """

    rows: int
    columns: int
    seed: int = 0
    coefficients: NDArray[np.uint64] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        require_positive("rows", self.rows, meaning="the number of hash functions")
        require_positive("columns", self.columns, meaning="the range of a hash function")
        if self.columns >= 1 << 31:
            raise InvalidInputError(f"columns must be below 2**31, got {self.columns}; hashes have 32 bits")
        drawn = [_scattered(self.seed * 1_000_003 + number) for number in range(3 * self.rows)]
        object.__setattr__(self, "coefficients", np.array(drawn, dtype=np.uint64).reshape(self.rows, 3))

    def columns_of(self, items: Items) -> NDArray[np.int64]:
        """Hash items in NumPy; one line per row of the sketch."""
        low, high = items & _LOW, items >> _HALF
        first, second, third = (self.coefficients[:, number, None] for number in range(3))
        hashed = (first + low) * (second + high) + third
        return (((hashed >> _HALF) * np.uint64(self.columns)) >> _HALF).astype(np.int64)


def item_of(*parts: str | None) -> int:
    """Turn a key into its item, as Spark's ``xxhash64`` does with the columns cast to text.

    A key with a missing part is one item of its own.

    >>> item_of("de", "mobile") == item_of("de", "desktop"), item_of(None) == NULL_ITEM
    (False, True)
    """
    value = SPARK_SEED
    for part in parts:
        if part is None:
            return NULL_ITEM
        value = xxhash.xxh64_intdigest(part.encode(), seed=value)
    return value


def items_of(numbers: NDArray[np.int64]) -> Items:
    """Scatter whole numbers to items, for streams whose keys are numbers and that Spark never sees."""
    mixed = numbers.astype(np.uint64) + _GOLDEN
    mixed = (mixed ^ (mixed >> np.uint64(30))) * _FIRST
    mixed = (mixed ^ (mixed >> np.uint64(27))) * _SECOND
    return mixed ^ (mixed >> np.uint64(31))


def _scattered(number: int) -> int:
    """Mix in plain Python: coefficients come out the same without numba and without NumPy's rules."""
    mixed = (number + int(_GOLDEN)) & WORD
    mixed = (mixed ^ (mixed >> 30)) * int(_FIRST) & WORD
    mixed = (mixed ^ (mixed >> 27)) * int(_SECOND) & WORD
    return mixed ^ (mixed >> 31)
