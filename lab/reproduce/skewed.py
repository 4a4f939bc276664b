"""Skewed values of real streams, or made-up ones of the same shape where those are not at hand."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import numpy.typing as npt

Values = npt.NDArray[np.float64]
# The folder with the data sets that `shared/data/README.md` describes.
FOLDER_VARIABLE = "PENSTOCK_DATA"
DEFAULT_FOLDER = "../shared/data"


def data_file(name: str) -> Path | None:
    """Find a data set in the folder that PENSTOCK_DATA names, or beside the project; None if it is not there."""
    path = Path(os.environ.get(FOLDER_VARIABLE, DEFAULT_FOLDER)) / f"{name}.parquet"
    return path if path.is_file() else None


def column_values(name: str, column: str, *, seed: int) -> tuple[Values, str]:
    """Read a column in the order of its stream, and say where the values come from."""
    path = data_file(name)
    if path is None:
        return _made_up(column, seed), f"made up in the shape of {name}.{column}: the data set is not here"
    import pyarrow.parquet as pq

    values = pq.read_table(path, columns=[column])[column].to_numpy(zero_copy_only=False).astype(float)
    return values[np.isfinite(values)], f"{name}.{column}"


def _made_up(column: str, seed: int) -> Values:
    random = np.random.default_rng(seed)
    if column == "cpu_request":
        # Jobs of many tasks that all ask for the same share of a machine.
        tasks = random.geometric(1 / 30, size=20_000)
        asked = random.choice([0.0125, 0.025, 0.0625, 0.125, 0.5], p=[0.45, 0.35, 0.15, 0.045, 0.005], size=20_000)
        return np.repeat(asked, tasks)[:400_000]
    if column == "passenger_count":
        return random.choice([1.0, 2.0, 3.0, 4.0, 5.0, 6.0], p=[0.85, 0.08, 0.02, 0.01, 0.02, 0.02], size=400_000)
    return np.round(3 + random.lognormal(2.3, 0.75, size=400_000), 1)
