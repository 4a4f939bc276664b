"""The handle on a running query: measure each batch, learn from it, publish guidance."""

from __future__ import annotations

import logging
import re
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from penstock.control.controller import Controller
from penstock.model import errors
from penstock.model.batch import Batch
from penstock.model.branches import BranchCounts
from penstock.model.errors import NotSupportedError, PenstockError
from penstock.spark.answers.metrics import OUTPUT_METRICS, read_branches, read_misses
from penstock.spark.classic import catches_up
from penstock.spark.plan.planner import Planner
from penstock.spark.run.ledger import Ledger
from penstock.spark.run.progress import Progress, read_progress, skewed_partition, to_batch
from penstock.spark.store.folder import folder_at, require_exclusive
from penstock.spark.store.paths import AnyPath, spark_address

LOGGER = logging.getLogger(__name__)

# Asking Spark for its last report takes some milliseconds of a core. Where commits are files, a look at their folder
# tells when to ask; else Spark is asked no more than ten times a batch, once batches are long enough. A plan cannot use
# what its predecessor has just taught anyway, for it is made right after the commit.
POLL_SECONDS, LONGEST_POLL_SECONDS = 0.05, 0.25
POLLS_PER_BATCH = 10
HEARTBEAT_SECONDS = 1.0
PRUNE_EVERY_BATCHES = 50
REMEMBERED_BATCHES = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """What a person wants to know of a running query, at one glance."""

    active: bool
    controlled: bool
    batches: int
    offered: int
    kept: int
    shed: int
    last: Batch | None
    note: str

    def __str__(self) -> str:
        last = self.last
        state = "running" if self.active else "stopped"
        lines = [
            f"{state}: {self.batches:,} batches, {self.offered:,} offered = {self.kept:,} kept + {self.shed:,} shed"
        ]
        if last is not None:
            latency = "unknown" if last.latency_seconds is None else f"{last.latency_seconds:.2f} s"
            lines.append(f"batch {last.batch_id}: keep {last.keep:.3f}, latency {latency}; {last.reason}")
            if skew := skewed_partition(last):
                lines.append(skew)
        if self.note:
            lines.append(self.note)
        return "\n".join(lines)


class Run:
    """A started query under control; made by :meth:`Shedder.start <penstock.spark.shed.Shedder.start>`.

    Leaving its ``with`` block stops the query. If the controller fails, the query goes on: with the last guidance
    for the governor's ``grace_seconds``, then keeping all; :attr:`status` says so.
    """

    def __init__(
        self,
        *,
        spark: SparkSession,
        writer: DataStreamWriter,
        planner: Planner,
        close_gaps: Callable[[Ledger], list[Batch]],
        tidy: Callable[[int], None] | None = None,
    ) -> None:
        self._spark = spark
        self._tidy = tidy
        self._close_gaps = close_gaps
        self._planner = planner
        self._log = planner.log
        require_exclusive(self._log.path)
        self._ledger = Ledger(self._log.path / "ledger")
        close_gaps(self._ledger)
        self._planned_before = frozenset(self._log.batch_ids())
        self._controller = Controller(planner.governor, resume=planner.resume())
        self._batches: deque[Batch] = deque(maxlen=REMEMBERED_BATCHES)
        self._totals = (0, 0, 0)
        self._handled = 0
        self._changed = threading.Condition(threading.RLock())
        self._failure: Exception | None = None
        self._trouble: Exception | None = None
        self._misses = ""
        self._last_id = -1
        self._previous_started_at: float | None = None
        self._published_at = self._asked_at = -HEARTBEAT_SECONDS
        self._catch_up = catches_up(writer)
        self._publish()
        self.query = self._start_query(writer.option("checkpointLocation", spark_address(planner.checkpoint)))
        try:
            require_visible(planner.checkpoint)
        except PenstockError:
            self.query.stop()
            raise
        self._thread = threading.Thread(target=self._control, name="penstock-controller", daemon=True)
        self._thread.start()

    def _start_query(self, writer: DataStreamWriter) -> StreamingQuery:
        return writer.start()

    def __enter__(self) -> Run:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def batches(self) -> list[Batch]:
        """Batches that this run has finished, oldest first."""
        with self._changed:
            return list(self._batches)

    @property
    def status(self) -> Status:
        """How the query stands now."""
        with self._changed:
            offered, kept, shed = self._totals
            return Status(
                active=self.query.isActive,
                controlled=self._failure is None and self._trouble is None and self._thread.is_alive(),
                batches=self._handled,
                offered=offered,
                kept=kept,
                shed=shed,
                last=self._batches[-1] if self._batches else None,
                note=self._note(),
            )

    def _note(self) -> str:
        grace_seconds = self._planner.governor.grace_seconds
        if self._failure is not None:
            return (
                f"the controller stopped ({self._failure!r}); the query goes on with the last guidance for "
                f"{grace_seconds:.0f} s, then keeps all"
            )
        if self._trouble is not None:
            return (
                f"batches cannot be entered in the ledger, nor guidance published ({self._trouble!r}); this is tried "
                f"again, and the query goes on with the last guidance for {grace_seconds:.0f} s, then keeps all"
            )
        return self._misses

    def watch(self) -> Iterator[Batch]:
        """Yield batches as they finish, until the query stops; raise what it failed with."""
        seen = 0
        while True:
            with self._changed:
                if self._handled == seen and self._thread.is_alive():
                    self._changed.wait(timeout=0.5)
                fresh = list(self._batches)[-(self._handled - seen) :] if self._handled > seen else []
                seen = self._handled
            yield from fresh
            if not fresh and not self._thread.is_alive():
                self._raise_failure()
                return

    def ledger(self, *, last: int | None = None) -> DataFrame:
        """The ledger of all runs on this checkpoint, as a DataFrame, or the ``last`` so many batches of it.

        It holds what was entered when it was made, and can be read for ten minutes: then make a new one.
        """
        return self._ledger.frame(self._spark, last=last)

    @property
    def ledger_path(self) -> str:
        """Folder of the ledger's files."""
        return str(self._ledger.path)

    def await_termination(self, timeout_seconds: float | None = None) -> bool:
        """Wait until the query ends, and raise what it failed with; False if it still runs after the time."""
        self._thread.join(timeout_seconds)
        if self._thread.is_alive():
            return False
        self._raise_failure()
        return True

    def stop(self) -> None:
        """Stop the query and enter what it still finished."""
        self.query.stop()
        self._thread.join()
        self._say_stopped()

    def _raise_failure(self) -> None:
        failure = self.query.exception()
        if failure is not None:
            raise own_error(failure) or failure from failure

    def _control(self) -> None:
        """Poll, learn, publish, until the query ends; trouble is said once and tried again."""
        active = True
        while active:
            # Asked before the reports are read, so that what was committed last is still entered.
            active = self.query.isActive
            try:
                if not active or self._may_have_news():
                    self._take_in()
                if time.monotonic() - self._published_at > HEARTBEAT_SECONDS:
                    self._publish()
                self._trouble = None
            except Exception as trouble:
                if repr(trouble) != repr(self._trouble):
                    self._trouble = trouble
                    LOGGER.error("%s", self.status.note, exc_info=trouble)
            if active:
                time.sleep(self._pause_seconds())
        with self._changed:
            self._changed.notify_all()

    def _pause_seconds(self) -> float:
        last_seconds = (self._batches[-1].duration_seconds or 0.0) if self._batches else 0.0
        return min(max(POLL_SECONDS, last_seconds / POLLS_PER_BATCH), LONGEST_POLL_SECONDS)

    def _may_have_news(self) -> bool:
        """Tell whether to ask Spark for its reports: after a commit, and once in a while."""
        commits = self._planner.checkpoint / "commits"
        if isinstance(commits, Path) and time.monotonic() - self._asked_at < HEARTBEAT_SECONDS:
            return max(folder_at(commits).ids(), default=-1) > self._last_id
        return True

    def _take_in(self) -> None:
        """Handle every report that is new."""
        self._asked_at = time.monotonic()
        last = self.query.lastProgress
        if not last:
            return
        idle = read_progress(last) is None
        # An idle report bears the id of the batch to come.
        newest_id = last["batchId"] - idle
        if newest_id <= self._last_id:
            return
        reports = [last]
        if idle or newest_id > self._last_id + 1:
            # More than one report since the last look: Spark remembers the latest hundred.
            reports = list(self.query.recentProgress)
        for report in reports:
            fresh = read_progress(report)
            if fresh is not None and fresh.batch_id > self._last_id:
                self._handle(fresh)
                self._last_id = fresh.batch_id
        self._publish()

    def _handle(self, progress: Progress) -> None:
        decision = self._log.decision(progress.batch_id)
        counts = self._counts(progress)
        if decision is None or counts is None:
            # Spark runs batches without rows to move the watermark; where it skips the subquery there is no plan.
            return
        if not counts["offered"] and progress.offset_units and progress.batch_id in self._planned_before:
            # A sink that had this batch already skips its replay, and nothing is observed: count it apart.
            for recounted in self._close_gaps(self._ledger):
                self._remember(recounted)
            return
        # As the planner counts them: the report names a source once that the query reads twice.
        progress = replace(progress, units_by_source=self._planner.units_by_source(progress.batch_id))
        known = self._controller.guidance(now=progress.committed_at)
        batch = to_batch(
            progress,
            counts,
            decision,
            previous_started_at=self._previous_started_at,
            tuples_per_unit=known.tuples_per_unit,
        )
        if (branches := self._branches(progress)) is not None:
            batch = replace(batch, outputs=branches.drops())
        self._previous_started_at = progress.started_at
        self._ledger.append(batch)
        self._learn(batch, progress)
        self._warn_of_misses(progress)
        if batch.batch_id % PRUNE_EVERY_BATCHES == 0:
            self._prune()
            if self._tidy is not None:
                self._tidy(batch.batch_id)
        self._remember(batch)

    def _remember(self, batch: Batch) -> None:
        with self._changed:
            self._batches.append(batch)
            self._handled += 1
            offered, kept, shed = self._totals
            self._totals = (offered + batch.offered, kept + batch.kept, shed + batch.shed)
            self._changed.notify_all()

    def _branches(self, progress: Progress) -> BranchCounts | None:
        return read_branches(progress.observed.get(f"{self._planner.name}{OUTPUT_METRICS}"))

    def _learn(self, batch: Batch, progress: Progress) -> None:
        """Learn from a batch; a failure ends the controlling, but neither the counting nor the query."""
        if self._failure is not None:
            return
        try:
            sampled = (self._counts(progress) or {}).get("sampled_keys")
            self._controller.learn(
                batch,
                units_by_source=progress.units_by_source,
                branches=self._branches(progress),
                sampled_keys=sampled,
            )
        except Exception as failure:
            self._failure = failure
            LOGGER.error("%s", self.status.note, exc_info=failure)

    def _warn_of_misses(self, progress: Progress) -> None:
        """Say which answers are further off than their targets allow, where they were to be given out all the same."""
        missed = read_misses(progress.observed)
        self._misses = f"batch {progress.batch_id}: {'; '.join(missed)}" if missed else ""
        if missed:
            LOGGER.warning("%s", self._misses)

    def _counts(self, progress: Progress) -> Any:
        return progress.observed.get(self._planner.name) or self._planner.counts(progress.batch_id)

    def _publish(self) -> None:
        if self._failure is not None:
            return
        # A clock that is set back must not silence the controller until it has caught up.
        self._published_at = time.monotonic()
        known = self._controller.guidance(now=time.time())
        self._published = replace(known, catch_up=self._catch_up, stopped=False)
        self._log.publish(self._published)

    def _say_stopped(self) -> None:
        """Leave word that nobody controls a query on this checkpoint any more, unless another run does by now."""
        try:
            found = self._log.guidance()
            if found is not None and found.published_at == self._published.published_at:
                self._log.publish(replace(found, stopped=True))
        except (OSError, PenstockError) as trouble:
            # Then plans of a query without controller rest on the last guidance for the grace, as after a crash.
            LOGGER.warning("the end of the run could not be noted in %s: %r", self._log.path, trouble)

    def _prune(self) -> None:
        """Drop the plans of batches that Spark has dropped from its own log."""
        replayable = folder_at(self._planner.checkpoint / "offsets").ids()
        if replayable:
            self._log.prune(before=replayable[0])


def require_visible(checkpoint: AnyPath, *, wait_seconds: float = 5.0) -> None:
    """Refuse a checkpoint that Spark has written to and this process does not see."""
    ends_at = time.monotonic() + wait_seconds
    while not folder_at(checkpoint).exists("metadata"):
        if time.monotonic() > ends_at:
            raise NotSupportedError(
                f"the query has started, but its checkpoint {checkpoint} is not seen from here: driver and executors "
                "(with Spark Connect: server and client) must share that folder under this path; mount it here too"
            )
        time.sleep(0.05)


def own_error(failure: Exception) -> PenstockError | None:
    """Find the error that Penstock raised in a worker inside what Spark wrapped around it."""
    cause: Any = failure
    while cause is not None:
        found = re.search(r"penstock\.model\.errors\.(\w+): (.+)", f"{cause}\n{getattr(cause, '_stackTrace', '')}")
        if found is not None:
            kind = getattr(errors, found.group(1), PenstockError)
            error: PenstockError = kind(found.group(2).strip())
            return error
        cause = getattr(cause, "_cause", None)
    return None
