"""Kill jobs of every kind at random moments and at every write: nothing is lost, doubled or shed otherwise.

``make kill-test``, or ``python -m benchmarks.kill --kind windows --kills 5 --no-writes``
"""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
from pathlib import Path

from benchmarks.kill.kills import kill_often, live_apart
from benchmarks.kill.kinds import KINDS
from benchmarks.kill.walk import walk
from benchmarks.kill.writes import Writes
from penstock.spark.session import local_session


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kind", choices=[*KINDS, "all"], default="all")
    parser.add_argument("--kills", type=int, default=20, help="at random moments, of each kind")
    parser.add_argument("--writes", action=argparse.BooleanOptionalAction, default=True, help="strike at every write")
    parser.add_argument("--seed", type=int, default=1)
    chosen = parser.parse_args()
    # Told to stop, by timeout(1) say: leave by an exception, so that what was started is ended.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    failures = []
    for kind in KINDS if chosen.kind == "all" else [chosen.kind]:
        with tempfile.TemporaryDirectory(prefix=f"penstock-kill-{kind}-", ignore_cleanup_errors=True) as folder:
            found = _try(kind, Path(folder), kills=chosen.kills, writes=chosen.writes, seed=chosen.seed)
        print("\n".join(found) or f"{kind}: nothing lost, doubled or shed otherwise; the ledger balances", flush=True)
        failures += found
    return 1 if failures else 0


def _try(kind: str, folder: Path, *, kills: int, writes: bool, seed: int) -> list[str]:
    # Queries are stopped in the middle of a batch, which Spark has much to say about.
    spark, failures = local_session(log_path=folder / "log"), []
    if kills:
        job = KINDS[kind](spark, folder / "killed")
        failures += kill_often(job, kills=kills, seed=seed)
        batches = len(job.evidence.committed())
        print(f"{kind}: {kills} kills at random moments (seed {seed}), {batches} batches committed", flush=True)
    if writes:
        switch = Writes(folder / "switch")
        walked = walk(lambda at: KINDS[kind](spark, at), folder / "walk", switch, live_apart)
        print(f"{kind}: struck {len(walked.strikes)} times at writes", flush=True)
        failures += walked.failures
    return failures


if __name__ == "__main__":
    sys.exit(main())
