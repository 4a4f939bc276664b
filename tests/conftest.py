"""One Spark session for all tests that need one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings
from pyspark.sql import SparkSession

from penstock.spark.session import local_session

pytest_plugins = ["tests.kafka", "tests.stores"]

# The same examples in every run, so that a change is judged by what it changes; for new ones run
# pytest --hypothesis-profile=new.
settings.register_profile("same", derandomize=True, deadline=None)
settings.register_profile("new", deadline=None)
settings.load_profile("same")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put tests on Spark and servers last, and the slow ones of them first: no process is left with one at the end."""
    for item in items:
        if isinstance(item, pytest.DoctestItem) and "local_session()" in item.dtest.docstring:
            item.add_marker(pytest.mark.spark)
    items.sort(key=lambda item: (_has(item, "spark") or _has(item, "server"), not _has(item, "slow")))


def _has(item: pytest.Item, mark: str) -> bool:
    return item.get_closest_marker(mark) is not None


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    session = local_session(settings={"spark.sql.streaming.numRecentProgressUpdates": "1000"})
    yield session
    session.stop()


@pytest.fixture
def checkpoint(tmp_path: Path) -> str:
    return str(tmp_path / "checkpoint")
