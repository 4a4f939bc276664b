"""``make soak``: bursts of 50x and a million keys that never repeat, while workers and drivers are killed.

Bounded in time. Prints how soon latency was back inside its target after each fault and what every process needed in
memory, and checks every window at the end.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import tempfile
import time
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.cluster import check, ledger_of
from benchmarks.recovery import Fault, recoveries, recovery_table, undisturbed
from benchmarks.soak_job import BURST, LEAD, PAUSE, QUIET, TARGET_SECONDS, epoch_of, timetable
from penstock.demo.cluster import Cluster
from penstock.spark.session import local_session

JOB = Path(__file__).with_name("soak_job.py")
START_SECONDS = 120.0
WORKER_KILLED = "a worker and its executors are killed, in a burst"
DRIVER_KILLED = "the driver is killed and started again"
DRIVER_HELD_UP = "the driver is held up for 3 seconds, in a burst"
ANOTHER_BURST = f"a burst of {BURST[1] / QUIET[1]:.0f} times the load, and nothing else"
ROLES = (
    ("driver, JVM", "org.apache.spark.deploy.SparkSubmit"),
    ("driver, Python", "soak_job.py"),
    ("executors, JVM", "CoarseGrainedExecutorBackend"),
    ("executors, Python", "pyspark/daemon.py"),
    ("executors, Python", "pyspark.daemon"),
)


def memory_megabytes() -> dict[str, float]:
    """Memory by role, in proportional shares: forked workers share pages with their parent."""
    found: dict[str, float] = defaultdict(float)
    for process in Path("/proc").glob("[0-9]*"):
        try:
            command = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            role = next((role for role, sign in ROLES if sign in command), None)
            if role is None or (role.startswith("driver") and JOB.name not in command):
                continue
            rollup = (process / "smaps_rollup").read_text()
        except OSError:
            continue
        pss = next(line for line in rollup.splitlines() if line.startswith("Pss:"))
        found[role] += int(pss.split()[1]) / 1024
    return found


@dataclass(frozen=True)
class Disturbed:
    """When the stream began, what was done to the query, and what its processes needed meanwhile."""

    epoch: float
    faults: list[Fault]
    samples: list[tuple[float, dict[str, float]]]


def schedule(cycles: int) -> list[tuple[float, str]]:
    """Seconds into the stream at which something happens, and what."""
    half_seconds = cycles * (QUIET[0] + BURST[0])
    starts = (LEAD[0], LEAD[0] + half_seconds + PAUSE[0])
    # The first burst of either half has a fault in it, one second after it began.
    bursts = [start + n * (QUIET[0] + BURST[0]) + QUIET[0] for start in starts for n in range(1, cycles)]
    return sorted(
        [
            (starts[0] + QUIET[0] + 1.0, WORKER_KILLED),
            (LEAD[0] + half_seconds, DRIVER_KILLED),
            (starts[1] + QUIET[0] + 1.0, DRIVER_HELD_UP),
            *((at, ANOTHER_BURST) for at in bursts),
        ]
    )


def disturb(folder: str, *, cycles: int, console: Console) -> Disturbed:
    """Run the query through the bursts; kill a worker, then the driver, then hold the driver up."""
    samples: list[tuple[float, dict[str, float]]] = []
    events, faults = schedule(cycles), []
    with Cluster(workers=2) as cluster:
        job = cluster.submit(str(JOB), folder, str(cycles))
        gives_up_at = time.time() + START_SECONDS
        while (epoch := epoch_of(folder)) is None:
            if job.poll() is not None or time.time() > gives_up_at:
                raise RuntimeError(f"the job did not start; the log ends: {cluster.log_path.read_text()[-2000:]}")
            time.sleep(0.2)
        gives_up_at = epoch + timetable(cycles).total_seconds + 120
        while job.poll() is None and time.time() < gives_up_at:
            time.sleep(1.0)
            passed = time.time() - epoch
            samples.append((passed, memory_megabytes()))
            if not events or passed < events[0][0]:
                continue
            _, what = events.pop(0)
            console.print(f"{passed:5.0f} s: {what}")
            faults.append(Fault(what=what, at=time.time()))
            if what == WORKER_KILLED:
                cluster.kill_worker(1)
            elif what == DRIVER_KILLED:
                os.killpg(job.pid, signal.SIGKILL)
                job.wait()
                job = cluster.submit(str(JOB), folder, str(cycles))
            elif what == DRIVER_HELD_UP:
                os.killpg(job.pid, signal.SIGSTOP)
                time.sleep(3.0)
                os.killpg(job.pid, signal.SIGCONT)
        if job.poll() != 0:
            raise RuntimeError(f"the job did not end well; the log ends: {cluster.log_path.read_text()[-2000:]}")
    return Disturbed(epoch=epoch, faults=faults, samples=samples)


def memory_table(samples: list[tuple[float, dict[str, float]]]) -> Table:
    """The most that each role needed in each third of the time."""
    table = Table(title="most memory, MB (proportional set size)", title_justify="left")
    for heading in ("role", "first third", "second third", "last third"):
        table.add_column(heading, justify="right")
    third = max(1, len(samples) // 3)
    parts = (samples[:third], samples[third : 2 * third], samples[2 * third :])
    for role in dict.fromkeys(role for role, _ in ROLES):
        table.add_row(role, *(f"{max((each.get(role, 0) for _, each in part), default=0):,.0f}" for part in parts))
    return table


def main() -> int:
    # Ended from outside, the processes that were started here must not be left behind.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--cycles", type=int, default=2, help="bursts before and after the driver is killed (default: %(default)d)"
    )
    chosen = parser.parse_args()
    console = Console(width=120)
    with tempfile.TemporaryDirectory(prefix="penstock-soak-", ignore_cleanup_errors=True) as folder:
        done = disturb(folder, cycles=chosen.cycles, console=console)
        verdict, batches = check(local_session(), folder), ledger_of(folder)
    console.print(
        f"{BURST[1] / QUIET[1]:.0f}x bursts, {verdict.offered:,} distinct keys in {verdict.batches} batches; "
        f"{verdict.shed:,} rows shed, {verdict.windows} windows written, "
        f"{sum(batch.recounted for batch in batches)} batches counted again"
    )
    first_burst = done.epoch + LEAD[0] + QUIET[0]
    console.print(undisturbed(batches, before=first_burst))
    found = recoveries(batches, done.faults, target_seconds=TARGET_SECONDS)
    console.print(recovery_table(found, since=done.epoch, target_seconds=TARGET_SECONDS))
    console.print(memory_table(done.samples))
    console.print(
        "\n".join(verdict.failures) or "every window holds just the rows that its plans keep; the ledger balances"
    )
    return 1 if verdict.failures or not all(each.is_back for each in found) else 0


if __name__ == "__main__":
    sys.exit(main())
