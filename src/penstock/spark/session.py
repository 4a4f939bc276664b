"""A local Spark session tuned for short micro-batches."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from penstock.model.errors import InvalidInputError, require_kind, require_whole
from penstock.spark.java import require_java

_CHECKPOINTS = "org.apache.spark.sql.execution.streaming.checkpointing"
_STATE = "org.apache.spark.sql.execution.streaming.state"

# Each line shortens a micro-batch; all are Spark's own settings and any of them can be overridden.
SHORT_BATCHES = {
    "spark.sql.streaming.stateStore.providerClass": f"{_STATE}.RocksDBStateStoreProvider",
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    "spark.sql.streaming.checkpointFileManagerClass": f"{_CHECKPOINTS}.FileSystemBasedCheckpointFileManager",
    "spark.python.unix.domain.socket.enabled": "true",
    # Spark writes out the plan of every batch for its web page, with all details by default.
    "spark.sql.ui.explainMode": "simple",
    # A task whose state was on an executor that is lost waits that long for it before another one takes it up: with
    # Spark's 3 s the batch after a loss breaks a target of 5 s by waiting alone.
    "spark.locality.wait": "500ms",
}


def local_session(
    *, cores: int = 2, settings: Mapping[str, str] | None = None, log_path: Path | None = None
) -> SparkSession:
    """Start Spark on this machine, after making sure that Java is there.

    Parameters
    ----------
    cores
        Threads that run tasks; also the number of shuffle partitions.
    settings
        Further Spark settings; they win over the ones set here.
    log_path
        File for what Spark and its workers would print on standard error; None leaves it there.

    Examples
    --------
    >>> spark = local_session()  # doctest: +SKIP
    """
    require_whole("cores", cores, meaning="the threads that run tasks")
    if settings is not None:
        require_kind("settings", settings, Mapping, called="a mapping of Spark's settings", example="{'spark.x': 'y'}")
    given: dict[Any, Any] = dict(settings or {})
    for name, value in given.items():
        # A value may be secret: it is not shown.
        if not isinstance(name, str) or not isinstance(value, (str, int, float)):
            raise InvalidInputError(
                f"settings has {name!r} with a value of type {type(value).__name__}; Spark's settings are text"
            )
    if log_path is not None:
        require_kind("log_path", log_path, Path, called="a pathlib.Path", example="Path('spark.log')")
    require_java()
    # Workers must run this interpreter, or they may pick another Python that lacks Penstock.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.master(f"local[{cores}]").appName("penstock")
    wanted = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "ERROR",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.sql.shuffle.partitions": str(cores),
        "spark.sql.session.timeZone": "UTC",
        **SHORT_BATCHES,
        **(settings or {}),
    }
    for name, value in wanted.items():
        builder = builder.config(name, value)
    with _standard_error_to(log_path):
        return builder.getOrCreate()


def is_remote(spark: SparkSession) -> bool:
    """Tell whether a session is one of Spark Connect."""
    return type(spark).__module__.startswith("pyspark.sql.connect")


@contextmanager
def _standard_error_to(path: Path | None) -> Iterator[None]:
    """Start child processes with another standard error; this process keeps its own."""
    if path is None:
        yield
        return
    kept = os.dup(2)
    with path.open("w") as file:
        os.dup2(file.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
