"""The layout of a spill, and what is whole in it.

``query=<id>/batch=<id>/run=<id>/part-<partition>-<rows>-<shed>.parquet``. A batch that is replayed may be split into
other partitions, so each execution of a batch has a folder of its own, and files of two are never mixed. Which of them
are whole is told by the ledger: their counts stand in the names.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass

from penstock.model.batch import Batch
from penstock.model.errors import PlanLogError
from penstock.spark.store.checksummed import seal, unseal
from penstock.spark.store.folder import folder_at, remove_tree
from penstock.spark.store.objects import store_of
from penstock.spark.store.paths import AnyPath, StorePath

VERSION = 1
PRUNED = "_pruned.json"
_PART = re.compile(r"run=([^/]+)/part-\d+-(\d+)-(\d+)\.parquet")
_BATCH = re.compile(r"batch=(\d+)(?:/|$)")


def query_id(checkpoint: AnyPath) -> str | None:
    """Read which query a checkpoint belongs to; batch ids mean something within one query only."""
    text = folder_at(checkpoint).read("metadata")
    try:
        return str(json.loads(text)["id"]) if text else None
    except (ValueError, KeyError, TypeError) as cause:
        raise PlanLogError(
            f"{checkpoint / 'metadata'} does not name the query ({cause!r}); restore the file from a copy"
        ) from cause


def part_name(partition: int, *, rows: int, shed: int) -> str:
    """Name the rows of one partition, with their counts."""
    return f"part-{partition}-{rows}-{shed}.parquet"


@dataclass(frozen=True, slots=True, kw_only=True)
class SpillFolder:
    """What one query has spilled."""

    path: AnyPath

    @classmethod
    def of(cls, root: AnyPath, checkpoint: AnyPath) -> SpillFolder | None:
        """Find what the query of a checkpoint has spilled; None if that query was never started."""
        query = query_id(checkpoint)
        return None if query is None else cls(path=root / f"query={query}")

    def batch(self, batch_id: int) -> AnyPath:
        """Where all executions of a batch put what they store."""
        return self.path / f"batch={batch_id}"

    def run(self, batch_id: int, run: str) -> AnyPath:
        """Where one execution of a batch puts its rows."""
        return self.batch(batch_id) / f"run={run}"

    def counts(self, batch_id: int) -> dict[str, tuple[int, int]]:
        """Count what each execution of a batch has stored: rows, and those among them that were shed."""
        counted: dict[str, tuple[int, int]] = {}
        for name in files_below(self.batch(batch_id)):
            if found := _PART.fullmatch(name):
                run, rows, shed = found.group(1), int(found.group(2)), int(found.group(3))
                so_far = counted.get(run, (0, 0))
                counted[run] = (so_far[0] + rows, so_far[1] + shed)
        return counted

    def whole(self, batch: Batch, *, every: bool) -> AnyPath | None:
        """Find an execution that stored all that the ledger has of a batch; with ``every``, also what was kept.

        What a source passed over unread is in no spill.
        """
        shed = batch.shed - batch.unread
        for run, (rows, shed_rows) in sorted(self.counts(batch.batch_id).items()):
            if shed_rows == shed and rows in ((batch.read,) if every else (batch.read, shed)):
                return self.run(batch.batch_id, run)
        return None

    def prune(self, *, before: int) -> int:
        """Remove batches before one, remember up to where, and count them."""
        outdated = sorted(number for number in self.batch_ids() if number < before)
        if outdated:
            so_far = self.pruned()
            # First the word, then the deed: a batch of which a part is left must not pass for one that was never whole.
            fields = {"before": before, "batches": so_far[1] + len(outdated)}
            folder_at(self.path).replace(PRUNED, seal(fields, version=VERSION))
        for number in outdated:
            remove_tree(self.path / f"batch={number}")
        return len(outdated)

    def pruned(self) -> tuple[int, int]:
        """Tell up to which batch the spill was pruned, and how many were removed so far."""
        text = folder_at(self.path).read(PRUNED)
        if text is None:
            return 0, 0
        fields = unseal(text, self.path / PRUNED, version=VERSION, cure="delete it: it only tells what was removed")
        return int(fields["before"]), int(fields["batches"])

    def batch_ids(self) -> set[int]:
        """List the batches of which there is anything."""
        path = self.path
        try:
            names = files_below(path) if isinstance(path, StorePath) else iter(os.listdir(path))
            return {int(found.group(1)) for name in names if (found := _BATCH.match(name))}
        except FileNotFoundError:
            return set()


def files_below(path: AnyPath) -> Iterator[str]:
    """List files below a folder, by their path within it."""
    if isinstance(path, StorePath):
        yield from store_of(path).written_at(path.key, below=True)
        return
    for file in path.rglob("*.parquet"):
        yield file.relative_to(path).as_posix()
