"""Hold the latency target: turn what was learned and what waits into a plan for the next batch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from penstock.control.guidance import Guidance, collecting_seconds, tuples_in
from penstock.model.errors import InvalidInputError, require_positive
from penstock.model.load import Cost, Load, require_headroom
from penstock.model.plan import Plan
from penstock.policy.baseline import Uniform
from penstock.policy.contract import Policy

CATCH_UP = "a catch-up run (trigger availableNow or once) has no latency to hold: keeping all"


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """What is known about a batch before it runs.

    Attributes
    ----------
    batch_id
        Spark's id of the micro-batch.
    now
        Seconds since the epoch.
    started_at
        When the engine put the batch together; None where it does not say. Planning comes later, in a cold process
        by seconds.
    waited_seconds
        Time since the batch before was put together: the most that a tuple in this one can have waited. None for the
        first.
    units_by_source
        How far the offsets of each source moved, None for one whose offsets do not tell; empty where none can be read.
    """

    batch_id: int
    now: float
    started_at: float | None = None
    waited_seconds: float | None = None
    units_by_source: tuple[float | None, ...] = ()

    @property
    def began_at(self) -> float:
        """When the batch was put together, as far as that is known."""
        return self.now if self.started_at is None else self.started_at


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """The plan for one batch, with what it was based on; an entry of the plan log.

    Attributes
    ----------
    batch_id, decided_at, plan
        What was decided, for which batch, and when (seconds since the epoch).
    expected_tuples
        Size of the batch as foreseen; None where it could not be.
    overloaded
        Whether the load exceeded the full headroom; dwell times count from the last such batch.
    """

    batch_id: int
    decided_at: float
    plan: Plan
    expected_tuples: float | None = None
    overloaded: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Governor:
    """Decide once per batch, from guidance and demand, so that results leave within the latency target.

    A tuple that arrives while one batch runs waits for it, then for its own: two batches in all. So a batch may take
    half the target; less when its tuples have already waited longer than the other half, but never less than a third:
    a late answer that rests on enough tuples is worth more than one in time that rests on none.

    Parameters
    ----------
    latency_seconds
        The target, arrival to commit.
    policy
        What to drop when the load does not fit; :class:`~penstock.policy.baseline.Uniform` by default.
    headroom
        Share of the available time to plan with.
    dwell_batches
        Shedding begins above the headroom. For this many batches after an overloaded one, the load is held to nine
        tenths of the headroom: a load that sways around the headroom does not make the plan flap. A batch that fits in
        the nine tenths is kept whole at once.
    probe_tuples
        Before costs are known, a batch takes at most this many tuples, then ``PROBE_GROWTH`` times what went well. Up
        to this size, a batch larger than any before may take longer, to find out what it costs.
    grace_seconds
        How long a plan may rest on guidance that is no longer renewed; after that everything is kept.

    Examples
    --------
    Costs are known, and the source holds four seconds' worth of work for a batch that may take 2.5 seconds.

    >>> from penstock.model.load import Cost
    >>> governor = Governor(latency_seconds=5.0)
    >>> learned = Guidance(published_at=100.0, cost=Cost(fixed_seconds=0.0, kept_seconds=1e-4), tuples_per_unit=(1.0,))
    >>> burst = Demand(batch_id=8, now=100.0, waited_seconds=1.0, units_by_source=(40_000,))
    >>> decision = governor.decide(learned, burst)
    >>> decision.plan.keep, decision.plan.reason
    (0.5, 'load 1.60 > headroom 0.80: 40,000 tuples need 4.00 s of 2.50 s')
    """

    PROBE_GROWTH = 4
    RELEASE = 0.9
    # Up to this times the largest batch so far, its costs are believed.
    EXPLORED_GROWTH = 2

    latency_seconds: float
    policy: Policy = field(default_factory=Uniform)
    headroom: float = 0.8
    dwell_batches: int = 2
    probe_tuples: int = 20_000
    grace_seconds: float = 60.0

    def __post_init__(self) -> None:
        require_positive("latency_seconds", self.latency_seconds, meaning="the time from arrival to result to hold")
        require_headroom(self.headroom)
        require_positive("probe_tuples", self.probe_tuples, meaning="the most tuples to take before costs are known")
        require_positive("grace_seconds", self.grace_seconds, meaning="how long old guidance may be relied on")
        if self.dwell_batches < 0:
            raise InvalidInputError(f"dwell_batches must be at least 0, got {self.dwell_batches!r}; it is a count")
        if not isinstance(self.policy, Policy):
            raise InvalidInputError(f"policy must have decide(load), got {self.policy!r}; for example Uniform()")

    @property
    def batch_seconds(self) -> float:
        """Longest that a batch may take in the long run."""
        return self.latency_seconds / 2

    def decide(self, guidance: Guidance | None, demand: Demand, recent: Sequence[Decision] = ()) -> Decision:
        """Plan one batch; ``recent`` holds the decisions before it, newest last."""
        demand = replace(demand, waited_seconds=self._waited_seconds(guidance, demand, recent))
        expected = expected_tuples(guidance, demand)
        decision = Decision(
            batch_id=demand.batch_id,
            decided_at=demand.now,
            plan=Plan.keep_all("the size of the batch cannot be foreseen yet: keeping all"),
            expected_tuples=expected,
        )
        if guidance is not None and guidance.catch_up:
            return replace(decision, plan=Plan.keep_all(CATCH_UP))
        silent_seconds = demand.now - guidance.published_at if guidance else 0.0
        if silent_seconds > self.grace_seconds:
            return replace(
                decision,
                plan=Plan.keep_all(
                    f"the controller has been silent for {silent_seconds:.0f} s, longer than the "
                    f"{self.grace_seconds:.0f} s of grace: keeping all"
                ),
            )
        if expected is None:
            return decision
        if guidance is None or guidance.cost is None:
            return replace(decision, plan=self._probe(guidance, expected))
        load = Load(
            offered_tuples=expected,
            cost=guidance.cost,
            available_seconds=self._available_seconds(demand),
            headroom=self.headroom * (self.RELEASE if self._dwells(recent) else 1.0),
            listed_share=guidance.listed_share,
            listed_keep=guidance.listed_keep,
            branches=guidance.branches,
            key_tuples=key_tuples(guidance, expected),
        )
        if load.overloaded and self._unexplored(expected, guidance):
            return replace(decision, plan=self._trial(load, demand))
        overloaded = load.utilization > self.headroom
        return replace(decision, plan=self.policy.decide(load), overloaded=overloaded)

    def _unexplored(self, expected: float, guidance: Guidance) -> bool:
        """Whether a batch is larger than the ones so far can tell of, and still small enough to try."""
        if guidance.explored_tuples is None:
            return False
        return self.EXPLORED_GROWTH * guidance.explored_tuples < expected <= self.probe_tuples

    def _trial(self, load: Load, demand: Demand) -> Plan:
        """Let a batch take all the time that is left to its tuples, for the batches after it will know what it costs.

        Small batches do not tell how much of their time was for tuples, and the belief is that it was much. To shed on
        that alone would lose tuples of a stream that grows and still fits.
        """
        left_seconds = self.latency_seconds - (demand.waited_seconds or 0.0)
        plan = self.policy.decide(
            replace(load, available_seconds=max(left_seconds, load.available_seconds), headroom=1.0)
        )
        return replace(plan, reason=f"{plan.reason}; a trial, for no batch so far was half as large")

    def _waited_seconds(self, guidance: Guidance | None, demand: Demand, recent: Sequence[Decision]) -> float | None:
        """Take an idle source into account, where the guidance has seen the last batch that was planned."""
        if demand.waited_seconds is None or guidance is None or guidance.committed_at is None:
            return demand.waited_seconds
        seen = bool(recent) and recent[-1].batch_id == guidance.batch_id
        return collecting_seconds(
            since_start=demand.waited_seconds,
            since_commit=demand.now - guidance.committed_at if seen else None,
            longest_batch_seconds=self.batch_seconds,
        )

    def _available_seconds(self, demand: Demand) -> float:
        """Time for this batch: what its oldest tuple has left, within [a third, half] of the target."""
        left_seconds = self.latency_seconds - (demand.waited_seconds or 0.0)
        return min(max(left_seconds, self.latency_seconds / 3), self.batch_seconds)

    def _probe(self, guidance: Guidance | None, expected: float) -> Plan:
        """Bound the first batches, when nobody knows yet what a tuple costs."""
        most = max(self.probe_tuples, self.PROBE_GROWTH * (guidance.largest_kept if guidance else 0))
        if expected <= most:
            return Plan.keep_all(f"costs not learned yet; {expected:,.0f} tuples are few enough to try")
        # As if just that many fitted: what to drop, and whether, stays the policy's to say.
        plan = self.policy.decide(
            Load(
                offered_tuples=expected,
                cost=Cost(fixed_seconds=0.0, kept_seconds=self.headroom * self.batch_seconds / most),
                available_seconds=self.batch_seconds,
                headroom=self.headroom,
                listed_share=guidance.listed_share if guidance else None,
                listed_keep=guidance.listed_keep if guidance else None,
                key_tuples=key_tuples(guidance, expected),
            )
        )
        if not plan.sheds:
            return replace(plan, reason="cold start: costs not learned yet, and the policy keeps all")
        # A policy's least keep rate is no bound here: a share of a backlog is as large as the backlog.
        return replace(
            plan,
            keep=min(plan.keep, most / expected),
            reason=f"cold start: costs not learned yet, trying {most:,.0f} of {expected:,.0f} tuples",
        )

    def _dwells(self, recent: Sequence[Decision]) -> bool:
        """Whether an overload is too recent to go back to the full headroom."""
        return any(decision.overloaded for decision in recent[len(recent) - min(self.dwell_batches, len(recent)) :])


def key_tuples(guidance: Guidance | None, expected: float) -> dict[str, float] | None:
    """Foresee how many tuples each known key has in a batch of this size."""
    if guidance is None or guidance.key_shares is None:
        return None
    return {key: share * expected for key, share in guidance.key_shares.items()}


def expected_tuples(guidance: Guidance | None, demand: Demand) -> float | None:
    """Foresee the size of a batch: from its offsets where they can be read, else from the arrival rate."""
    counted = tuples_in(demand.units_by_source, guidance.tuples_per_unit if guidance else ())
    if counted is not None:
        return counted
    if guidance is None or guidance.tuples_per_second is None or demand.waited_seconds is None:
        return None
    return guidance.tuples_per_second * demand.waited_seconds
