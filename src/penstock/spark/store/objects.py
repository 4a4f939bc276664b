"""Small files in HDFS or an object store, with the promises that a local folder gives.

Python reaches the store without the JVM: plans are made in Python workers, which have none.
"""

from __future__ import annotations

import json
import os
import time
import uuid
from collections.abc import Iterable, Mapping
from contextlib import suppress
from functools import lru_cache
from typing import Protocol

from penstock.model.errors import EnvironmentMissingError, NotSupportedError, StoreError
from penstock.spark.store.paths import StorePath


class Store(Protocol):
    """What a store must do; files are named by key, the path below name node or bucket."""

    def create(self, key: str, data: bytes) -> bool:
        """Write a file that is not there yet; False if another writer was first. Decided by the store, not here."""

    def replace(self, key: str, data: bytes) -> None:
        """Write a file in place of what was there; readers see the one or the other."""

    def read(self, key: str) -> bytes | None:
        """Read a file; None if there is none."""

    def written_at(self, key: str, *, below: bool = False) -> Mapping[str, float]:
        """List the files of a folder, also those ``below`` its folders, with when they were written."""

    def exists(self, key: str) -> bool:
        """Tell whether there is such a file."""

    def remove(self, key: str, *, below: bool = False) -> None:
        """Remove a file, or a folder with all ``below`` it, if it is there."""


class StoreFolder:
    """A folder of immutable and of replaceable files in a store; every write is atomic."""

    def __init__(self, path: StorePath) -> None:
        self.path = path

    def create(self, name: str, text: str) -> bool:
        """Write a file that does not exist yet; False, and nothing written, if another writer was first."""
        return self._store.create(self._key(name), text.encode())

    def replace(self, name: str, content: str | bytes) -> None:
        """Write a file, in place of what was there."""
        self._store.replace(self._key(name), content.encode() if isinstance(content, str) else content)

    def read(self, name: str) -> str | None:
        """Read a file; None if there is none."""
        data = self.read_bytes(name)
        return None if data is None else data.decode()

    def read_bytes(self, name: str) -> bytes | None:
        """Read a file that is no text; None if there is none."""
        return self._store.read(self._key(name))

    def exists(self, name: str) -> bool:
        """Tell whether there is such a file."""
        return self._store.exists(self._key(name))

    def names(self) -> list[str]:
        """List all files, in the order of their names."""
        return sorted(self._store.written_at(self.path.key))

    def ids(self, *, suffix: str = "") -> list[int]:
        """List, in order, the numbers of files named by number."""
        return numbers(self._store.written_at(self.path.key), suffix)

    def ages(self, *, suffix: str) -> dict[str, float]:
        """List files, in the order of their names, with the seconds since each was written."""
        now, found = time.time(), self._store.written_at(self.path.key)
        return {name: now - found[name] for name in sorted(found) if name.endswith(suffix)}

    def remove(self, name: str) -> None:
        """Remove a file, if it is there."""
        self._store.remove(self._key(name))

    def require_exclusive(self) -> None:
        """Try whether the store keeps a second writer out; one that passes conditions over would let both in."""
        name = f".exclusive-{uuid.uuid4().hex}"
        first, second = self.create(name, "first"), self.create(name, "second")
        self.remove(name)
        if not first or second:
            raise NotSupportedError(
                f"the store of {self.path} lets two writers create the same file (it passes over If-None-Match), so a "
                "replayed batch might shed other rows; use a store or a version of it that honours conditional writes"
            )

    @property
    def _store(self) -> Store:
        return store_of(self.path)

    def _key(self, name: str) -> str:
        return f"{self.path.key}/{name}"


def numbers(names: Iterable[str], suffix: str) -> list[int]:
    """Sort out, in order, the numbers among names that end alike."""
    stems = (name.removesuffix(suffix) for name in names if name.endswith(suffix))
    return sorted(int(stem) for stem in stems if stem.isdigit())


def copy_store_tree(source: StorePath, target: StorePath) -> None:
    """Copy all files below a folder, byte by byte, within one store."""
    store = store_of(source)
    for name in store.written_at(source.key, below=True):
        data = store.read(f"{source.key}/{name}")
        if data is not None:
            store.replace(f"{target.key}/{name}", data)


def remove_store_tree(path: StorePath) -> None:
    """Remove a folder with all below it; one that cannot be removed is left, as on a local disk."""
    with suppress(StoreError):
        store_of(path).remove(path.key, below=True)


def store_of(path: StorePath) -> Store:
    """Find the connection to the store of a path; one per process, for connections do not survive a fork."""
    return _connect(os.getpid(), path.scheme, path.authority, path.settings_json)


@lru_cache(maxsize=16)
def _connect(_process: int, scheme: str, authority: str, settings_json: str) -> Store:
    settings = json.loads(settings_json)
    try:
        if scheme == "hdfs":
            from penstock.spark.store.hdfs import WebHdfs

            return WebHdfs(authority, settings)
        from penstock.spark.store.s3 import S3

        return S3(authority, settings)
    except ImportError as cause:
        raise EnvironmentMissingError(
            f"a checkpoint on {scheme}: needs extra packages where the driver and the executors run ({cause}); there "
            f"run: pip install 'penstock[{'hdfs' if scheme == 'hdfs' else 's3'}]'"
        ) from cause
