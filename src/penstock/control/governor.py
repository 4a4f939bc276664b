"""Hold the latency target: turn what was learned and what waits into a plan for the next batch."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from penstock.control.guidance import Guidance, collecting_seconds, foreign_units, tuples_in
from penstock.control.target import Target
from penstock.model.errors import require_kind
from penstock.model.forecast import NOTHING_SECONDS, Forecast
from penstock.model.load import Cost, Load
from penstock.model.plan import Plan
from penstock.policy.baseline import Uniform
from penstock.policy.contract import Policy

# A batch is off as the one before it was, where it is so by at least this part of it.
CONFIRMED = 0.5
# A forecast this many times above what the last batch bears out is a guess.
GUESSED = 1.5
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
    """

    batch_id: int
    decided_at: float
    plan: Plan
    expected_tuples: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Governor(Target):
    """Decide once per batch, from guidance and demand, so that results leave within the latency target.

    A row that arrives while one batch runs waits for it, then for its own: two batches in all. So batches that hold the
    target for the oldest row take half of it, and batches that hold it for the mean row, which waits for half a batch
    and its own, two thirds. Longer ones would be late, and shorter ones waste more of the machine on starting them: the
    share of the time that goes into rows is ``1 - fixed / batch``. A batch whose rows have waited for less may take
    longer, one whose rows have waited for more takes less.

    How much of that time is planned for follows from the spread of the batches so far: all but ``late_share`` of them
    are to end in time.

    Parameters
    ----------
    latency_seconds, latency_of, late_share, probe_tuples, grace_seconds
        See :class:`~penstock.control.target.Target`.
    policy
        What to drop when the load does not fit; :class:`~penstock.policy.baseline.Uniform` by default.

    Examples
    --------
    Costs are known, and the source holds four seconds' worth of work for a batch that may take 2.5 seconds.

    >>> from penstock.model.load import Cost
    >>> governor = Governor(latency_seconds=5.0)
    >>> forecast = Forecast(cost=Cost(fixed_seconds=0.0, kept_seconds=1e-4), noise=0.1, late_factor=1.25)
    >>> learned = Guidance(published_at=100.0, forecast=forecast, tuples_per_unit=(1.0,))
    >>> burst = Demand(batch_id=8, now=100.0, waited_seconds=2.5, units_by_source=(40_000.0,))
    >>> decision = governor.decide(learned, burst)
    >>> round(decision.plan.keep, 2), decision.plan.reason
    (0.5, 'load 1.60 > headroom 0.80: 40,000 tuples need 4.00 s of 2.50 s')
    """

    # Rows that are late at any rate, or nearly, are not worth shedding for: so much of the time that is left may go
    # into what a batch takes without any row kept.
    WITHIN_REACH = 2 / 3
    # A batch that takes no more of its time than this leaves the next one room.
    CALM = 0.9

    policy: Policy = field(default_factory=Uniform)

    def __post_init__(self) -> None:
        # Not super(): a dataclass with slots is made anew, and super() would look for the first one.
        Target.__post_init__(self)
        require_kind("policy", self.policy, Policy, called="a policy with decide(load)", example="Uniform()")

    def decide(self, guidance: Guidance | None, demand: Demand, recent: Sequence[Decision] = ()) -> Decision:
        """Plan one batch; ``recent`` holds the decisions before it, newest last."""
        demand = replace(demand, waited_seconds=self._waited_seconds(guidance, demand, recent))
        expected = expected_tuples(guidance, demand)
        return Decision(
            batch_id=demand.batch_id,
            decided_at=demand.now,
            plan=self._plan(guidance, demand, expected, recent),
            expected_tuples=expected,
        )

    def _plan(
        self, guidance: Guidance | None, demand: Demand, expected: float | None, recent: Sequence[Decision]
    ) -> Plan:
        if guidance is not None and guidance.catch_up:
            return Plan.keep_all(CATCH_UP)
        silent_seconds = demand.now - guidance.published_at if guidance else 0.0
        if silent_seconds > self.grace_seconds:
            return Plan.keep_all(
                f"the controller has been silent for {silent_seconds:.0f} s, longer than the "
                f"{self.grace_seconds:.0f} s of grace: keeping all"
            )
        if expected is None:
            return Plan.keep_all("the size of the batch cannot be foreseen yet: keeping all")
        if guidance is None or guidance.forecast is None:
            return self._probe(guidance, expected, just_ended(guidance, demand, recent))
        return self._fit(guidance, demand, expected, recent)

    def _fit(self, guidance: Guidance, demand: Demand, expected: float, recent: Sequence[Decision]) -> Plan:
        """Keep what fits in the time that is left, where costs are known."""
        assert guidance.forecast is not None  # noqa: S101 - asked before
        foreign = foreign_units(demand.units_by_source, guidance.tuples_per_unit)
        forecast = self._followed(guidance, demand, expected, recent)
        forecast = replace(forecast, cost=forecast.cost.beside(foreign))
        # Where nothing tells how long rows have waited, as long as for a batch before this one.
        waited_seconds = self.batch_seconds if demand.waited_seconds is None else demand.waited_seconds
        left_seconds = self.latency_seconds - self.waiting_share * waited_seconds
        load = Load(
            offered_tuples=expected,
            cost=forecast.cost,
            available_seconds=max(left_seconds, self.batch_seconds),
            headroom=1.0,
            listed_share=guidance.listed_share,
            listed_keep=guidance.listed_keep,
            branches=guidance.branches,
            key_tuples=key_tuples(guidance, expected),
        )
        whole_seconds = forecast.seconds(kept=expected, shed=0)
        bare_seconds = forecast.seconds(kept=0, shed=expected)
        at_most_seconds = forecast.at_most(kept=expected, shed=0)
        # What piled up during a stall is no overload, if it can be expected to end in time, and leaves the next batch
        # time: to shed that would answer a moment that has passed.
        expected_in_time = whole_seconds <= min(left_seconds, self.CALM * self.batch_seconds)
        passing = (
            expected_in_time
            and whole_seconds * forecast.guessed_factor(kept=expected, shed=0) <= GUESSED * left_seconds
        )
        # While load is shed, no batch takes more than its share: one that did would leave the next one less, and rates
        # would swing around what the machine can do.
        most_seconds = self.batch_seconds if recent and recent[-1].plan.sheds else left_seconds
        fits = at_most_seconds <= left_seconds and whole_seconds <= most_seconds
        if fits or passing:
            headroom = min(1.0, whole_seconds / at_most_seconds) if fits and whole_seconds else 1.0
            available_seconds = max(left_seconds, NOTHING_SECONDS)
            return self.policy.decide(replace(load, available_seconds=available_seconds, headroom=headroom))
        if (saved_seconds := whole_seconds - bare_seconds) <= forecast.noise * whole_seconds:
            return Plan.keep_all(
                f"{load.explain()}; dropping all would save {max(0.0, saved_seconds):.2g} s, less than the noise of "
                f"{forecast.noise * whole_seconds:.2g} s: keeping all"
            )
        note = ""
        if bare_seconds > self.WITHIN_REACH * left_seconds and left_seconds < self.batch_seconds:
            # Too late for the oldest rows; the ones that arrive meanwhile are to be in time.
            note = f"; {left_seconds:.2f} s are left, too few at any rate: planned to be back in time with the next"
            left_seconds = self.batch_seconds
        if bare_seconds >= left_seconds:
            return self._keep_what_is_free(load, forecast, bare_seconds)
        fitting = forecast.most_kept(
            offered=expected,
            seconds=left_seconds,
            expected_seconds=self._even_seconds(forecast) * (1 - forecast.dither * (demand.batch_id % 2)),
        )
        # Of the time that is left, what the rows that fit are expected to take; the rest is margin.
        headroom = forecast.seconds(kept=fitting, shed=expected - fitting) / left_seconds
        plan = self.policy.decide(replace(load, available_seconds=left_seconds, headroom=min(1.0, headroom)))
        return replace(plan, reason=plan.reason + note)

    def _even_seconds(self, forecast: Forecast) -> float:
        """Length of batches that follow one another under overload: each leaves the next about as much time.

        With a margin q, a batch of ``latency / (1 + q)`` leaves just so much. Were longer ones planned whenever there
        is time, long and short ones would alternate, and with them the rates.
        """
        return self.latency_seconds / (self.waiting_share + forecast.late_factor)

    def _keep_what_is_free(self, load: Load, forecast: Forecast, bare_seconds: float) -> Plan:
        """Where the target is out of reach, keep the rows that make no difference to how late it is."""
        per_row = forecast.cost.kept_seconds - forecast.cost.shed_seconds
        free = min(load.offered_tuples, forecast.noise * bare_seconds / per_row)
        seconds = forecast.seconds(kept=free, shed=load.offered_tuples - free)
        plan = self.policy.decide(replace(load, available_seconds=seconds, headroom=1.0))
        if not plan.sheds:
            return plan
        return replace(
            plan,
            reason=(
                f"the target cannot be met at any rate: without any row a batch takes {bare_seconds:.2f} s of "
                f"{self.batch_seconds:.2f} s; keeping what costs no more than the noise"
            ),
        )

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

    def _followed(self, guidance: Guidance, demand: Demand, expected: float, recent: Sequence[Decision]) -> Forecast:
        """Bring the forecast up to date by a batch that the guidance has not seen."""
        forecast = guidance.forecast
        assert forecast is not None  # noqa: S101 - asked before
        last = just_ended(guidance, demand, recent)
        if last is None:
            return forecast
        kept, shed, seconds = last
        off = math.log(max(seconds, 1e-3) / max(forecast.seconds(kept=kept, shed=shed), 1e-3))
        if off * forecast.off > 0 and abs(off) > CONFIRMED * abs(forecast.off):
            # The second batch in a row that was off to that side: the machine has changed its speed.
            forecast = forecast.scaled(math.exp(min(off, forecast.off, key=abs)))
        if not kept:
            return forecast
        # At worst all of the time was for its rows: a larger batch cannot take longer than in proportion. That is worth
        # something where the forecast is a guess; by noise alone it may be off twice.
        most_seconds = seconds * max(1.0, expected / kept)
        if forecast.at_most(kept=expected, shed=0) <= most_seconds * forecast.late_factor * GUESSED:
            return forecast
        worst = replace(forecast.cost, fixed_seconds=0.0, kept_seconds=most_seconds / expected)
        return replace(forecast, cost=worst, fixed_variance=0.0, kept_variance=0.0, covariance=0.0)

    def _probe(self, guidance: Guidance | None, expected: float, last: tuple[float, float, float] | None) -> Plan:
        """Bound the first batches, when nobody knows yet what a row costs."""
        most = (guidance.probe_rows if guidance else None) or self.probe_tuples
        if last is not None:
            kept, _, seconds = last
            if kept >= self.probe_tuples / 2 and seconds > self.batch_seconds:
                most = min(most, kept * self.batch_seconds / seconds)
        if expected <= most:
            return Plan.keep_all(f"costs not learned yet; {expected:,.0f} tuples are few enough to try")
        # As if just that many fitted: what to drop, and whether, stays the policy's to say.
        plan = self.policy.decide(
            Load(
                offered_tuples=expected,
                cost=Cost(fixed_seconds=0.0, kept_seconds=self.batch_seconds / most),
                available_seconds=self.batch_seconds,
                headroom=1.0,
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


def just_ended(
    guidance: Guidance | None, demand: Demand, recent: Sequence[Decision]
) -> tuple[float, float, float] | None:
    """Tell of the batch before, where the guidance has not seen it: rows kept and shed as planned, and its seconds.

    A batch that is planned right after the one before was committed is planned with guidance that has not seen it. The
    time since that batch was put together is then the time that it took.
    """
    last = recent[-1] if recent else None
    if last is None or last.batch_id != demand.batch_id - 1 or demand.waited_seconds is None:
        return None
    if guidance is None or guidance.batch_id != last.batch_id - 1 or last.expected_tuples is None:
        return None
    kept = last.plan.keep * last.expected_tuples
    return kept, last.expected_tuples - kept, demand.waited_seconds


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
