"""Poll Spark for its progress reports: each new one once, in order, and what was missed."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pyspark.sql.streaming.query import StreamingQuery

from penstock.spark.store.folder import folder_at
from penstock.spark.store.paths import AnyPath

LOGGER = logging.getLogger(__name__)

# Asking Spark for its last report takes some milliseconds of a core. Where commits are files, a look at their folder
# tells when to ask; else Spark is asked no more than ten times a batch, once batches are long enough. A plan cannot use
# what its predecessor has just taught anyway, for it is made right after the commit.
POLL_SECONDS, LONGEST_POLL_SECONDS = 0.05, 0.25
POLLS_PER_BATCH = 10
ASK_AT_LEAST_SECONDS = 1.0


class Reports:
    """The reports of one query.

    Spark remembers the latest hundred. Ids between the last batch that was seen and the next that is were missed.
    """

    def __init__(self, query: StreamingQuery, checkpoint: AnyPath, *, last_id: int) -> None:
        self._query = query
        self._commits = checkpoint / "commits"
        self.last_id = last_id
        self._asked_at = -ASK_AT_LEAST_SECONDS

    def pause_seconds(self, last_seconds: float) -> float:
        """How long to wait before the next look, after a batch that took so long."""
        return min(max(POLL_SECONDS, last_seconds / POLLS_PER_BATCH), LONGEST_POLL_SECONDS)

    def due(self) -> bool:
        """Tell whether to ask Spark: after a commit, and once in a while."""
        if isinstance(self._commits, Path) and time.monotonic() - self._asked_at < ASK_AT_LEAST_SECONDS:
            return max(folder_at(self._commits).ids(), default=-1) > self.last_id
        return True

    def fresh(self) -> Iterator[tuple[int, Mapping[str, Any]]]:
        """Give reports of batches that were not passed yet, oldest first, with their ids; :meth:`passed` ends that."""
        self._asked_at = time.monotonic()
        last: Any = self._query.lastProgress
        if not last:
            return
        # An idle report bears the id of the batch to come.
        newest_id = last["batchId"] - is_idle(last)
        if newest_id <= self.last_id:
            return
        reports = [last]
        if is_idle(last) or newest_id > self.last_id + 1:
            reports = self._remembered() or reports
        for report in reports:
            try:
                batch_id = -1 if is_idle(report) else int(report["batchId"])
            except Exception:
                # Nobody can tell whose it is. The next report shows that a batch is missing.
                LOGGER.warning("a report of Spark cannot be read and is passed: %r", report, exc_info=True)
                continue
            if batch_id > self.last_id:
                yield batch_id, report

    def missed(self, batch_id: int) -> range:
        """Give the ids before a batch, since the last that was passed, of which Spark has no report any more."""
        return range(self.last_id + 1, batch_id)

    def passed(self, batch_id: int) -> None:
        """Note that a batch was dealt with."""
        self.last_id = batch_id

    def _remembered(self) -> list[Any]:
        """Read all reports that Spark has; none if one of them cannot be read, for Spark gives all or none."""
        try:
            return list(self._query.recentProgress)
        except Exception:
            LOGGER.warning("one of Spark's latest reports cannot be read: only the last one is taken", exc_info=True)
            return []


def is_idle(report: Mapping[str, Any]) -> bool:
    """Whether no batch stands behind a report: Spark reports idling, too."""
    return "addBatch" not in report["durationMs"]
