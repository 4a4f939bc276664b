"""Bring what an operator returned into the columns that it promised, and say what does not fit."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from penstock.model.errors import OperatorError


def rows_to_batch(rows: list[dict[str, Any]], weights: list[float], schema: pa.Schema, weight: str) -> pa.RecordBatch:
    """Lay out what a row-wise operator returned."""
    try:
        missing = next((set(schema.names) - set(row) for row in rows if not set(schema.names) <= set(row)), None)
        if missing:
            raise OperatorError(f"the operator returned a row without {', '.join(sorted(missing))}; returns= names it")
        arrays = [pa.array([row[field.name] for row in rows], type=field.type) for field in schema]
    except (pa.ArrowException, TypeError, ValueError, KeyError, OverflowError) as cause:
        raise OperatorError(
            f"the operator returned what does not fit returns= ({cause}); return a dict with the named columns, "
            "or None for no row"
        ) from cause
    return pa.RecordBatch.from_arrays([*arrays, pa.array(weights)], names=[*schema.names, weight])


def conform(result: Any, part: pa.RecordBatch, schema: pa.Schema, weight: str) -> list[pa.RecordBatch]:
    """Bring what a batch-wise operator returned into the promised columns."""
    try:
        table = pa.Table.from_batches([result]) if isinstance(result, pa.RecordBatch) else result
        if weight not in table.column_names:
            if table.num_rows != part.num_rows:
                raise OperatorError(
                    f"the operator returned {table.num_rows} rows for {part.num_rows} and no column {weight!r}; "
                    "rows can only be weighed if there are as many, in the same order, or with their weight"
                )
            table = table.append_column(weight, part.column(weight))
        wanted = pa.schema([*schema, pa.field(weight, pa.float64())])
        found: list[pa.RecordBatch] = table.select(wanted.names).cast(wanted).combine_chunks().to_batches()
    except (pa.ArrowException, AttributeError, KeyError, TypeError) as cause:
        raise OperatorError(
            f"the operator returned what does not fit returns= ({cause}); return a pyarrow Table or RecordBatch "
            "with the named columns"
        ) from cause
    return found
