"""HDFS from plain Python: WebHDFS, which every name node speaks over HTTP.

fsspec makes the connection and knows the ways to authenticate. Its own writes are not used: they always overwrite, and
fill a file after its name is there.
"""

from __future__ import annotations

import getpass
import logging
import os
import re
import time
import uuid
from collections.abc import Callable, Mapping
from typing import Any, TypeVar
from urllib.parse import quote, urlparse

import requests
from fsspec.implementations.webhdfs import WebHDFS
from requests.adapters import HTTPAdapter
from urllib3.util import Retry

from penstock.model.errors import StoreError

HTTP_PORT = 9870
# To connect, and between two bytes of an answer.
TIMEOUT_SECONDS = (5.0, 30.0)
# A connection that was not made and a question that changes nothing are tried again as they are.
AGAIN = Retry(total=2, connect=1, read=1, redirect=False, backoff_factor=0.1, allowed_methods=["GET"])
# What goes through a data node is tried again from the start: the name node may name another one.
TRIES = 3
PAUSE_SECONDS = 0.2

T = TypeVar("T")


class WebHdfs:
    """Files of one HDFS; the name node decides who creates a file, and shows it when it is whole.

    A file is written under a name of its own and then renamed, which the name node refuses where the new name is
    taken. Files are as durable as Spark's own in HDFS: on all replicas, not necessarily on the platters yet.
    """

    def __init__(self, authority: str, settings: Mapping[str, Any]) -> None:
        options = dict(settings)
        self._name = f"hdfs://{authority}"
        self._http = options.pop("webhdfs", None) or f"http://{authority.partition(':')[0]}:{HTTP_PORT}"
        server = urlparse(self._http if "://" in self._http else f"http://{self._http}")
        if not {"user", "token", "kerberos"} & options.keys():
            options["user"] = _user()
        self._fs = WebHDFS(
            host=server.hostname,
            port=server.port or HTTP_PORT,
            use_https=server.scheme == "https",
            skip_instance_cache=True,
            **options,
        )
        for prefix in ("http://", "https://"):
            self._fs.session.mount(prefix, HTTPAdapter(max_retries=AGAIN))

    def create(self, key: str, data: bytes) -> bool:
        """Write a file that is not there yet; False if another writer was first."""
        aside = _again(lambda: self._write_aside(key, data))
        # Without options a rename answers false where the new name is taken, and never overwrites.
        renamed = self._rename(aside, key)
        if not renamed:
            self.remove(aside)
            if not self.exists(key):
                raise StoreError(f"{self._name}/{key} cannot be created, though it is not there; see the name node")
        return renamed

    def replace(self, key: str, data: bytes) -> None:
        """Write a file in place of what was there; readers see the one or the other."""
        aside = _again(lambda: self._write_aside(key, data))
        if not self._rename(aside, key, renameoptions="OVERWRITE"):
            self.remove(aside)
            raise StoreError(
                f"{self._http} does not replace {self._name}/{key} in one step (HttpFS gateways do not); give the "
                "HTTP address of the name node itself: StorePath(..., webhdfs='http://namenode:9870')"
            )

    def read(self, key: str) -> bytes | None:
        """Read a file; None if there is none."""
        try:
            return _again(lambda: self._open(key))
        except FileNotFoundError:
            return None

    def written_at(self, key: str, *, below: bool = False) -> dict[str, float]:
        """List the files of a folder, also those ``below`` its folders, with when they were written."""
        try:
            listed = self._ask("GET", "LISTSTATUS", key).json()["FileStatuses"]["FileStatus"]
        except FileNotFoundError:
            return {}
        found = {each["pathSuffix"]: each["modificationTime"] / 1000 for each in listed if each["type"] == "FILE"}
        folders = [each["pathSuffix"] for each in listed if below and each["type"] == "DIRECTORY"]
        for folder in folders:
            inner = self.written_at(f"{key}/{folder}", below=True)
            found |= {f"{folder}/{name}": at for name, at in inner.items()}
        return found

    def exists(self, key: str) -> bool:
        """Tell whether there is such a file."""
        try:
            self._ask("GET", "GETFILESTATUS", key)
        except FileNotFoundError:
            return False
        return True

    def remove(self, key: str, *, below: bool = False) -> None:
        """Remove a file, or a folder with all ``below`` it, if it is there."""
        self._ask("DELETE", "DELETE", key, recursive=str(below).lower())

    def _open(self, key: str) -> bytes:
        found = self._ask("GET", "OPEN", key)
        if (location := found.headers.get("Location")) is not None:
            found = self._send("GET", location)
        return bytes(found.content)

    def _rename(self, aside: str, key: str, **options: str) -> bool:
        """Give a file its name; False if that is taken."""

        def rename() -> bool:
            try:
                answer = self._ask("PUT", "RENAME", aside, destination=f"/{key}", **options)
            except StoreError as failed:
                # An answer that was lost: only the renaming that it was to tell of takes this file away.
                if _unanswered(failed) and not self.exists(aside):
                    return True
                raise
            return not answer.content or bool(answer.json()["boolean"])

        return _again(rename)

    def _write_aside(self, key: str, data: bytes) -> str:
        folder, _, name = key.rpartition("/")
        aside = f"{folder}/.{name}.{uuid.uuid4().hex}"
        # The name node names a data node, which takes the bytes and answers when the file is closed.
        location = self._ask("PUT", "CREATE", aside, overwrite="false").headers["Location"]
        self._send("PUT", location, data=data, headers={"content-type": "application/octet-stream"})
        return aside

    def _ask(self, method: str, operation: str, key: str, **parameters: str) -> requests.Response:
        url = f"{self._fs.url}/{quote(key, safe='/=')}"
        return self._send(method, url, params={**parameters, **self._fs.pars, "op": operation})

    def _send(self, method: str, url: str, **options: Any) -> requests.Response:
        for name, reached_as in self._fs.proxy.items():
            url = url.replace(name, reached_as, 1)
        try:
            answer: requests.Response = self._fs.session.request(
                method, url, allow_redirects=False, timeout=TIMEOUT_SECONDS, **options
            )
        except requests.RequestException as cause:
            told = without_queries(str(cause))
            raise StoreError(
                f"{self._name} is not reached over WebHDFS at {urlparse(url).netloc} ({told}). See that it runs and "
                "that its data nodes' names resolve here too; where the name node answers HTTP elsewhere than at "
                f"{self._http}, say so: StorePath(..., webhdfs='http://namenode:{HTTP_PORT}')"
            ) from type(cause)(told)
        if answer.status_code >= 400:
            raise _refusal(self._name, answer)
        return answer


def without_queries(text: str) -> str:
    """Leave the queries of addresses out: WebHDFS takes its delegation token there.

    >>> without_queries("url: /webhdfs/v1/a?delegation=secret&op=OPEN (Caused by x)")
    'url: /webhdfs/v1/a?... (Caused by x)'
    """
    return re.sub(r"\?[^\s'\")]+", "?...", text)


def _hide_queries(record: logging.LogRecord) -> bool:
    """Let a record pass, without the queries in it: the client logs the address that it tries again."""
    record.msg, record.args = without_queries(record.getMessage()), ()
    return True


for _talking in ("urllib3.connectionpool", "urllib3.util.retry"):
    logging.getLogger(_talking).addFilter(_hide_queries)


def _again(action: Callable[[], T]) -> T:
    """Do what can be done twice, until there is an answer or it was tried often enough."""
    for _ in range(TRIES - 1):
        try:
            return action()
        except StoreError as failed:
            if not _unanswered(failed):
                raise
            time.sleep(PAUSE_SECONDS)
    return action()


def _unanswered(failed: StoreError) -> bool:
    return isinstance(failed.__cause__, requests.RequestException)


def _refusal(name: str, answer: requests.Response) -> OSError:
    try:
        told = answer.json()["RemoteException"]
        kind, message = told["exception"], told["message"]
    except (ValueError, KeyError, TypeError):
        kind, message = str(answer.status_code), answer.text[:200]
    if kind == "FileNotFoundException":
        return FileNotFoundError(message)
    # Java appends its stack trace.
    return StoreError(f"{name} refused over WebHDFS: {kind}: {message.splitlines()[0] if message else ''}")


def _user() -> str:
    """Ask as the user that Spark asks as, unless settings say otherwise."""
    return os.environ.get("HADOOP_USER_NAME") or os.environ.get("SPARK_USER") or getpass.getuser()
