"""The control of a running query: round by round, with whatever fails said, tried again or passed."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, cast

from pyspark.sql.streaming.query import StreamingQuery

from penstock.control.guidance import Guidance
from penstock.model.batch import Batch
from penstock.model.errors import LeaseLostError
from penstock.spark.answers.metrics import read_misses
from penstock.spark.plan.planner import Planner
from penstock.spark.run.gaps import Gaps, Pending
from penstock.spark.run.learner import CostLearner, Counts, Learner
from penstock.spark.run.lease import Lease
from penstock.spark.run.progress import Progress, read_progress, to_batch
from penstock.spark.run.recount import RECOUNT_SECONDS
from penstock.spark.run.reports import Reports
from penstock.spark.run.trouble import Troubles
from penstock.spark.store.folder import folder_at

LOGGER = logging.getLogger(__name__)

HEARTBEAT_SECONDS = 1.0
PRUNE_EVERY_BATCHES = 50
# A store that is out of reach comes back. A batch whose plan or counts cannot be read for so long is passed.
PATIENCE_SECONDS = 30.0
# How long a run that has ended goes on counting batches again.
LAST_SECONDS = 10.0
# A query that cannot even be asked whether it runs, for so long, is taken to be gone.
CONTACT_SECONDS = 60.0


class Control:
    """Takes in the reports of a query, enters its batches, has the learners learn, and renews what plans are made from.

    Nothing but the end of the query ends it, or another driver that has taken the checkpoint over.

    Parameters
    ----------
    learners
        The parts, by name, in the order in which they learn.
    catch_up
        Whether the query ends once it has read what waits.
    tidy
        Keeps what is stored of batches within bounds; gets the id of the newest.
    finished
        Is told of every batch that was taken in.
    """

    def __init__(
        self,
        *,
        planner: Planner,
        lease: Lease,
        gaps: Gaps,
        learners: Mapping[str, Learner],
        catch_up: bool,
        tidy: Callable[[int], None] | None,
        finished: Callable[[Batch], None],
    ) -> None:
        self._planner = planner
        self.lease = lease
        self.gaps = gaps
        self.learners = learners
        self._costs = cast(CostLearner, learners["costs"])
        self._pending = Pending(lease=lease, gaps=gaps, learners=list(learners.values()))
        self._catch_up = catch_up
        self._tidy = tidy
        self._finished = finished
        self._troubles = Troubles()
        self.lost: Exception | None = None
        self._misses = ""
        self._planned_before: frozenset[int] = frozenset()
        self._previous: Batch | None = None
        self._published_at = -HEARTBEAT_SECONDS
        self._prune_due: int | None = None
        self._impatient: tuple[int, float] = (-1, 0.0)

    def prepare(self) -> int:
        """Count again what was missed, and publish; return the id of the last batch that was committed."""
        planner = self._planner
        self.gaps.look()
        for batch, counts in self.gaps.close(every=True, seconds=RECOUNT_SECONDS):
            self._pending.put(batch, counts)
            self._pending.write()
        self.gaps.save(self.lease)
        self._planned_before = frozenset(planner.log.batch_ids())
        self._renew()
        return max(folder_at(planner.checkpoint / "commits").ids(), default=-1)

    def run(self, query: StreamingQuery, reports: Reports) -> None:
        """Go round until the query has ended, or this driver may not go on."""
        try:
            active, asked_at = True, time.monotonic()
            while active:
                try:
                    # Asked before the reports are read, so that what was committed last is still entered.
                    active, asked_at = query.isActive, time.monotonic()
                    self._troubles.over("contact")
                except Exception as trouble:
                    if time.monotonic() - asked_at > CONTACT_SECONDS:
                        raise
                    self._troubles.say("contact", f"Spark does not answer ({trouble!r})", trouble)
                self._go_round(reports, last=not active)
                if active:
                    previous_seconds = self._previous.duration_seconds if self._previous else None
                    time.sleep(reports.pause_seconds(previous_seconds or 0.0))
        except Exception as lost:
            self.lost = lost
            LOGGER.error("the control of the query has ended: %s", lost)
            _quietly(query.stop, "the query could not be stopped")
        finally:
            # Only now: the query writes nothing more either.
            _quietly(self.lease.release, "the lease could not be released")

    def end(self) -> None:
        """Leave word that nobody controls a query on this checkpoint any more, unless another driver does by now."""
        try:
            self.lease.check()
            self._planner.log.publish(self._known(stopped=True))
        except LeaseLostError:
            return
        except Exception as trouble:
            # Then plans of a query without controller rest on the last guidance for the grace, as after a crash.
            LOGGER.warning("the end of the run could not be noted in %s: %r", self._planner.log.path, trouble)

    @property
    def silent(self) -> bool:
        """Whether the guidance is not renewed."""
        return "learning" in self._troubles or "guidance" in self._troubles

    @property
    def note(self) -> str:
        """What is wrong now; empty if nothing is."""
        if self.lost is not None:
            return str(self.lost) if isinstance(self.lost, LeaseLostError) else f"control has ended: {self.lost!r}"
        found = list(self._troubles.words)
        if found:
            found.append("this is tried again")
        if self.silent:
            grace_seconds = self._planner.target.grace_seconds
            found.append(f"the query goes on with the last guidance for {grace_seconds:.0f} s, then keeps all")
        if waiting := self.gaps.waiting:
            first = min(waiting)
            more = f" and {len(waiting) - 1} more" if len(waiting) > 1 else ""
            found.append(f"batch {first}{more} will be counted again: {waiting[first]}")
        if fresh := self.gaps.fresh:
            found.append(str(fresh[-1]) + (f"; and {len(fresh) - 1} such gaps more" if len(fresh) > 1 else ""))
        return "; ".join([*found, self._misses] if self._misses else found)

    def _go_round(self, reports: Reports, *, last: bool) -> None:
        """Do all that is due; what fails is tried again in a later round, or at once if this is the ``last``."""
        attempt = partial(self._troubles.attempt, now=last)
        if last:
            # Spark itself may have stopped this query, or the other: then that is what has happened.
            attempt("lease", "nobody can tell whether another driver has taken over", self.lease.check)
        attempt("reports", "Spark's reports cannot be taken in", partial(self._take_in, reports, last=last))
        if len(self._pending):
            attempt("ledger", "batches cannot be entered in the ledger", self._pending.write)
        if self.gaps.waiting and "ledger" not in self._troubles:
            attempt("gaps", "missed batches cannot be counted again", partial(self._close_gaps, last=last))
        attempt("noting gaps", "gaps of the ledger cannot be noted", partial(self.gaps.save, self.lease))
        if time.monotonic() - self._published_at > HEARTBEAT_SECONDS:
            attempt("guidance", "guidance cannot be published", self._renew)
        if self._prune_due is not None:
            attempt("pruning", "what belongs to old batches cannot be removed", self._prune)

    def _take_in(self, reports: Reports, *, last: bool) -> None:
        """Handle every report that is new: each batch once, in order."""
        if not (last or reports.due()):
            return
        taken = False
        for batch_id, report in reports.fresh():
            self.gaps.suspect(reports.missed(batch_id), "Spark had dropped the report before it was read")
            try:
                self._handle(batch_id, report)
            except LeaseLostError:
                raise
            except Exception as trouble:
                if isinstance(trouble, OSError) and self._is_patient(batch_id):
                    raise
                LOGGER.error("batch %d cannot be taken in and is passed", batch_id, exc_info=trouble)
                self.gaps.suspect([batch_id], f"it could not be taken in ({trouble!r})")
            reports.passed(batch_id)
            taken = True
        if taken:
            self._troubles.attempt("guidance", "guidance cannot be published", self._renew)

    def _is_patient(self, batch_id: int) -> bool:
        """Whether a batch whose plan or counts are out of reach is still waited for."""
        if self._impatient[0] != batch_id:
            self._impatient = (batch_id, time.monotonic() + PATIENCE_SECONDS)
        return time.monotonic() < self._impatient[1]

    def _handle(self, batch_id: int, report: Mapping[str, Any]) -> None:
        """Learn from a batch and enter it."""
        progress, decision = read_progress(report), self._planner.log.decision(batch_id)
        if progress is None or decision is None:
            # Spark runs batches without rows to move the watermark; where it skips the subquery there is no plan.
            return
        counts = self._counts(progress)
        replayed = not counts.own or batch_id in self._planned_before
        if progress.offset_units and not counts.own.get("offered") and replayed:
            # A sink that had this batch already skips its replay, and nothing is observed: count it apart.
            self.gaps.suspect([batch_id], "nothing was observed, as when a sink had it already")
            return
        if not counts.own:
            return
        batch = to_batch(
            progress,
            counts.own,
            decision,
            previous_started_at=self._previous.started_at if self._previous else None,
            tuples_per_unit=self._costs.known.tuples_per_unit,
        )
        if (branches := counts.branches) is not None:
            batch = replace(batch, outputs=branches.drops())
        self._previous = batch
        self._learn(batch, counts)
        self._pending.put(batch, counts)
        self._troubles.attempt("ledger", "batches cannot be entered in the ledger", self._pending.write)
        self._warn_of_misses(progress)
        if batch_id % PRUNE_EVERY_BATCHES == 0:
            self._prune_due = batch_id
        self._finished(batch)

    def _counts(self, progress: Progress) -> Counts:
        name = self._planner.name
        own = progress.observed.get(name) or self._planner.counts(progress.batch_id) or {}
        # As the planner counts them: the report names a source once that the query reads twice.
        units = self._planner.units_by_source(progress.batch_id)
        return Counts(name=name, observed={**progress.observed, name: own}, units_by_source=units)

    def _learn(self, batch: Batch, counts: Counts) -> None:
        """Let the parts learn, one after the other; what one cannot learn, those behind it do not see either."""
        batch_id = batch.batch_id
        for learner in self.learners.values():
            try:
                batch = learner.learn(batch, counts)
            except Exception as trouble:
                words = f"{learner.learns} cannot be learned from batch {batch_id}, which is passed ({trouble!r})"
                self._troubles.say("learning", words, trouble)
                return
        self._troubles.over("learning")

    def _close_gaps(self, *, last: bool) -> None:
        """Count one batch again that was missed; at the end as many as can be done soon, for a later start the rest."""
        self.lease.check()
        ends_at = time.monotonic() + LAST_SECONDS
        for batch, counts in self.gaps.close(every=last):
            self._pending.put(batch, counts)
            try:
                self._pending.write()
            finally:
                self._finished(batch)
            if time.monotonic() > ends_at:
                return

    def _warn_of_misses(self, progress: Progress) -> None:
        """Say which answers are further off than their targets allow, where they were to be given out all the same."""
        missed = read_misses(progress.observed)
        self._misses = f"batch {progress.batch_id}: {'; '.join(missed)}" if missed else ""
        if missed:
            LOGGER.warning("%s", self._misses)

    def _renew(self) -> None:
        """Renew what plans are made from, unless nothing is learned: then plans are to notice the silence."""
        self.lease.check()
        # A clock that is set back must not silence the controller until it has caught up.
        self._published_at = time.monotonic()
        if "learning" in self._troubles:
            return
        self._planner.log.publish(self._known(stopped=False))

    def _known(self, *, stopped: bool) -> Guidance:
        """All that the parts have learned; what an earlier run has left says, too, that it has ended."""
        known = replace(self._costs.known, catch_up=self._catch_up, epoch=self.lease.epoch, stopped=stopped)
        for learner in self.learners.values():
            known = learner.guidance(known)
        return known

    def _prune(self) -> None:
        """Drop what belongs to batches that Spark has dropped from its own log."""
        self.lease.check()
        replayable = folder_at(self._planner.checkpoint / "offsets").ids()
        if replayable:
            self._planner.log.prune(before=replayable[0])
        if self._tidy is not None and self._prune_due is not None:
            self._tidy(self._prune_due)
        self._prune_due = None


def _quietly(act: Callable[[], object], words: str) -> None:
    try:
        act()
    except Exception:
        LOGGER.warning("%s", words, exc_info=True)
