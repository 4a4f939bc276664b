"""Kill a query of windows at random moments, and compare its answers with those of one that was left alone.

``python -m benchmarks.window_replay --kills 5``
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

import pandas as pd
from rich.console import Console
from rich.progress import track

from penstock.spark.session import local_session
from penstock.spark.store.folder import Folder

ANSWER = ["window", "user", "survivors", "total", "squares", "tuples", "offered", "kept"]


def killed_run(folder: str, *, after_commits: int, after_seconds: float) -> None:
    """Start the query; kill driver, JVM and workers some commits and some time later."""
    commits = Folder(Path(folder) / "checkpoint" / "commits")
    wanted = len(commits.ids()) + after_commits
    process = _start(folder)
    try:
        assert process.stdout is not None
        if process.stdout.readline().strip() != "running":
            raise RuntimeError("the query did not start")
        gives_up_at = time.monotonic() + 120
        while len(commits.ids()) < wanted and time.monotonic() < gives_up_at:
            time.sleep(0.01)
        time.sleep(after_seconds)
    finally:
        _kill(process)


def finished_run(folder: str, batches: int) -> None:
    process = _start(folder, str(batches))
    try:
        if process.wait(timeout=300) != 0:
            raise RuntimeError("the last run of the query failed")
    finally:
        _kill(process)


def _kill(process: subprocess.Popen[str]) -> None:
    """End driver, JVM and workers, also when this process is told to stop: they are a session of their own."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def answers(folder: str) -> pd.DataFrame:
    found = local_session().read.parquet(f"{folder}/out").select("window.start", "*", "shed.offered", "shed.kept")
    frame = found.drop("window").withColumnRenamed("start", "window").orderBy("window", "user").toPandas()
    return frame[ANSWER].reset_index(drop=True)


def compare(killed: pd.DataFrame, alone: pd.DataFrame) -> list[str]:
    """What differs in the windows that both have answered; and whether any is doubled."""
    failures = []
    if killed.duplicated(["window", "user"]).any():
        failures.append("a group was answered twice in one window")
    until = min(killed["window"].max(), alone["window"].max())
    mine, theirs = (each[each["window"] <= until].reset_index(drop=True) for each in (killed, alone))
    if mine["window"].unique().tolist() != theirs["window"].unique().tolist():
        failures.append("windows are lost, or there are more")
    elif not mine.equals(theirs):
        failures.append("a window rests on other rows")
    return failures


def _start(folder: str, *more: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "benchmarks.window_driver", folder, *more],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=5)
    parser.add_argument("--seed", type=int, default=1)
    chosen = parser.parse_args()
    # Told to stop, by timeout(1) say: leave by an exception, so that what was started is ended.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    moments = random.Random(chosen.seed)
    with tempfile.TemporaryDirectory(prefix="penstock-windows-") as folder:
        killed, alone = f"{folder}/killed", f"{folder}/alone"
        for _ in track(range(chosen.kills), description="killing", console=Console(stderr=True)):
            killed_run(killed, after_commits=moments.randrange(1, 4), after_seconds=moments.uniform(0.0, 1.0))
        batches = len(Folder(Path(killed) / "checkpoint" / "commits").ids()) + 5
        finished_run(killed, batches)
        # With the same draws: both keep the same rows of a window.
        shutil.copytree(f"{killed}/checkpoint/penstock/windows", f"{alone}/checkpoint/penstock/windows")
        finished_run(alone, batches)
        mine, theirs = answers(killed), answers(alone)
    failures = compare(mine, theirs)
    windows = mine["window"].nunique()
    print(
        f"seed {chosen.seed}: {chosen.kills} kills, {batches} batches, {windows} windows, {len(mine):,} groups answered"
    )
    print("\n".join(failures) or "the same windows from the same rows as without a kill; nothing lost or doubled")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
