"""Small JSON files that people can read and that show when they are damaged: a version, a checksum over the rest."""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from typing import Any

from penstock.model.errors import PlanLogError
from penstock.spark.store.paths import AnyPath


def seal(fields: Mapping[str, Any], *, version: int) -> str:
    """Write fields as JSON.

    >>> print(seal({"keep": 0.5}, version=1), end="")
    {
     "crc32": 4247024897,
     "keep": 0.5,
     "version": 1
    }
    """
    # Keys of a mapping become text in JSON: sealed as they will be read.
    plain = json.loads(json.dumps({**fields, "version": version}))
    return json.dumps({**plain, "crc32": _checksum(plain)}, indent=1, sort_keys=True) + "\n"


def unseal(text: str, path: AnyPath, *, version: int, cure: str) -> dict[str, Any]:
    """Read back what :func:`seal` was given; damage is named with its cure."""
    try:
        fields: dict[str, Any] = json.loads(text)
        checksum = fields.pop("crc32")
    except (ValueError, KeyError, TypeError, AttributeError) as cause:
        raise PlanLogError(f"{path} is truncated or not JSON ({cause!r}); {cure}") from cause
    if _checksum(fields) != checksum:
        raise PlanLogError(f"{path} was changed after it was written (its checksum is off); {cure}")
    found = fields.pop("version", None)
    if found != version:
        raise PlanLogError(
            f"{path} has version {found!r}, and this Penstock reads version {version}; "
            "go on with the Penstock that wrote it, or start from a new checkpoint"
        )
    return fields


def _checksum(fields: Mapping[str, Any]) -> int:
    return zlib.crc32(json.dumps(fields, sort_keys=True).encode())
