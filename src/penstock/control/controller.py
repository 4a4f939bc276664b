"""Learn from finished batches: events in, guidance out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from penstock.control.branches import BranchLearner
from penstock.control.concept_memory import ConceptMemory
from penstock.control.cost import CostModel
from penstock.control.guidance import Guidance, collecting_seconds, fade, foreign_units, probe_rows
from penstock.control.sources import SourceLearner
from penstock.control.target import Target
from penstock.model.batch import Batch
from penstock.model.branches import BranchCounts, Branches

# A batch that fills its time takes about this part of it, the rest being margin.
FULL = 0.8


class Controller:
    """Turn finished batches into guidance for the next ones.

    It measures nothing and touches nothing: Spark's runtime and the simulator feed it the same way.

    Examples
    --------
    >>> controller = Controller(Target(latency_seconds=5.0))
    >>> for batch_id, kept in enumerate((100, 5_000, 10_000, 20_000)):
    ...     controller.learn(
    ...         Batch(
    ...             batch_id=batch_id,
    ...             offered=kept,
    ...             kept=kept,
    ...             shed=0,
    ...             keep=1.0,
    ...             reason="fits",
    ...             started_at=batch_id * 3.0,
    ...             duration_seconds=0.2 + kept * 1e-4,
    ...         ),
    ...         units_by_source=(kept,),
    ...     )
    >>> guidance = controller.guidance(now=12.0)
    >>> round(guidance.cost.kept_seconds * 1e6), guidance.tuples_per_unit
    (95, (1.0,))
    """

    def __init__(self, target: Target, *, resume: Guidance | None = None) -> None:
        self._target = target
        self._model = CostModel(late_share=target.late_share, full_seconds=FULL * target.batch_seconds)
        self._branches = BranchLearner()
        # What the run before committed says nothing about how long the source was idle: the query itself was down.
        self._known = replace(resume or Guidance(published_at=0.0), batch_id=None, committed_at=None)
        self._previous: Batch | None = None
        self._sources = SourceLearner(self._known.tuples_per_unit)
        self._memory = ConceptMemory(self._known.key_shares)

    def learn(
        self,
        batch: Batch,
        *,
        units_by_source: Sequence[float | None] = (),
        branches: BranchCounts | None = None,
        sampled_keys: Sequence[str] | None = None,
    ) -> None:
        """Take in a finished batch, and the keys of a sample of it if there is one; batches must come in order."""
        known = self._known
        self._sources.learn(units_by_source, tuples=batch.read)
        if batch.duration_seconds:
            worked: float = batch.kept
            if branches is not None:
                self._branches.learn(batch, branches, seconds=batch.duration_seconds)
                worked = self._branches.worked(batch, branches)
            # What was not even read cost nothing.
            dropped = batch.offered - batch.unread - worked
            self._model.learn(
                kept=worked,
                shed=dropped,
                foreign=foreign_units(units_by_source, self._sources.tuples_per_unit),
                seconds=batch.duration_seconds,
                overhead_seconds=batch.overhead_seconds,
            )
            late = self._target.late(batch)
            # A batch that was kept whole and ended in time says nothing of how close to the limit plans may go.
            if late or batch.shed:
                self._model.ended(late=late)
        listed = batch.listed_offered > 0
        self._known = Guidance(
            published_at=known.published_at,
            batch_id=batch.batch_id,
            committed_at=batch.committed_at,
            # What an earlier run of the query has learned stands until this run has its own.
            forecast=self._model.forecast() or known.forecast,
            probe_rows=probe_rows(
                known.probe_rows,
                batch,
                first_rows=self._target.probe_tuples,
                allowed_seconds=self._target.batch_seconds,
                growth=self._target.PROBE_GROWTH,
            ),
            tuples_per_unit=self._sources.tuples_per_unit,
            tuples_per_second=self._arrival_rate(batch),
            listed_share=fade(known.listed_share, batch.listed_offered / batch.read) if listed else known.listed_share,
            listed_keep=(
                fade(known.listed_keep, batch.listed_kept / batch.listed_offered) if listed else known.listed_keep
            ),
            key_shares=self._shares(sampled_keys),
        )
        self._known = replace(self._known, branches=self._outputs() or known.branches)
        self._previous = batch

    def _shares(self, sampled_keys: Sequence[str] | None) -> Mapping[str, float] | None:
        if sampled_keys is None:
            return self._known.key_shares
        self._memory.learn(sampled_keys)
        return self._memory.shares()

    def guidance(self, *, now: float) -> Guidance:
        """Give what is known so far, stamped with the time."""
        return replace(self._known, published_at=now)

    def _outputs(self) -> Branches | None:
        """Give the outputs as they are known, with what is left of a tuple's cost when reading it is taken off."""
        cost = self._known.cost
        if cost is None:
            return None
        return self._branches.branches(seconds_per_tuple=max(0.0, cost.kept_seconds - cost.shed_seconds))

    def _arrival_rate(self, batch: Batch) -> float | None:
        """Tuples per second between the last two triggers; the newest value counts most, for bursts start at once."""
        previous = self._previous
        if previous is None or previous.started_at is None or batch.started_at is None:
            return self._known.tuples_per_second
        seconds = collecting_seconds(
            since_start=batch.started_at - previous.started_at,
            since_commit=None if previous.committed_at is None else batch.started_at - previous.committed_at,
            longest_batch_seconds=self._target.batch_seconds,
        )
        if seconds <= 0:
            return self._known.tuples_per_second
        return fade(self._known.tuples_per_second, batch.offered / seconds, weight=0.7)
