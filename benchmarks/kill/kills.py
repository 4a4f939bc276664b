"""Kill drivers of a job, with their JVM and workers: at random moments, or where a switch says."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

from benchmarks.kill.jobs import Job, Life
from benchmarks.kill.kinds import KINDS
from benchmarks.kill.writes import VARIABLE, Writes

LIFE_SECONDS = 120.0


def kill_often(job: Job, *, kills: int, seed: int) -> list[str]:
    """Kill a job at random moments of its lives; return what does not hold after the last one."""
    moments = random.Random(seed)
    job.prepare()
    for _ in range(kills):
        # Some kills hit the batch that is just being replayed, some a batch after fresh commits.
        _kill_one(job, after_commits=moments.randrange(4), after_seconds=moments.uniform(0.0, 1.5))
        job.evidence.note_offsets()
    return job.failures()


def live_apart(job: Job, life: Life, writes: Writes) -> None:
    """Live in a process of its own, until the switch strikes."""
    driver = _start(job, life, {VARIABLE: str(writes.folder)})
    try:
        ended = driver.wait(LIFE_SECONDS)
        if ended != (-signal.SIGKILL if writes.killed else 0):
            raise RuntimeError(f"life {life.number} in {job.folder} ended with {ended} after {writes.struck}")
        print(f"  {writes.struck or 'nothing was left to strike at'}", flush=True)
    finally:
        _kill(driver)


def _kill_one(job: Job, *, after_commits: int, after_seconds: float) -> None:
    commits = job.folder / "checkpoint" / "commits"
    wanted = _count(commits) + after_commits * job.COMMITS
    driver = _start(job, job.next_life(), {})
    try:
        assert driver.stdout is not None
        if driver.stdout.readline().strip() != "running":
            raise RuntimeError(f"the job in {job.folder} did not start")
        gives_up_at = time.monotonic() + LIFE_SECONDS
        while _count(commits) < wanted and driver.poll() is None and time.monotonic() < gives_up_at:
            time.sleep(0.01)
        time.sleep(after_seconds)
    finally:
        _kill(driver)


def _count(folder: Path) -> int:
    """Count commits; Spark names them by number."""
    return max((int(file.name) for file in folder.glob("[0-9]*") if file.name.isdigit()), default=-1)


def _start(job: Job, life: Life, also: dict[str, str]) -> subprocess.Popen[str]:
    kind = next(name for name, made in KINDS.items() if type(job) is made)
    return subprocess.Popen(
        [sys.executable, "-m", "benchmarks.kill.driver", kind, str(job.folder), str(life.number)],
        env={**os.environ, **also},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    )


def _kill(driver: subprocess.Popen[str]) -> None:
    """End driver, JVM and workers, also when this process is told to stop: they are a session of their own."""
    with suppress(ProcessLookupError):
        os.killpg(driver.pid, signal.SIGKILL)
    driver.wait()
