"""Small files with atomic creation, where driver and executors both see them."""

from __future__ import annotations

import errno
import os
import uuid
from pathlib import Path
from urllib.parse import unquote, urlparse

from penstock.model.errors import InvalidInputError, NotSupportedError

# What file systems without hard links answer (some network and FUSE mounts).
NO_LINKS = frozenset({errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK, errno.EACCES})


def local_path(location: str) -> Path:
    """Turn a path or a ``file:`` address into a local path; other file systems are refused with the reason.

    >>> str(local_path("file:///data/checkpoint"))
    '/data/checkpoint'
    """
    if not location:
        raise InvalidInputError("the checkpoint location is empty; name a folder that survives a restart")
    parsed = urlparse(location)
    if parsed.scheme in ("", "file"):
        return Path(unquote(parsed.path) if parsed.scheme else location).absolute()
    raise NotSupportedError(
        f"{location} is on {parsed.scheme}:, and the plan log can only be kept on a file system that driver and "
        "executors see as a folder (a local disk, NFS); give such a checkpoint location"
    )


class Folder:
    """A folder of immutable and of replaceable text files.

    Every write is atomic: a reader sees the whole file or none, also after a crash in the middle of it.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def create(self, name: str, text: str) -> bool:
        """Write a file that does not exist yet; False, and nothing written, if another writer was first."""
        written = self._write_aside(name, text)
        try:
            # Linking fails if the name is taken, also between processes: exactly one writer wins.
            os.link(written, self.path / name)
        except FileExistsError:
            return False
        except OSError as refused:
            if refused.errno not in NO_LINKS:
                raise
            return self._create_in_place(name, text)
        finally:
            written.unlink()
        return True

    def _create_in_place(self, name: str, text: str) -> bool:
        """Create a file on a file system without hard links; the name is taken at once, the text follows."""
        try:
            descriptor = os.open(self.path / name, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644)
        except FileExistsError:
            return False
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        return True

    def replace(self, name: str, text: str) -> None:
        """Write a file, in place of what was there."""
        self._write_aside(name, text).replace(self.path / name)

    def read(self, name: str) -> str | None:
        """Read a file; None if there is none."""
        try:
            return (self.path / name).read_text(encoding="utf-8")
        except FileNotFoundError:
            return None

    def ids(self, *, suffix: str = "") -> list[int]:
        """List, in order, the numbers of files named by number."""
        try:
            names = os.listdir(self.path)
        except FileNotFoundError:
            return []
        stems = (name.removesuffix(suffix) for name in names if name.endswith(suffix))
        return sorted(int(stem) for stem in stems if stem.isdigit())

    def remove(self, name: str) -> None:
        """Remove a file, if it is there."""
        (self.path / name).unlink(missing_ok=True)

    def _write_aside(self, name: str, text: str) -> Path:
        aside = self.path / f".{name}.{uuid.uuid4().hex}"
        self.path.mkdir(parents=True, exist_ok=True)
        with aside.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        return aside
