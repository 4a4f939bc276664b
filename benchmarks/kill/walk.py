"""Walk through all writes of a job: strike at each, before and after it, and start the job again."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pyspark.sql import SparkSession

from benchmarks.kill.jobs import Job, Life
from benchmarks.kill.writes import ALL, Killed, Writes

LIFE_SECONDS = 60.0
# In a life in which nothing is struck. After two such lives, what is done once in a while has been done.
BATCHES, QUIET_LIVES = 6, 2


@dataclass
class Walked:
    """The strikes of a walk, and what did not hold after them."""

    strikes: list[str] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)


def walk(
    make: Callable[[Path], Job],
    folder: Path,
    writes: Writes,
    live: Callable[[Job, Life, Writes], None],
    *,
    strikes: Mapping[str, Sequence[str]] = ALL,
    hidden: bool = True,
    checkpoints: int = 9,
) -> Walked:
    """Live until every write was struck; on one checkpoint after the other, for some writes are done only once.

    After each checkpoint its job runs undisturbed and is compared with what there is to see.
    """
    walked = Walked()
    writes.forget()
    for number in range(checkpoints):
        job = make(folder / str(number))
        job.prepare()
        before = len(walked.strikes)
        quiet = 0
        while quiet < QUIET_LIVES:
            writes.arm(job.roots, strikes=strikes, hidden=hidden)
            live(job, job.next_life(), writes)
            job.evidence.note_offsets()
            quiet = 0 if writes.struck else quiet + 1
            walked.strikes += [writes.struck] if writes.struck else []
        writes.disarm()
        if len(walked.strikes) == before:
            break
        try:
            walked.failures += [f"checkpoint {number}: {failure}" for failure in job.failures()]
        except Exception as failure:
            failure.add_note(f"checkpoint {number}, after {walked.strikes[before:]}")
            raise
    return walked


def live_here(job: Job, life: Life, writes: Writes) -> None:
    """Live in this process. Who is killed leaves no more writes, and Spark stops with none of Penstock's doing."""
    try:
        run = job.start(life)
        if run is None:
            return
        ends_at, handled = time.monotonic() + LIFE_SECONDS, None
        while run.query.isActive and not writes.killed and time.monotonic() < ends_at:
            batches = run.status.batches
            if writes.struck and handled is None:
                handled = batches
            # One more after a failed write: the job is to go on with it.
            if batches >= BATCHES or (handled is not None and batches > handled):
                break
            time.sleep(0.02)
        if not writes.killed:
            run.stop()
            if failure := run.query.exception():
                raise failure
    except (Exception, Killed):
        if writes.struck is None:
            raise
    finally:
        _end(job.spark)


def _end(spark: SparkSession) -> None:
    for query in spark.streams.active:
        query.stop()
    for thread in threading.enumerate():
        if thread.name.startswith("penstock"):
            thread.join(10)
