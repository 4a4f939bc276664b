"""Plan a batch by the windows that end in it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from penstock.control.governor import Decision
from penstock.control.guidance import Guidance
from penstock.policy.contract import Policy
from penstock.policy.recorded import from_settings, to_settings
from penstock.policy.strata.windows import under_plan
from penstock.spark.plan.planner import Planner, ShedPlanner
from penstock.spark.sources.offsets import OffsetEntry
from penstock.spark.windows.accounts import AccountFolder
from penstock.spark.windows.blocks import BlockFolder
from penstock.spark.windows.span import Span

# Rows of the windows that end, as they stand in the blocks, feed the shedder; rows that come in only take time.
TUPLES_PER_UNIT = (1.0, 0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowPlanner(ShedPlanner):
    """Knows before a batch which windows end in it, and how many rows they hold; travels to executors by pickle.

    Spark writes the watermark of a batch into its offset log, and the rows wait in blocks whose names count them.
    """

    CALLED: ClassVar[str] = "windows"

    policy: Policy
    blocks: BlockFolder
    accounts: AccountFolder
    span: Span

    def make(self, batch_id: int) -> Decision:
        """Plan a batch; its entry also says by which policy its windows are shed, whatever the query has by then."""
        decision = ShedPlanner.make(self, batch_id)
        return replace(decision, plan=replace(decision.plan, windows=to_settings(self.policy)))

    def policy_of(self, decision: Decision) -> Policy:
        """The policy that sheds the windows of a batch."""
        settings = decision.plan.windows
        assert settings is not None  # noqa: S101 - made above
        policy = from_settings(settings, now=self.policy, of=f"batch {decision.batch_id}")
        return under_plan(policy, decision.plan.keep)

    def guidance(self) -> Guidance:
        """Read what the controller has learned; which rows feed the shedder need not be."""
        return replace(Planner.guidance(self), tuples_per_unit=TUPLES_PER_UNIT)

    def resume(self) -> Guidance | None:
        """Read what an earlier run has learned, or what is known without one."""
        earlier = Planner.resume(self)
        return replace(earlier or Guidance(published_at=0.0), tuples_per_unit=TUPLES_PER_UNIT)

    def counts(self, batch_id: int) -> dict[str, int]:
        """Read what the tasks of a committed batch told of its windows."""
        return self.accounts.read(batch_id)

    def units_by_source(self, batch_id: int) -> tuple[float | None, ...]:
        """Count the rows of the windows that a batch answered, and those that it took in."""
        _, taken_in = Planner.units_by_source(self, batch_id) or (None, None)
        return float(self.counts(batch_id)["offered"]), taken_in

    def _units(self, before: OffsetEntry | None, entry: OffsetEntry | None, batch_id: int) -> tuple[float | None, ...]:
        by_source = Planner._units(self, before, entry, batch_id)
        counted = [units for units in by_source if units is not None]
        taken_in = sum(counted) if by_source and len(counted) == len(by_source) else None
        return self._ending(before, entry), taken_in

    def _ending(self, before: OffsetEntry | None, entry: OffsetEntry | None) -> float | None:
        """Count the rows of the windows that the watermark passes with a batch."""
        if entry is None:
            return None
        passed = before.watermark_micros if before else 0
        panes = [pane for pane in self.blocks.panes() if pane < entry.watermark_micros]
        ending = {
            pane: sum(passed < end <= entry.watermark_micros for end in self.span.ends_of(pane)) for pane in panes
        }
        return float(sum(times * self.blocks.rows_in(pane) for pane, times in ending.items() if times))
