"""Where a checkpoint lies: a local folder, or an address in a store that Spark and Python both reach."""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlparse

from penstock.model.errors import InvalidInputError, NotSupportedError, require_text

# Where exactly one of several writers creates a file, and a test shows it.
STORES = ("hdfs", "s3a", "s3")
# Settings that are addresses themselves, and that errors name.
ADDRESSES = ("webhdfs", "endpoint_url")


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
        They travel to the executors with the query and are never shown. Leave keys to the environment where you can;
        in the address they are refused.

    Examples
    --------
    >>> clicks = StorePath("hdfs://namenode:8020/clicks", webhdfs="http://namenode:9871")
    >>> clicks / "penstock"
    StorePath('hdfs://namenode:8020/clicks/penstock', webhdfs=...)
    """

    address: str
    settings_json: str

    def __init__(self, address: str, **settings: Any) -> None:
        require_text("a store's address", address, meaning="a folder in a store, as in 'hdfs://namenode:8020/clicks'")
        _refuse_credentials(address, settings)
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
                f"the settings of {address} travel to the executors, and one of them cannot ({cause}); they must be "
                "text, numbers and mappings of them"
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


AnyPath = Path | StorePath
# What users may give where a folder is wanted.
Location = str | os.PathLike[str] | StorePath


def place(location: Location, *, role: str = "checkpoint") -> AnyPath:
    """Turn what a user gives as a folder into a local path or a path in a store; ``role`` is the argument's name.

    >>> place("file:///data/checkpoint"), place("hdfs://namenode:8020/clicks"), place(Path("/data/checkpoint"))
    (PosixPath('/data/checkpoint'), StorePath('hdfs://namenode:8020/clicks'), PosixPath('/data/checkpoint'))
    """
    if isinstance(location, StorePath):
        return location
    text = _text_of(location, role)
    parsed = urlparse(text)
    if parsed.scheme in ("", "file"):
        if parsed.scheme and parsed.netloc not in ("", "localhost"):
            raise InvalidInputError(
                f"{role}={redacted(text)!r} names a host, and a file: address reaches local folders only; write three "
                "slashes, as in file:///data/checkpoint"
            )
        return Path(unquote(parsed.path) if parsed.scheme else text).absolute()
    if not isinstance(location, str):
        raise InvalidInputError(
            f"{role} is the path {redacted(text)!r}, which was an address before a slash was lost; give it as text or "
            "as a StorePath"
        )
    try:
        return StorePath(text)
    except (InvalidInputError, NotSupportedError) as refused:
        raise type(refused)(f"{role}: {refused}") from None


def _text_of(location: object, role: str) -> str:
    text = os.fspath(location) if isinstance(location, os.PathLike) and not isinstance(location, type) else location
    if not isinstance(text, str):
        raise InvalidInputError(
            f"{role} must be a folder as text, path or StorePath, got {redacted(repr(location))} of type "
            f"{type(location).__name__}; as in {role}='/data/{role}'"
        )
    if not text.strip():
        raise InvalidInputError(f"{role} is empty, got {text!r}; name a folder that survives a restart")
    if "\0" in text:
        raise InvalidInputError(f"{role} has a null character in it, got {redacted(text)!r}; no folder has such a name")
    return text


def redacted(address: str) -> str:
    """Write an address without the user and the password that may stand in front of its host or bucket.

    >>> redacted("s3a://AKIA:secret/with/slashes@bucket/clicks"), redacted("hdfs://namenode:8020/user@home/clicks")
    ('s3a://***@bucket/clicks', 'hdfs://namenode:8020/user@home/clicks')
    """
    if not _holds_credentials(address):
        return address
    scheme, colon, rest = _split(address)
    return f"{scheme}{colon}***@{rest.rpartition('@')[2]}"


def _holds_credentials(address: str) -> bool:
    """Whether something stands in front of the host; a secret may hold slashes, but a port is a number."""
    scheme, _, rest = _split(address)
    authority = rest.partition("/")[0]
    _, port_follows, port = authority.partition(":")
    if "@" not in rest:
        return False
    return "@" in authority or bool(port_follows and (not port.isdigit() or scheme.startswith("s3")))


def _split(address: str) -> list[str]:
    """Take an address apart: its scheme, the colon with its slashes, the rest."""
    return re.split(r"(:/*)", address, maxsplit=1) if ":" in address else ["", "", address]


def _refuse_credentials(address: str, settings: dict[str, Any]) -> None:
    """Refuse a user and a password in an address: Spark prints addresses, and writes them down."""
    named = {"the address": address, **{name: settings[name] for name in ADDRESSES if name in settings}}
    for name, given in named.items():
        if isinstance(given, str) and _holds_credentials(given):
            raise InvalidInputError(
                f"{name} {redacted(given)} has credentials in it, and Spark prints addresses in plans and logs; give "
                "them where AWS or Hadoop clients look (environment, profile, fs.s3a.access.key), or to Python alone: "
                "StorePath(address, key=..., secret=...)"
            )


def spark_address(path: AnyPath) -> str:
    """Write a path as Spark takes it, which decodes nothing: ``Path.as_uri`` would make another folder of a space.

    >>> spark_address(Path("/data/my clicks")), spark_address(StorePath("s3a://bucket/clicks"))
    ('file:///data/my clicks', 's3a://bucket/clicks')
    """
    return path.address if isinstance(path, StorePath) else f"file://{path}"


def local_path(location: Location, *, needed_for: str, role: str = "checkpoint") -> Path:
    """Turn a path or a ``file:`` address into a local path; a store is refused with what needs the folder.

    >>> str(local_path("file:///data/checkpoint", needed_for="blocks"))
    '/data/checkpoint'
    """
    path = place(location, role=role)
    if isinstance(path, StorePath):
        raise NotSupportedError(
            f"{path} is on {path.scheme}:, and {needed_for} can only be kept on a file system that driver and "
            "executors see as a folder (a local disk, NFS); give such a checkpoint location"
        )
    return path
