"""Kill the driver at random moments and see that nothing is lost, doubled or shed otherwise.

``python -m benchmarks.replay --kills 20``
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from pyspark.sql import SparkSession
from rich.console import Console
from rich.progress import track

from benchmarks.replay_check import Verdict, check, planned_texts
from penstock.spark.session import local_session
from penstock.spark.store.folder import Folder


def killed_run(folder: str, keep: float, *, after_commits: int, after_seconds: float) -> None:
    """Start the query with a keep rate; kill driver, JVM and workers some commits and some time later."""
    commits = Folder(Path(folder) / "checkpoint" / "commits")
    wanted = len(commits.ids()) + after_commits
    process = _start(folder, keep)
    assert process.stdout is not None
    if process.stdout.readline().strip() != "running":
        raise RuntimeError("the query did not start")
    gives_up_at = time.monotonic() + 120
    while len(commits.ids()) < wanted and time.monotonic() < gives_up_at:
        time.sleep(0.01)
    time.sleep(after_seconds)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def kill_often(folder: str, *, kills: int, seed: int) -> dict[str, str]:
    """Kill the query at random moments, each time under another keep rate; return all plan entries seen meanwhile."""
    moments = random.Random(seed)
    seen: dict[str, str] = {}
    for _ in track(range(kills), description="killing", console=Console(stderr=True)):
        keep = round(moments.uniform(0.05, 0.95), 3)
        # Some kills hit the batch that is just being replayed, some a batch after fresh commits.
        killed_run(folder, keep, after_commits=moments.randrange(4), after_seconds=moments.uniform(0.0, 1.5))
        for name, text in planned_texts(folder).items():
            seen.setdefault(name, text)
    last = _start(folder, 0.5, "4")
    if last.wait(timeout=300) != 0:
        raise RuntimeError("the last run of the query failed")
    return seen


def survive(spark: SparkSession, folder: str, *, kills: int, seed: int) -> Verdict:
    return check(spark, folder, kill_often(folder, kills=kills, seed=seed))


def _start(folder: str, keep: float, *more: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "benchmarks.replay_driver", folder, str(keep), *more]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, start_new_session=True
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="penstock-replay-") as folder:
        seen = kill_often(folder, kills=chosen.kills, seed=chosen.seed)
        verdict = check(local_session(), folder, seen)
    print(
        f"seed {chosen.seed}: {chosen.kills} kills, {verdict.committed} batches committed under {verdict.rates} rates"
    )
    print(f"{verdict.windows} windows written, {verdict.recounted} batches counted again after a crash")
    print(
        "\n".join(verdict.failures)
        or "every window holds just the rows that its logged plan keeps; the ledger balances"
    )
    return 1 if verdict.failures else 0


if __name__ == "__main__":
    sys.exit(main())
