"""The stateful operator behind windows of user-defined functions: buffer blocks, answer windows, forget panes.

Each bucket is one key of Spark's state, whose value names the blocks of each pane; a timer per window fires when the
watermark has passed its end. Panes that no window needs any more are removed, one batch after they were last needed:
a batch that is replayed still finds its blocks.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import pandas as pd
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from penstock.model.errors import InvalidInputError
from penstock.policy.strata.drift import Drift
from penstock.policy.strata.groups import GroupConcept
from penstock.spark.plan.column import current_batch_id
from penstock.spark.windows.answer import Account, Part, Work
from penstock.spark.windows.blocks import LABELS, Block, Cut, Stored, pack_concept, unpack_concept
from penstock.spark.windows.planner import WindowPlanner
from penstock.spark.windows.span import Span

if TYPE_CHECKING:
    # Only where windows are spilled: workers start sooner without.
    from penstock.spark.spill.window_writer import WindowSpill

BLOCK_TYPE = "label INT, side INT, pane BIGINT, name STRING, tuples BIGINT"
ACCOUNT_TYPE = (
    "window_start TIMESTAMP, window_end TIMESTAMP, bucket INT, offered BIGINT, kept BIGINT, shed BIGINT, "
    "groups BIGINT, missing_groups BIGINT, missing_tuples BIGINT, late BIGINT, overlap DOUBLE, distance DOUBLE, "
    "seconds DOUBLE"
)


# Measures how far the concept of a window is from that of the one before.
Moved = Callable[[GroupConcept, GroupConcept], Drift]


class WindowOperator(StatefulProcessor):
    """Buffer blocks until the watermark, then answer windows."""

    def __init__(
        self,
        *,
        planner: WindowPlanner,
        cut: Cut,
        work: Work,
        sides: int,
        moved: Moved | None,
        spill: WindowSpill | None = None,
    ) -> None:
        self._planner = planner
        self._folder = planner.blocks
        self._span = planner.span
        self._cut = cut
        self._work = work
        self._sides = sides
        self._measure = moved
        self._spill = spill

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Declare the state."""
        self._handle = handle
        self._index = handle.getValueState("index", "text STRING")
        # What each bucket has answered in this batch.
        self._told: dict[int, Counter[str]] = {}

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[pd.DataFrame]:
        """Note blocks, and set a timer for each window they open."""
        bucket = LABELS.index(key[0])
        index, batch_id = self._read_index(), current_batch_id()
        # A batch in which no window ends has a plan as well: what it takes to take rows in is learned from it.
        self._planner.decide(batch_id)
        watermark = timerValues.getCurrentWatermarkInMs() * 1_000
        for frame in rows:
            for row in frame.itertuples(index=False):
                pane = int(row.pane)
                open_ends = [end for end in self._span.ends_of(pane) if index.accepts(end, watermark)]
                if not open_ends:
                    index.late += int(row.tuples)
                    # Its block goes like those of a pane that has been answered.
                    index.answered_panes.setdefault(pane, batch_id)
                    continue
                for end in set(open_ends) - index.ends:
                    index.ends.add(end)
                    self._handle.registerTimer(end // 1_000)
                index.panes.setdefault(pane, []).append((int(row.side), str(row.name), int(row.tuples)))
        self._remove_answered(index, bucket, batch_id)
        self._index.update((index.written(),))
        return iter(())

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[pd.DataFrame]:
        """Answer the window whose end the watermark has passed."""
        started = time.perf_counter()
        end = expiredTimerInfo.getExpiryTimeInMs() * 1_000
        bucket = LABELS.index(key[0])
        index = self._read_index()
        parts = self._parts(index, end, bucket)
        drift = self._moved(index, parts[0].whole, end, bucket)
        batch_id = current_batch_id()
        policy = self._planner.policy_of(self._planner.decide(batch_id))
        answered = self._work.answer(parts, self._cut, bucket, policy=policy)
        rows, account = answered.rows, answered.account
        if self._spill is not None:
            self._spill.store(
                [part.blocks for part in parts],
                answered.left,
                start=end - self._span.size_micros,
                end=end,
                bucket=bucket,
                batch_id=batch_id,
                whole=sum(part.whole.tuples for part in parts),
            )
        late, index.late = index.late, 0
        index.answer(end, batch_id, self._span)
        self._index.update((index.written(),))
        self._tell(batch_id, bucket, account, late)
        if rows is not None and len(rows):
            yield rows.assign(
                window_start=pd.Timestamp(end - self._span.size_micros, unit="us", tz="UTC"),
                window_end=pd.Timestamp(end, unit="us", tz="UTC"),
                bucket=bucket,
                offered=account.offered,
                kept=account.kept,
                shed=account.shed,
                groups=account.groups,
                missing_groups=account.missing_groups,
                missing_tuples=account.missing_tuples,
                late=late,
                overlap=None if drift is None else drift.overlap,
                distance=None if drift is None else drift.distance,
                seconds=time.perf_counter() - started,
            )

    def close(self) -> None:
        """Nothing is held beyond a batch."""

    def _tell(self, batch_id: int, bucket: int, account: Account, late: int) -> None:
        told = self._told.setdefault(bucket, Counter())
        told.update(offered=account.offered, kept=account.kept, shed=account.shed, windows=1, late=late)
        self._planner.accounts.write(batch_id, bucket, told)

    def _parts(self, index: Index, end: int, bucket: int) -> list[Part]:
        blocks: list[list[Stored]] = [[] for _ in range(self._sides)]
        concepts: list[list[bytes]] = [[] for _ in range(self._sides)]
        for pane in self._span.panes_of(end):
            for side, name, tuples in index.panes.get(pane, ()):
                block = Block(pane=pane, bucket=bucket, name=name, tuples=tuples)
                concepts[side].append(self._folder.read_concept(block))
                if tuples:
                    blocks[side].append(self._folder.read(block))
        # Sums of fractions depend on their order: a replay, whose blocks may come in another one, merges in this.
        return [
            Part(blocks=each, whole=GroupConcept.merge(*map(unpack_concept, sorted(packed))))
            for each, packed in zip(blocks, concepts, strict=True)
        ]

    def _moved(self, index: Index, now: GroupConcept, end: int, bucket: int) -> Drift | None:
        """Measure the drift since the window before, and remember this one; None where nothing can be compared."""
        if self._measure is None:
            return None
        before = self._folder.read_window(index.before, bucket) if index.before is not None else None
        self._folder.write_window(end, bucket, pack_concept(now))
        index.before = end
        return None if before is None else self._measure(unpack_concept(before), now)

    def _remove_answered(self, index: Index, bucket: int, batch_id: int) -> None:
        """Remove what was answered in batches before this one: they are committed, and cannot be replayed any more."""
        for pane, answered_in in list(index.answered_panes.items()):
            if answered_in < batch_id:
                self._folder.remove_pane(pane, bucket)
                del index.answered_panes[pane]
        self._folder.remove_windows(bucket, before=index.before)

    def _read_index(self) -> Index:
        found = self._index.get()
        index = Index.read(found[0]) if found else Index.new(self._cut)
        if index.buckets != self._cut.buckets:
            raise InvalidInputError(
                f"this checkpoint was made with buckets={index.buckets}, got {self._cut.buckets}; groups would be torn "
                "apart. Go back to it, or start from a new checkpoint"
            )
        return index


@dataclass(slots=True, kw_only=True)
class Index:
    """What a bucket holds.

    Attributes
    ----------
    buckets
        How many buckets the query was started with.
    panes
        For each pane its blocks: side, name and number of tuples.
    ends
        Ends of the windows that wait.
    answered, before
        End of the latest window answered, and of the one answered last.
    answered_panes
        Panes that no window needs any more, and the batch in which their last one was answered.
    late
        Tuples that came too late for any window, since the last answer.
    """

    buckets: int
    panes: dict[int, list[tuple[int, str, int]]]
    ends: set[int]
    answered: int
    before: int | None
    answered_panes: dict[int, int]
    late: int

    def accepts(self, end: int, watermark_micros: int) -> bool:
        """Whether a tuple is in time for the window that ends here: not yet answered, nor passed by unopened."""
        return end > self.answered and (end > watermark_micros or end in self.ends)

    def answer(self, end: int, batch_id: int, span: Span) -> None:
        """Note that a window was answered, and that some panes are not needed any more."""
        self.ends.discard(end)
        self.answered = max(self.answered, end)
        for pane in [pane for pane in self.panes if span.ends_of(pane)[-1] <= end]:
            del self.panes[pane]
            self.answered_panes[pane] = batch_id

    @staticmethod
    def new(cut: Cut) -> Index:
        """The index of a bucket that holds nothing."""
        return Index(
            buckets=cut.buckets, panes={}, ends=set(), answered=-(2**62), before=None, answered_panes={}, late=0
        )

    @staticmethod
    def read(text: str) -> Index:
        """Restore what :meth:`written` gave."""
        fields = json.loads(text)
        return Index(
            buckets=fields["buckets"],
            panes={int(pane): [(s, n, t) for s, n, t in blocks] for pane, blocks in fields["panes"].items()},
            ends=set(fields["ends"]),
            answered=fields["answered"],
            before=fields["before"],
            answered_panes={int(pane): batch_id for pane, batch_id in fields["answered_panes"].items()},
            late=fields["late"],
        )

    def written(self) -> str:
        """Lay the index out as JSON."""
        return json.dumps({**asdict(self), "ends": sorted(self.ends)})
