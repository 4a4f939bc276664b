"""What became of the rows of each window that a batch answered, told by the tasks that answered it.

A task writes before Spark commits the batch, so the counts of a committed batch are there whatever happens to the
driver.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from penstock.spark.store.checksummed import seal, unseal
from penstock.spark.store.folder import Folder

VERSION = 1


@dataclass(frozen=True, slots=True)
class AccountFolder:
    """The accounts of a query: ``<batch>/<bucket>.json``, with what a bucket answered in a batch."""

    path: Path

    def write(self, batch_id: int, bucket: int, counts: Mapping[str, int]) -> None:
        """Put down what a bucket has answered in a batch so far; a task that is tried again puts down the same."""
        Folder(self.path / str(batch_id)).replace(f"{bucket}.json", seal(dict(counts), version=VERSION))

    def read(self, batch_id: int) -> dict[str, int]:
        """Add up what was answered in a batch: all zero where no window ended in it."""
        total = {"offered": 0, "kept": 0, "shed": 0, "windows": 0, "late": 0}
        for file in sorted((self.path / str(batch_id)).glob("*.json")):
            told = unseal(file.read_text(encoding="utf-8"), file, version=VERSION, cure="restore the file from a copy")
            for name in total:
                total[name] += told[name]
        return total

    def prune(self, *, before: int) -> None:
        """Remove the accounts of batches that Spark can no longer replay."""
        if not self.path.exists():
            return
        for folder in self.path.iterdir():
            if folder.name.isdigit() and int(folder.name) < before:
                shutil.rmtree(folder, ignore_errors=True)
