"""Where a checkpoint lies: a local folder, or an address in a store that Spark and Python both reach."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlparse

from penstock.model.errors import InvalidInputError, NotSupportedError

# Where exactly one of several writers creates a file, and a test shows it.
STORES = ("hdfs", "s3a", "s3")


@dataclass(frozen=True, slots=True, init=False, repr=False)
class StorePath:
    """Name a folder in HDFS or in an object store, with what Python needs to reach it.

    A plain address does where the defaults fit; ``checkpoint="hdfs://namenode:8020/clicks"`` is then enough.

    Parameters
    ----------
    address
        As Spark takes it: ``hdfs://namenode:8020/clicks``, ``s3a://bucket/clicks``.
    settings
        HDFS: ``webhdfs``, where the name node answers HTTP (``dfs.namenode.http-address``), by default port 9870 of
        the host in the address; and what fsspec's ``WebHDFS`` takes (``user``, ``token``, ``kerberos``). S3: what
        ``s3fs.S3FileSystem`` takes (``endpoint_url``, ``profile``); by default it looks where other AWS clients look.
        They travel to the executors with the query: leave keys to the environment where you can.

    Examples
    --------
    >>> clicks = StorePath("hdfs://namenode:8020/clicks", webhdfs="http://namenode:9871")
    >>> clicks / "penstock"
    StorePath('hdfs://namenode:8020/clicks/penstock', webhdfs=...)
    """

    address: str
    settings_json: str

    def __init__(self, address: str, **settings: Any) -> None:
        scheme, found, rest = address.partition("://")
        if not found or scheme not in STORES:
            raise NotSupportedError(
                f"{address} is not in a store that is known to create a file for exactly one writer; these are: "
                f"{', '.join(f'{name}://' for name in STORES)}. Give such an address, or a folder that driver and "
                "executors see"
            )
        if not rest.partition("/")[2].strip("/"):
            raise InvalidInputError(f"{address} names no folder; add one, as in {address.rstrip('/')}/checkpoint")
        if rest.startswith("/") and "webhdfs" not in settings:
            raise InvalidInputError(
                f"{address} names no {'name node' if scheme == 'hdfs' else 'bucket'}; write it into the address, as in "
                f"{scheme}://name/folder"
            )
        try:
            text = json.dumps(settings, sort_keys=True)
        except TypeError as cause:
            raise InvalidInputError(
                f"the settings of {address} must be text, numbers and mappings of them, as they travel to the "
                f"executors ({cause})"
            ) from cause
        object.__setattr__(self, "address", address.rstrip("/"))
        object.__setattr__(self, "settings_json", text)

    def __truediv__(self, name: str) -> StorePath:
        return StorePath(f"{self.address}/{name}", **self.settings)

    def __str__(self) -> str:
        return self.address

    def __repr__(self) -> str:
        # Values may be secret.
        return f"StorePath({', '.join([repr(self.address), *(f'{name}=...' for name in self.settings)])})"

    @property
    def settings(self) -> dict[str, Any]:
        """What Python needs to reach the store."""
        settings: dict[str, Any] = json.loads(self.settings_json)
        return settings

    @property
    def scheme(self) -> str:
        """The kind of store: ``hdfs``, ``s3a``."""
        return self.address.partition("://")[0]

    @property
    def authority(self) -> str:
        """Name node and port, or bucket."""
        return self.address.partition("://")[2].partition("/")[0]

    @property
    def key(self) -> str:
        """Path within the store, without a slash in front."""
        return self.address.partition("://")[2].partition("/")[2]

    def as_uri(self) -> str:
        """The address that Spark takes."""
        return self.address


AnyPath = Path | StorePath


def place(location: str | StorePath) -> AnyPath:
    """Turn what a user gives as a checkpoint into a local path or a path in a store.

    >>> place("file:///data/checkpoint"), place("hdfs://namenode:8020/clicks")
    (PosixPath('/data/checkpoint'), StorePath('hdfs://namenode:8020/clicks'))
    """
    if isinstance(location, StorePath):
        return location
    if not location:
        raise InvalidInputError("the checkpoint location is empty; name a folder that survives a restart")
    parsed = urlparse(location)
    if parsed.scheme in ("", "file"):
        return Path(unquote(parsed.path) if parsed.scheme else location).absolute()
    return StorePath(location)


def local_path(location: str | StorePath, *, needed_for: str) -> Path:
    """Turn a path or a ``file:`` address into a local path; a store is refused with what needs the folder.

    >>> str(local_path("file:///data/checkpoint", needed_for="blocks"))
    '/data/checkpoint'
    """
    path = place(location)
    if isinstance(path, StorePath):
        raise NotSupportedError(
            f"{path} is on {path.scheme}:, and {needed_for} can only be kept on a file system that driver and "
            "executors see as a folder (a local disk, NFS); give such a checkpoint location"
        )
    return path


def to_text(path: AnyPath) -> str:
    """Write a path down as text, for options that are text only."""
    return str(path) if isinstance(path, Path) else json.dumps({"address": path.address, "settings": path.settings})


def from_text(text: str) -> AnyPath:
    """Read back what :func:`to_text` wrote.

    >>> from_text(to_text(StorePath("s3a://bucket/clicks", profile="jobs")))
    StorePath('s3a://bucket/clicks', profile=...)
    """
    if not text.startswith("{"):
        return Path(text)
    fields = json.loads(text)
    return StorePath(fields["address"], **fields["settings"])
