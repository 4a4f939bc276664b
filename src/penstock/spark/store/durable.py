"""What has to be on the disk, and not only in memory, before a commit relies on it.

A file that is synced may still be gone after a loss of power: its name stands in the folder, which is synced apart.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Collection
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

# What file systems answer that cannot sync a folder (some network and FUSE mounts), or let nobody read it.
NO_FOLDER_SYNC = frozenset({errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EBADF, errno.EACCES})


# Files that are synced together.
AT_A_TIME = 16


def make_folder(path: Path) -> Path:
    """Make a folder with all above it; return the lowest of them that was there before."""
    there = path
    while not there.exists() and there != there.parent:
        there = there.parent
    path.mkdir(parents=True, exist_ok=True)
    return there


def write_bytes(path: Path, data: bytes) -> None:
    """Write a file through to the disk; its name is there once its folder is synced."""
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def sync_folders(path: Path, *, up_to: Path) -> None:
    """Write the names in a folder through to the disk, and in those above it up to one.

    Those above hold the name of a folder that is new, whoever made it: a task that died may have.
    """
    for folder in (path, *path.parents):
        _sync_folder(folder)
        if folder == up_to:
            return


def sync_all(files: Collection[Path], folders: Collection[Path], *, up_to: Path) -> None:
    """Write many files, then the folders with their names, through to the disk.

    All at a time: a file system then does several with one turn of the disk.
    """
    above = {each for folder in folders for each in (folder, *folder.parents) if each.is_relative_to(up_to)}
    with ThreadPoolExecutor(AT_A_TIME) as threads:
        list(threads.map(_sync_file, files))
        list(threads.map(_sync_folder, above))


def _sync_folder(folder: Path) -> None:
    try:
        _sync_file(folder)
    except OSError as refused:
        if refused.errno not in NO_FOLDER_SYNC:
            raise


def _sync_file(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
