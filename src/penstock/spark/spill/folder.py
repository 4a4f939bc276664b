"""The layout of a spill, and what is whole in it.

``query=<id>/batch=<id>/run=<id>/part-<partition>-<attempt>-<rows>-<shed>-<writer>.parquet``. A batch that is replayed
may be split into other partitions, so each execution of a batch has a folder of its own, and files of two are never
mixed. Within one, a task may be tried again or twice at a time, and may write several files, where ``coalesce`` has it
compute several partitions under one number: no two writers share a name, and of each partition one attempt is read.
Which executions are whole is told by the ledger: their counts stand in the names.
"""

from __future__ import annotations

import json
import os
import re
import uuid
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from penstock.model.batch import Batch
from penstock.model.errors import PlanLogError
from penstock.spark.store.checksummed import seal, unseal
from penstock.spark.store.folder import folder_at, remove_tree
from penstock.spark.store.objects import store_of
from penstock.spark.store.paths import AnyPath, StorePath

VERSION = 1
PRUNED = "_pruned.json"
_PART = re.compile(r"run=([^/]+)/part-(\d+)-(\d+)-(\d+)-(\d+)-[0-9a-f]+\.parquet")
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


def part_name(partition: int, attempt: int, *, rows: int, shed: int) -> str:
    """Name the rows that one writer stored of a partition, with their counts; never twice the same."""
    return f"part-{partition}-{attempt}-{rows}-{shed}-{uuid.uuid4().hex}.parquet"


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """What one execution of a batch has stored: one attempt of each of its tasks."""

    name: str
    rows: int
    shed: int
    # Files, or the folder where it holds nothing else.
    paths: tuple[AnyPath, ...]

    @classmethod
    def of(cls, name: str, folder: AnyPath, files: Iterable[tuple[str, tuple[int, ...]]]) -> Run:
        """Choose, of files with their partition, attempt, rows and shed rows, one attempt for each partition.

        All attempts of a task see the same rows. So the one that has most is whole if any of them is.
        """
        attempts: dict[int, dict[int, list[tuple[str, int, int]]]] = {}
        for file, (partition, attempt, rows, shed) in files:
            attempts.setdefault(partition, {}).setdefault(attempt, []).append((file, rows, shed))
        chosen = [
            max((tried[number] for number in sorted(tried)), key=lambda some: sum(rows for _, rows, _ in some))
            for _, tried in sorted(attempts.items())
        ]
        parts = [part for some in chosen for part in some]
        only = all(len(tried) == 1 for tried in attempts.values())
        return cls(
            name=name,
            rows=sum(rows for _, rows, _ in parts),
            shed=sum(shed for _, _, shed in parts),
            paths=(folder,) if only else tuple(folder / file for file, _, _ in parts),
        )


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

    def runs(self, batch_id: int) -> list[Run]:
        """List what each execution of a batch has stored."""
        files: dict[str, list[tuple[str, tuple[int, ...]]]] = {}
        for name in files_below(self.batch(batch_id)):
            if found := _PART.fullmatch(name):
                file = name.rpartition("/")[2]
                files.setdefault(found.group(1), []).append((file, tuple(map(int, found.groups()[1:]))))
        return [Run.of(name, self.run(batch_id, name), some) for name, some in sorted(files.items())]

    def whole(self, batch: Batch, *, every: bool) -> Run | None:
        """Find an execution that stored all that the ledger has of a batch; with ``every``, also what was kept.

        What a source passed over unread is in no spill.
        """
        shed = batch.shed - batch.unread
        rows = (batch.read,) if every else (batch.read, shed)
        return self.find(batch, lambda run: run.shed == shed and run.rows in rows)

    def find(self, batch: Batch, fits: Callable[[Run], bool]) -> Run | None:
        """Find an execution of a batch by what it has stored; the first one, for those that fit hold the same rows."""
        return next(filter(fits, self.runs(batch.batch_id)), None)

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
