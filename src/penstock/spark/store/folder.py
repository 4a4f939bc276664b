"""Small files with atomic creation, where driver and executors both see them."""

from __future__ import annotations

import errno
import os
import shutil
import time
import uuid
from pathlib import Path

from penstock.spark.store.durable import make_folder, sync_folders, write_bytes
from penstock.spark.store.objects import StoreFolder, copy_store_tree, numbers, remove_store_tree
from penstock.spark.store.paths import AnyPath, StorePath

# What file systems without hard links answer (some network and FUSE mounts).
NO_LINKS = frozenset({errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK, errno.EACCES})


class Folder:
    """A folder of immutable and of replaceable files.

    Every write is atomic: a reader sees the whole file or none, also after a crash in the middle of it, and what was
    written is there after a loss of power. In a store
    :class:`~penstock.spark.store.objects.StoreFolder` does the same.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def create(self, name: str, text: str) -> bool:
        """Write a file that does not exist yet; False, and nothing written, if another writer was first."""
        there = make_folder(self.path)
        first = self._create(name, text)
        # Also for another's file: it goes on with that, and the other may have died before it came to this.
        sync_folders(self.path, up_to=there)
        return first

    def _create(self, name: str, text: str) -> bool:
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

    def replace(self, name: str, content: str | bytes) -> None:
        """Write a file, in place of what was there."""
        there = make_folder(self.path)
        self._write_aside(name, content).replace(self.path / name)
        sync_folders(self.path, up_to=there)

    def read(self, name: str) -> str | None:
        """Read a file; None if there is none."""
        try:
            return (self.path / name).read_text(encoding="utf-8")
        except FileNotFoundError:
            return None

    def read_bytes(self, name: str) -> bytes | None:
        """Read a file that is no text; None if there is none."""
        try:
            return (self.path / name).read_bytes()
        except FileNotFoundError:
            return None

    def exists(self, name: str) -> bool:
        """Tell whether there is such a file."""
        return (self.path / name).exists()

    def names(self) -> list[str]:
        """List all files, in the order of their names."""
        try:
            return sorted(os.listdir(self.path))
        except FileNotFoundError:
            return []

    def ids(self, *, suffix: str = "") -> list[int]:
        """List, in order, the numbers of files named by number."""
        return numbers(self.names(), suffix)

    def ages(self, *, suffix: str) -> dict[str, float]:
        """List files, in the order of their names, with the seconds since each was written."""
        now = time.time()
        return {file.name: now - file.stat().st_mtime for file in sorted(self.path.glob(f"*{suffix}"))}

    def remove(self, name: str) -> None:
        """Remove a file, if it is there."""
        (self.path / name).unlink(missing_ok=True)

    def _write_aside(self, name: str, content: str | bytes) -> Path:
        aside = self.path / f".{name}.{uuid.uuid4().hex}"
        write_bytes(aside, content.encode() if isinstance(content, str) else content)
        return aside


def folder_at(path: AnyPath) -> Folder | StoreFolder:
    """Open a folder, wherever it is."""
    return StoreFolder(path) if isinstance(path, StorePath) else Folder(path)


def require_exclusive(path: AnyPath) -> None:
    """Refuse a store that lets two writers create one file: a replay might then shed other rows."""
    if isinstance(path, StorePath):
        StoreFolder(path).require_exclusive()


def copy_tree(source: AnyPath, target: AnyPath) -> None:
    """Copy a folder with all below it, within one file system; nothing happens if there is none."""
    if isinstance(source, StorePath) and isinstance(target, StorePath):
        copy_store_tree(source, target)
    elif isinstance(source, Path) and source.exists():
        shutil.copytree(source, str(target))


def remove_tree(path: AnyPath) -> None:
    """Remove a folder with all below it, if it is there."""
    if isinstance(path, StorePath):
        remove_store_tree(path)
    else:
        shutil.rmtree(path, ignore_errors=True)
