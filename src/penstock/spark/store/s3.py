"""S3, and stores that speak its protocol, from plain Python: s3fs."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import s3fs
from botocore.exceptions import BotoCoreError

from penstock.model.errors import StoreError

# What a store answers while another write to the same key is under way: neither has won yet.
UNDECIDED = "ConditionalRequestConflict"
UNDECIDED_TRIES = 20

T = TypeVar("T")


class S3:
    """Files of one bucket; a put is atomic, and with ``If-None-Match: *`` the store decides who creates a file."""

    def __init__(self, bucket: str, settings: Mapping[str, Any]) -> None:
        self._bucket = bucket
        # Listings must show what other processes wrote.
        self._fs = s3fs.S3FileSystem(**{**settings, "use_listings_cache": False, "skip_instance_cache": True})

    def create(self, key: str, data: bytes) -> bool:
        """Write a file that is not there yet; False if another writer was first."""
        for _ in range(UNDECIDED_TRIES):
            try:
                self._put(key, data, mode="create")
            except FileExistsError:
                return False
            except OSError as refused:
                code = _code(refused)
                if code in ("PreconditionFailed", "412"):
                    return False
                if code not in (UNDECIDED, "409"):
                    raise
                time.sleep(0.05)
            else:
                return True
        raise StoreError(f"s3://{self._at(key)} stays under dispute by other writers; see who else writes there")

    def replace(self, key: str, data: bytes) -> None:
        """Write a file in place of what was there; readers see the one or the other."""
        self._put(key, data, mode="overwrite")

    def read(self, key: str) -> bytes | None:
        """Read a file; None if there is none."""
        try:
            data: bytes = self._ask(lambda: self._fs.cat_file(self._at(key)))
        except FileNotFoundError:
            return None
        return data

    def written_at(self, key: str, *, below: bool = False) -> dict[str, float]:
        """List the files of a folder, also those ``below`` its folders, with when they were written."""
        folder = self._at(key)
        depth = None if below else 1
        try:
            found = self._ask(lambda: self._fs.find(folder, maxdepth=depth, detail=True))
        except FileNotFoundError:
            return {}
        return {name.removeprefix(f"{folder}/"): each["LastModified"].timestamp() for name, each in found.items()}

    def exists(self, key: str) -> bool:
        """Tell whether there is such a file."""
        return bool(self._ask(lambda: self._fs.exists(self._at(key))))

    def remove(self, key: str, *, below: bool = False) -> None:
        """Remove a file, or a folder with all ``below`` it, if it is there."""
        try:
            self._ask(lambda: self._fs.rm(self._at(key), recursive=True) if below else self._fs.rm_file(self._at(key)))
        except FileNotFoundError:
            return

    def _put(self, key: str, data: bytes, *, mode: str) -> None:
        try:
            self._ask(lambda: self._fs.pipe_file(self._at(key), data, mode=mode))
        except FileNotFoundError as cause:
            raise StoreError(f"there is no bucket s3://{self._bucket} ({cause}); create it, or name another") from cause

    def _at(self, key: str) -> str:
        return f"{self._bucket}/{key}"

    def _ask(self, question: Callable[[], T]) -> T:
        try:
            return question()
        except BotoCoreError as cause:
            raise StoreError(
                f"s3://{self._bucket} is not reached ({cause}); give what s3fs needs, as in "
                "StorePath(..., endpoint_url='https://store:9000'), or set it where AWS clients look"
            ) from cause


def _code(refused: OSError) -> str:
    """What the store called its refusal, which s3fs turned into an error of Python."""
    response = getattr(refused.__cause__, "response", None) or {}
    return str(response.get("Error", {}).get("Code", ""))
