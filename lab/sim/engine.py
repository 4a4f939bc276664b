"""A micro-batch engine on a simulated clock, driven by the code that also drives Spark."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from lab.sim.clock import SimulatedClock
from lab.sim.machine import Machine
from penstock.control.controller import Controller
from penstock.control.governor import Decision, Demand, Governor
from penstock.control.guidance import Guidance
from penstock.model.arrivals import Arrivals
from penstock.model.batch import Batch
from penstock.model.errors import require_not_negative
from penstock.model.load import Cost


class Engine:
    """Run micro-batches as Spark does, each over all that arrived since the one before.

    A batch starts when the one before has ended, or at the next trigger boundary if that is later; there is none while
    nothing waits. It is planned at its start, with guidance that has seen the batch before.

    Parameters
    ----------
    arrivals, governor, machine
        What comes in, who decides what of it to keep, and what that takes.
    trigger_seconds
        Trigger interval; 0 runs batches back to back.
    offsets_readable
        Whether the governor sees how far the source moved, as with Kafka.
    guidance_lag_batches
        How many batches more the guidance lags behind.
    controller_dies_at_batch
        From this batch on nothing is learned and guidance is no longer renewed.

    Examples
    --------
    >>> machine = Machine(Cost(fixed_seconds=0.2, kept_seconds=1e-4, shed_seconds=2e-6))
    >>> engine = Engine(Arrivals.of((10, 5_000), (20, 50_000)), Governor(latency_seconds=4.0), machine)
    >>> batches = engine.run()
    >>> sum(batch.offered for batch in batches), max(batch.latency_seconds for batch in batches) < 4.0
    (1050000, True)
    """

    def __init__(
        self,
        arrivals: Arrivals,
        governor: Governor,
        machine: Machine,
        *,
        trigger_seconds: float = 0.0,
        offsets_readable: bool = True,
        guidance_lag_batches: int = 0,
        controller_dies_at_batch: int | None = None,
    ) -> None:
        require_not_negative("trigger_seconds", trigger_seconds, meaning="the trigger interval; 0 is back to back")
        require_not_negative("guidance_lag_batches", guidance_lag_batches, meaning="a count")
        self._arrivals = arrivals
        self._governor = governor
        self._machine = machine
        self._trigger_seconds = trigger_seconds
        self._offsets_readable = offsets_readable
        self._lag_batches = guidance_lag_batches
        self._dies_at_batch = math.inf if controller_dies_at_batch is None else controller_dies_at_batch
        self._clock = SimulatedClock()
        self._batches: list[Batch] = []
        self._decisions: list[Decision] = []
        self._taken = 0
        self._start(resume=None)

    def run(self, *, until_seconds: float = math.inf) -> list[Batch]:
        """Run the batches that start before then, all by default; return every batch so far."""
        while self._taken < self._arrivals.total_tuples:
            trigger_at = self._next_trigger_at()
            if trigger_at >= until_seconds:
                break
            self._clock.advance_to(trigger_at)
            self._run_batch()
        return list(self._batches)

    def restart(self, *, at_seconds: float) -> None:
        """Stop now and start again then, from the same position and with the guidance last published."""
        self._clock.advance_to(at_seconds)
        self._start(resume=self._published[-1])

    def _start(self, *, resume: Guidance | None) -> None:
        self._controller = Controller(self._governor, resume=resume)
        self._published = [self._controller.guidance(now=self._clock.now)]
        self._first_of_run = True
        self._due_at = self._clock.now

    def _next_trigger_at(self) -> float:
        """Find the next trigger with input. As in Spark, a batch that overran its interval is followed at once."""
        arrived_at = float(self._arrivals.arrival_seconds(self._taken))
        due_at = max(self._clock.now, self._due_at)
        if arrived_at <= due_at:
            return due_at
        if not self._trigger_seconds:
            return arrived_at
        return max(arrived_at, math.ceil(arrived_at / self._trigger_seconds - 1e-9) * self._trigger_seconds)

    def _run_batch(self) -> None:
        batch_id, now = len(self._batches), self._clock.now
        if self._trigger_seconds:
            self._due_at = (math.floor(now / self._trigger_seconds + 1e-9) + 1) * self._trigger_seconds
        end = self._arrivals.count_at(now)
        offered = end - self._taken
        demand = Demand(
            batch_id=batch_id,
            now=now,
            waited_seconds=now - self._decisions[-1].decided_at if self._decisions else None,
            units_by_source=(offered if self._offsets_readable else None,),
        )
        cost = self._machine.next_batch(at=now, first_of_run=self._first_of_run)
        decision = self._decide(demand, cost)
        survivors = self._machine.survivors(decision.plan, offered=offered)
        shed = offered - survivors.kept
        seconds = cost.of(kept=survivors.kept, shed=shed)
        self._clock.advance(seconds)
        arrived_at = self._arrivals.arrival_seconds(np.arange(self._taken, end))
        batch = Batch(
            batch_id=batch_id,
            offered=offered,
            kept=survivors.kept,
            shed=shed,
            keep=decision.plan.keep,
            reason=decision.plan.reason,
            started_at=now,
            duration_seconds=seconds,
            overhead_seconds=self._machine.overhead_seconds(cost),
            latency_seconds=self._clock.now - float(arrived_at[0]),
            mean_latency_seconds=self._clock.now - float(arrived_at.mean()),
            listed_offered=survivors.listed_offered,
            listed_kept=survivors.listed_kept,
        )
        self._taken, self._first_of_run = end, False
        self._batches.append(batch)
        self._decisions.append(decision)
        self._learn(batch, demand)

    def _decide(self, demand: Demand, cost: Cost) -> Decision:
        """Plan a batch; what it will truly cost is for those who may know."""
        del cost
        return self._governor.decide(self._guidance(demand.batch_id), demand, self._decisions)

    def _learn(self, batch: Batch, demand: Demand) -> None:
        if batch.batch_id < self._dies_at_batch:
            self._controller.learn(batch, units_by_source=demand.units_by_source)
            self._published.append(self._controller.guidance(now=self._clock.now))

    def _guidance(self, batch_id: int) -> Guidance:
        """Read what was published last, or before the lag; a living controller renews it even while nothing runs."""
        guidance = self._published[max(0, len(self._published) - 1 - self._lag_batches)]
        return replace(guidance, published_at=self._clock.now) if batch_id <= self._dies_at_batch else guidance


def simulate(
    arrivals: Arrivals,
    governor: Governor,
    cost: Cost | Mapping[float, Cost],
    *,
    noise: float = 0.0,
    seed: int = 0,
    trigger_seconds: float = 0.0,
    offsets_readable: bool = True,
) -> list[Batch]:
    """Run all arrivals through a governed query; see :class:`Machine` and :class:`Engine` for more options.

    >>> cost = Cost(fixed_seconds=0.5, kept_seconds=1e-4)
    >>> [
    ...     batch.offered
    ...     for batch in simulate(Arrivals.of((3, 1000)), Governor(latency_seconds=5), cost, trigger_seconds=1)
    ... ]
    [1000, 1000, 1000]
    """
    machine = Machine(cost, noise=noise, seed=seed)
    return Engine(arrivals, governor, machine, trigger_seconds=trigger_seconds, offsets_readable=offsets_readable).run()
