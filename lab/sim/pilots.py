"""Others in the place of the controller: one who knows the machine, and one who only looks back."""

from __future__ import annotations

from typing import Any

from lab.sim.engine import Engine
from penstock.control.governor import Decision, Demand, expected_tuples
from penstock.control.guidance import Guidance
from penstock.model.batch import Batch
from penstock.model.forecast import Forecast
from penstock.model.load import Cost
from penstock.model.plan import Plan


class Clairvoyant(Engine):
    """The same governor, told what each batch will truly cost: what nobody can do better by the same rule.

    It needs no margin but for the coin that is tossed for every row.
    """

    LUCK = 1.01

    def _decide(self, demand: Demand, cost: Cost) -> Decision:
        forecast = Forecast(cost=cost, late_factor=self.LUCK)
        guidance = Guidance(published_at=demand.now, forecast=forecast, tuples_per_unit=(1.0,))
        return self._governor.decide(guidance, demand, self._decisions)

    def _learn(self, batch: Batch, demand: Demand) -> None:
        pass


class Feedback(Engine):
    """Feedback control of the batch's duration, as [Tu06] controls delays: no model of costs, only the last error.

    A proportional and integral controller of the rows that a batch may keep: it keeps more where the last batch was
    shorter than it might be, and less where it was longer. Its gains are those of a loop that is back within a few
    batches and does not swing.
    """

    PROPORTIONAL, INTEGRAL = 0.2, 0.5
    SET_POINT = 0.9  # of the time that a batch may take

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._rows = float(self._governor.probe_tuples)
        self._error = 0.0

    def _decide(self, demand: Demand, cost: Cost) -> Decision:
        expected = expected_tuples(None, demand) or 0.0
        keep = min(1.0, self._rows / expected) if expected else 1.0
        plan = Plan(keep=keep, reason=f"{self._rows:,.0f} rows by the time that the last batch took")
        return Decision(batch_id=demand.batch_id, decided_at=demand.now, plan=plan, expected_tuples=expected)

    def _learn(self, batch: Batch, demand: Demand) -> None:
        error = 1 - (batch.duration_seconds or 0.0) / (self.SET_POINT * self._governor.batch_seconds)
        # A batch that was not full says nothing of how many more would fit.
        if batch.shed or error < 0:
            change = self.PROPORTIONAL * (error - self._error) + self.INTEGRAL * error
            self._rows = max(1.0, self._rows * (1 + max(change, -0.9)))
        self._error = error
