"""Batches on their way into the ledger, and committed ones that it lacks: those are counted again, or named."""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Protocol

from penstock.model.batch import Batch
from penstock.model.errors import LeaseLostError, PlanLogError
from penstock.spark.plan.planner import Planner
from penstock.spark.run.learner import Counts, Learner
from penstock.spark.run.lease import Lease
from penstock.spark.run.ledger import Ledger
from penstock.spark.store.checksummed import seal, unseal
from penstock.spark.store.folder import folder_at

LOGGER = logging.getLogger(__name__)

NAMED, VERSION = "gaps.json", 1
# Beside a running query a recount is kept short, and recounts take at most half of the time.
BESIDE_SECONDS = 15.0
TRIES = 3
NAMED_AT_MOST = 1_000
# What waits for a disk that is full. Beyond that, batches are counted again when there is room.
WAITING_AT_MOST = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """Batches, from the first to the last, that were committed and have no entry in the ledger."""

    first: int
    last: int
    reason: str

    def __str__(self) -> str:
        which = f"batch {self.first} was" if self.first == self.last else f"batches {self.first} to {self.last} were"
        return f"{which} committed and not entered: {self.reason}"


class Recount(Protocol):
    """Counts one committed batch again."""

    def __call__(self, batch_id: int, *, seconds: float) -> tuple[Batch, Counts] | None:
        """Count a batch, in about so many seconds at most; None if its rows can no longer be read."""


class Gaps:
    """The batches of a checkpoint without an entry.

    They are found at a start, and while the query runs. Those that nobody can count again are noted beside the plan
    log, in ``gaps.json``; a later start tries them once more, as long as Spark holds their offsets.
    """

    def __init__(self, *, planner: Planner, ledger: Ledger, recount: Recount) -> None:
        self.ledger = ledger
        self._planner = planner
        self._recount = recount
        self._waiting: dict[int, str] = {}
        self._tries: dict[int, int] = {}
        self._named = self._noted()
        self._saved = list(self._named)
        self._fresh: list[Gap] = []
        self._not_before = 0.0

    @property
    def named(self) -> list[Gap]:
        """Gaps that stay open."""
        return list(self._named)

    @property
    def fresh(self) -> list[Gap]:
        """Gaps that this run has found and that stay open."""
        return list(self._fresh)

    @property
    def waiting(self) -> Mapping[int, str]:
        """Batches that are still to be counted again, and why they have no entry yet."""
        return dict(self._waiting)

    def look(self) -> None:
        """Look through what is committed, as at a start."""
        committed, reason = self._committed(), "its counts died with the driver"
        # What an earlier run has named may have been entered since.
        self._named = [gap for gap in self._named if self.ledger.missing(range(gap.first, gap.last + 1))]
        for batch_id in self.ledger.missing(set(self._planner.log.batch_ids()).intersection(committed)):
            self._waiting[batch_id] = reason
        last_id = self.ledger.last_id
        if last_id is not None and committed and committed[0] > last_id + 1:
            self.suspect(range(last_id + 1, committed[0]), reason)

    def suspect(self, batch_ids: Iterable[int], reason: str) -> None:
        """Note batches that may have been committed without being counted, and why."""
        listed = sorted(batch_ids) if not isinstance(batch_ids, range) else batch_ids
        if not listed:
            return
        committed = self._committed()
        oldest = committed[0] if committed else 0
        if gone := [listed[0], min(listed[-1], oldest - 1)] if listed[0] < oldest else []:
            # Whether all of these held rows is not known any more: Spark runs batches without rows as well.
            self.name(gone[0], gone[1], f"{reason}, and Spark has dropped the offsets to count again from")
        planned = set(self._planner.log.batch_ids())
        # A batch without a plan is one without rows: Spark skips the subquery.
        for batch_id in self.ledger.missing(planned.intersection(committed).intersection(listed)):
            self._waiting.setdefault(batch_id, reason)

    def name(self, first: int, last: int, reason: str) -> None:
        """Note a gap that stays open, and say so."""
        gap = Gap(first=first, last=last, reason=reason)
        LOGGER.warning("%s", gap)
        self._named = _with(gap, self._named)
        self._fresh = _with(gap, self._fresh)

    def close(self, *, every: bool = False, seconds: float = BESIDE_SECONDS) -> Iterator[tuple[Batch, Counts]]:
        """Count batches again and give what was counted: one, if it is its turn, or every one that waits."""
        for batch_id in sorted(self._waiting):
            began_at = time.monotonic()
            if not every and began_at < self._not_before:
                return
            found = self._try(batch_id, seconds)
            ended_at = time.monotonic()
            self._not_before = ended_at + (ended_at - began_at)
            if found is not None:
                self._forget(batch_id)
                yield found
            if not every:
                return

    def save(self, lease: Lease) -> None:
        """Keep the gaps that stay open where later runs, and people, find them."""
        if self._named != self._saved:
            lease.check()
            fields = {"gaps": [asdict(gap) for gap in self._named]}
            folder_at(self._planner.log.path).replace(NAMED, seal(fields, version=VERSION))
            self._saved = list(self._named)

    def _try(self, batch_id: int, seconds: float) -> tuple[Batch, Counts] | None:
        reason = "its rows can no longer be read"
        try:
            found = self._recount(batch_id, seconds=seconds)
        except LeaseLostError:
            raise
        except Exception as trouble:
            LOGGER.warning("batch %d could not be counted again", batch_id, exc_info=trouble)
            self._tries[batch_id] = self._tries.get(batch_id, 0) + 1
            if self._tries[batch_id] < TRIES:
                return None
            found, reason = None, f"it cannot be counted again ({trouble!r})"
        self._waiting.pop(batch_id)
        self._tries.pop(batch_id, None)
        if found is None:
            self.name(batch_id, batch_id, reason)
        return found

    def _forget(self, batch_id: int) -> None:
        """Take a batch out of the gaps that stay open."""
        for gap in [gap for gap in self._named if gap.first <= batch_id <= gap.last]:
            self._named.remove(gap)
            for first, last in ((gap.first, batch_id - 1), (batch_id + 1, gap.last)):
                if first <= last:
                    self._named.append(Gap(first=first, last=last, reason=gap.reason))
        self._named.sort(key=lambda gap: gap.first)

    def _committed(self) -> list[int]:
        return folder_at(self._planner.checkpoint / "commits").ids()

    def _noted(self) -> list[Gap]:
        path = self._planner.log.path
        if (text := folder_at(path).read(NAMED)) is None:
            return []
        noted = unseal(text, path / NAMED, version=VERSION, cure="delete it: gaps are then found again")
        return [Gap(**fields) for fields in noted["gaps"]]


class Pending:
    """Enters batches in order, and keeps those that cannot be written for a later try; none after the lease is lost.

    What the learners store beside an entry is written first, so that no entry is without it.
    """

    def __init__(self, *, lease: Lease, gaps: Gaps, learners: Sequence[Learner]) -> None:
        self._lease = lease
        self._gaps = gaps
        self._learners = learners
        self._waiting: deque[tuple[Batch, Counts]] = deque()

    def __len__(self) -> int:
        return len(self._waiting)

    def put(self, batch: Batch, counts: Counts) -> None:
        """Add a batch to those that wait; :meth:`write` enters it."""
        self._waiting.append((batch, counts))
        if len(self._waiting) > WAITING_AT_MOST:
            oldest, _ = self._waiting.popleft()
            self._gaps.suspect([oldest.batch_id], "the ledger could not be written for long")

    def write(self) -> None:
        """Enter all that waits, oldest first; raise at the first that cannot be written, which then waits on."""
        while self._waiting:
            batch, counts = self._waiting[0]
            self._lease.check()
            try:
                for learner in self._learners:
                    learner.enter(batch, counts)
                self._gaps.ledger.append(batch)
            except PlanLogError as refused:
                # It was entered before with other counts: no later try will change that.
                self._gaps.name(batch.batch_id, batch.batch_id, f"the ledger refuses its counts ({refused})")
            self._waiting.popleft()


def _with(gap: Gap, gaps: list[Gap]) -> list[Gap]:
    """Put a gap among others, in order, and those together that follow on each other for the same reason."""
    found: list[Gap] = []
    others = [known for known in gaps if not gap.first <= known.first <= known.last <= gap.last]
    for each in sorted([*others, gap], key=lambda gap: (gap.first, gap.last)):
        if found and found[-1].reason == each.reason and each.first <= found[-1].last + 1:
            found[-1] = Gap(first=found[-1].first, last=max(found[-1].last, each.last), reason=each.reason)
        else:
            found.append(each)
    return found[-NAMED_AT_MOST:]
