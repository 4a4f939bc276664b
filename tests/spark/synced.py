"""What was written through to the disk, and in which order."""

from __future__ import annotations

import os
import stat
from pathlib import Path

# Of each call of fsync: the inode, and of a folder what it held then.
Synced = list[tuple[int, frozenset[str]]]


def synced_from_now(monkeypatch) -> Synced:
    """Record what is synced from now on; it is synced all the same."""
    synced: Synced = []
    sync = os.fsync

    def recorded(descriptor: int) -> None:
        about = os.fstat(descriptor)
        sync(descriptor)
        names = frozenset(os.listdir(descriptor)) if stat.S_ISDIR(about.st_mode) else frozenset()
        synced.append((about.st_ino, names))

    monkeypatch.setattr(os, "fsync", recorded)
    return synced


def assert_on_disk(synced: Synced, file: Path, *, up_to: Path) -> None:
    """The contents of a file, then its name, and the names of the folders above it, up to one that was there before."""
    contents = [at for at, (inode, _) in enumerate(synced) if inode == file.stat().st_ino]
    assert contents, f"the contents of {file} were not synced"
    path = file
    while path != up_to:
        folder = path.parent
        at = [at for at, (inode, names) in enumerate(synced) if inode == folder.stat().st_ino and path.name in names]
        assert at, f"the name of {path} was not synced"
        assert max(at) > min(contents)
        path = folder
