"""The pair of sketches that learns what each item costs: F counts items, W adds up their execution times."""

from __future__ import annotations

import struct
import zlib

import numpy as np
from numpy.typing import NDArray

from penstock.model.errors import InvalidInputError, PlanLogError
from penstock.sketch.count_min import Shape, require_same_shape
from penstock.sketch.hashing import Items, column_of
from penstock.sketch.jit import compiled

Cells = NDArray[np.float64]

COUNT, COST = 0, 1
_MAGIC = b"PSCP"
_HEADER = struct.Struct("<4sIIq")


@compiled
def expected_cost(pair: Cells, coefficients: NDArray[np.uint64], item: np.uint64, fallback_seconds: float) -> float:
    """Estimate what an item costs: the ratio in the row where fewest others share its cell ([LAS20] Listing 3.2).

    The row with the smallest count, not with the smallest ratio. Deviation: an item whose cell is empty was never
    executed, and W / F is 0 / 0; it gets the fallback, the mean cost.
    """
    rows = pair.shape[0]
    columns = np.uint64(pair.shape[1])
    least, cost = np.inf, 0.0
    for row in range(rows):
        column = column_of(item, coefficients, row, columns)
        count, seconds = pair[row, column, 0], pair[row, column, 1]
        # Written as choices, not as a branch: which row wins is random, and a mispredicted branch costs more than both.
        fewer = count < least
        cost = seconds if fewer else cost
        least = count if fewer else least
    return cost / least if least > 0.0 else fallback_seconds


@compiled
def add_cost(pair: Cells, coefficients: NDArray[np.uint64], item: np.uint64, seconds: float, weight: float) -> None:
    """Learn from one execution, which stands for ``weight`` tuples that were offered."""
    rows = pair.shape[0]
    columns = np.uint64(pair.shape[1])
    for row in range(rows):
        column = column_of(item, coefficients, row, columns)
        pair[row, column, 0] += weight
        pair[row, column, 1] += weight * seconds


@compiled
def expected_costs(
    pair: Cells, coefficients: NDArray[np.uint64], items: Items, fallback_seconds: float
) -> NDArray[np.float64]:
    """Estimate what each of a sequence of items costs."""
    costs = np.empty(items.size)
    for index in range(items.size):
        costs[index] = expected_cost(pair, coefficients, items[index], fallback_seconds)
    return costs


@compiled
def add_costs(
    pair: Cells,
    coefficients: NDArray[np.uint64],
    items: Items,
    seconds: NDArray[np.float64],
    weights: NDArray[np.float64],
) -> None:
    """Learn from a sequence of executions; a weight of 0 marks a tuple that was not executed."""
    for index in range(items.size):
        if weights[index] > 0.0:
            add_cost(pair, coefficients, items[index], seconds[index], weights[index])


@compiled
def mean_cost(pair: Cells, otherwise_seconds: float) -> float:
    """Mean cost over everything that was executed: each row holds all of it."""
    count, seconds = pair[0, :, 0].sum(), pair[0, :, 1].sum()
    return float(seconds / count) if count > 0.0 else otherwise_seconds


@compiled
def instability(pair: Cells, snapshot: Cells, by_traffic: bool) -> float:
    """Measure how far the estimates have moved since the snapshot, relative to it (eta in [LAS20] equation 1).

    Deviation: an empty cell counts as the mean cost, which is what it would be taken for, where the paper has 0 / 0.
    ``by_traffic`` weighs each cell by its count, so that cells that nobody asks for do not delay the first model.
    """
    fallback = mean_cost(pair, 0.0)
    moved, whole = 0.0, 0.0
    for row in range(pair.shape[0]):
        for column in range(pair.shape[1]):
            count = pair[row, column, 0]
            weight = count if by_traffic else 1.0
            cost = pair[row, column, 1] / count if count > 0.0 else fallback
            moved += weight * abs(snapshot[row, column] - cost)
            whole += weight * snapshot[row, column]
    return moved / whole if whole > 0.0 else np.inf


@compiled
def take_snapshot(pair: Cells, snapshot: Cells) -> None:
    """Write down the estimate of every cell (S in [LAS20] Listing 3.1)."""
    fallback = mean_cost(pair, 0.0)
    for row in range(pair.shape[0]):
        for column in range(pair.shape[1]):
            count = pair[row, column, 0]
            snapshot[row, column] = pair[row, column, 1] / count if count > 0.0 else fallback


class CostPair:
    """Learn the cost of items in a few kilobytes; pairs of parallel operators merge by addition.

    Examples
    --------
    >>> pair = CostPair(Shape.of(eps=0.05, delta=0.1))
    >>> items = np.array([3, 3, 5], dtype=np.uint64)
    >>> pair.update(items, np.array([0.002, 0.004, 0.010]))
    >>> pair.estimate(items).round(6).tolist(), round(pair.mean_seconds or 0, 6)
    ([0.003, 0.003, 0.01], 0.005333)
    """

    def __init__(self, shape: Shape) -> None:
        self.shape = shape
        # Count and cost of a cell lie side by side: one cache line for both.
        self.cells = np.zeros((shape.rows, shape.columns, 2))
        self.coefficients = shape.family().coefficients

    @property
    def executed(self) -> float:
        """How many executions were learned from."""
        return float(self.cells[0, :, COUNT].sum())

    @property
    def mean_seconds(self) -> float | None:
        """Mean cost of all executions; None before the first."""
        return float(self.cells[0, :, COST].sum()) / self.executed if self.executed else None

    def update(self, items: Items, seconds: NDArray[np.float64], weights: NDArray[np.float64] | None = None) -> None:
        """Learn what each execution took; with weights, as if each survivor came as often as it stands for."""
        weights = np.ones(items.size) if weights is None else weights
        if not items.size == seconds.size == weights.size:
            raise InvalidInputError(f"every item needs its time: got {items.size} items and {seconds.size} times")
        add_costs(self.cells, self.coefficients, items, np.ascontiguousarray(seconds, dtype=np.float64), weights)

    def estimate(self, items: Items, *, fallback_seconds: float | None = None) -> NDArray[np.float64]:
        """Estimate what each item costs; unseen ones cost the fallback, by default the mean."""
        fallback = self.mean_seconds if fallback_seconds is None else fallback_seconds
        return expected_costs(self.cells, self.coefficients, items, 0.0 if fallback is None else fallback)

    def counts(self, items: Items) -> NDArray[np.float64]:
        """Estimate how often each item was executed: never too low."""
        columns = self.shape.family().columns_of(items)
        return np.asarray(self.cells[np.arange(self.shape.rows)[:, None], columns, COUNT].min(axis=0))

    def merge(self, other: CostPair) -> CostPair:
        """Add up what two operators learned."""
        require_same_shape(self.shape, other.shape)
        merged = CostPair(self.shape)
        merged.cells[:] = self.cells + other.cells
        return merged

    def faded(self, keep: float) -> CostPair:
        """Let the past count less: estimates stay as they are, and new executions weigh more."""
        faded = CostPair(self.shape)
        faded.cells[:] = self.cells * keep
        return faded

    def snapshot(self) -> NDArray[np.float64]:
        """Write down the estimate of every cell."""
        snapshot = np.empty(self.cells.shape[:2])
        take_snapshot(self.cells, snapshot)
        return snapshot

    def instability(self, snapshot: NDArray[np.float64], *, by_traffic: bool = False) -> float:
        """Measure how far the estimates moved since a snapshot; infinite if that held nothing."""
        return float(instability(self.cells, snapshot, by_traffic))

    def to_bytes(self) -> bytes:
        """Write the pair down, compressed and with a checksum."""
        body = self.cells.astype("<f8").tobytes()
        head = _HEADER.pack(_MAGIC, self.shape.rows, self.shape.columns, self.shape.seed)
        return head + struct.pack("<I", zlib.crc32(body)) + zlib.compress(body, 1)

    @staticmethod
    def from_bytes(data: bytes) -> CostPair:
        """Restore what :meth:`to_bytes` gave; raise if it is not whole."""
        try:
            magic, rows, columns, seed = _HEADER.unpack_from(data)
            (checksum,) = struct.unpack_from("<I", data, _HEADER.size)
            body = zlib.decompress(data[_HEADER.size + 4 :])
            if magic != _MAGIC or zlib.crc32(body) != checksum:
                raise ValueError("the checksum is off")
            pair = CostPair(Shape(rows=rows, columns=columns, seed=seed))
            pair.cells[:] = np.frombuffer(body, dtype="<f8").reshape(pair.cells.shape)
        except (struct.error, zlib.error, ValueError) as cause:
            raise PlanLogError(
                f"these {len(data)} bytes are no cost pair ({cause}); learn the costs anew, or restore the file"
            ) from cause
        return pair
