"""Call the function of an operator, row by row or on slices, time it, and bring its results into shape."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.model.errors import OperatorError
from penstock.spark.work.results import conform, rows_to_batch

FAIL, SKIP = "fail", "skip"


@dataclass(frozen=True, slots=True, kw_only=True)
class Calling:
    """How the function of an operator is called; travels to the executors by pickle."""

    function: Callable[[Any], Any]
    schema: pa.Schema
    weight: str
    batchwise: bool
    chunk_tuples: int
    on_error: str


@dataclass(slots=True)
class Calls:
    """The calls of one task, and how many tuples failed or had no result."""

    how: Calling
    failed: int = field(default=0, init=False)
    silent: int = field(default=0, init=False)

    def run(
        self, rows: pa.RecordBatch, weights: np.ndarray, costs: np.ndarray
    ) -> tuple[list[pa.RecordBatch], np.ndarray]:
        """Call the operator on rows; return its results and what each row took, in seconds.

        Weights multiply with those that the rows bring along.
        """
        if self.how.weight in rows.schema.names:
            weights = weights * rows.column(self.how.weight).cast(pa.float64()).to_numpy(zero_copy_only=False)
        return self._batchwise(rows, weights, costs) if self.how.batchwise else self._row_by_row(rows, weights)

    def _row_by_row(self, rows: pa.RecordBatch, weights: np.ndarray) -> tuple[list[pa.RecordBatch], np.ndarray]:
        """Call the operator row by row, and time each call."""
        function, clock = self.how.function, time.perf_counter_ns
        results: list[dict[str, Any]] = []
        result_weights: list[float] = []
        nanos = np.empty(rows.num_rows)
        for index, row in enumerate(rows.to_pylist()):
            started = clock()
            try:
                result = function(row)
            except Exception as cause:
                nanos[index] = clock() - started
                self._failed_on(cause, 1)
                continue
            nanos[index] = clock() - started
            if result is None:
                self.silent += 1
                continue
            results.append(result)
            result_weights.append(weights[index])
        if not results:
            return [], nanos / 1e9
        return [rows_to_batch(results, result_weights, self.how.schema, self.how.weight)], nanos / 1e9

    def _batchwise(
        self, rows: pa.RecordBatch, weights: np.ndarray, costs: np.ndarray
    ) -> tuple[list[pa.RecordBatch], np.ndarray]:
        """Call the operator on slices; what a slice took is shared out by what its tuples were expected to cost.

        Only sums are seen, but every slice mixes other tuples: over some batches the shares approach the costs.
        """
        results: list[pa.RecordBatch] = []
        seconds = np.empty(rows.num_rows)
        for first in range(0, rows.num_rows, self.how.chunk_tuples):
            part = rows.slice(first, self.how.chunk_tuples)
            own = slice(first, first + part.num_rows)
            if self.how.weight in part.schema.names:
                part = part.drop_columns([self.how.weight])
            part = part.append_column(self.how.weight, pa.array(weights[own]))
            started = time.perf_counter()
            try:
                result = self.how.function(part)
            except Exception as cause:
                result = None
                self._failed_on(cause, part.num_rows)
            else:
                self.silent += part.num_rows if result is None or result.num_rows == 0 else 0
            took = time.perf_counter() - started
            expected = np.maximum(costs[own], 1e-9)
            seconds[own] = took * expected / expected.sum()
            if result is not None and result.num_rows:
                results += conform(result, part, self.how.schema, self.how.weight)
        return results, seconds

    def _failed_on(self, cause: Exception, tuples: int) -> None:
        if self.how.on_error == FAIL:
            raise OperatorError(
                f"the operator raised {type(cause).__name__}: {cause}; mend it, or have such rows counted and left out "
                "with on_error='skip'"
            ) from cause
        self.failed += tuples
