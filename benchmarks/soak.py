"""``make soak``: bursts of 50x and a million keys that never repeat, while workers and drivers are killed.

Bounded in time. Prints what every process needed in memory, and checks every window at the end.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.cluster import check
from benchmarks.soak_job import BURST, LEAD, PAUSE, QUIET, timetable
from penstock.demo.cluster import Cluster
from penstock.spark.ledger import Ledger
from penstock.spark.session import local_session

JOB = Path(__file__).with_name("soak_job.py")
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


def disturb(folder: str, *, cycles: int, console: Console) -> list[tuple[float, dict[str, float]]]:
    """Run the query through the bursts; kill a worker, then the driver, then hold the driver up."""
    arrivals = timetable(cycles)
    epoch = time.time() + 20.0
    samples: list[tuple[float, dict[str, float]]] = []
    bursts_seconds = cycles * (QUIET[0] + BURST[0])
    pause_at = LEAD[0] + bursts_seconds
    faults = [
        (LEAD[0] + QUIET[0] + 1.0, "a worker and its executors are killed, in a burst"),
        (pause_at, "the driver is killed and started again"),
        (pause_at + PAUSE[0] + QUIET[0] + 1.0, "the driver is held up for 3 seconds, in a burst"),
    ]
    with Cluster(workers=2) as cluster:
        job = _submit(cluster, folder, epoch, cycles)
        gives_up_at = epoch + arrivals.total_seconds + 120
        while job.poll() is None and time.time() < gives_up_at:
            time.sleep(1.0)
            passed = time.time() - epoch
            samples.append((passed, memory_megabytes()))
            if faults and passed > faults[0][0]:
                _, what = faults.pop(0)
                console.print(f"{passed:5.0f} s: {what}")
                if "worker" in what:
                    cluster.kill_worker(1)
                elif "killed and started" in what:
                    os.killpg(job.pid, signal.SIGKILL)
                    job.wait()
                    job = _submit(cluster, folder, epoch, cycles)
                else:
                    os.killpg(job.pid, signal.SIGSTOP)
                    time.sleep(3.0)
                    os.killpg(job.pid, signal.SIGCONT)
        if job.poll() != 0:
            raise RuntimeError(f"the job did not end well; the log ends: {cluster.log_path.read_text()[-2000:]}")
    return samples


def _submit(cluster: Cluster, folder: str, epoch: float, cycles: int) -> subprocess.Popen[bytes]:
    return cluster.submit(str(JOB), folder, repr(epoch), str(cycles))


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
        "--cycles", type=int, default=3, help="bursts before and after the driver is killed (default: %(default)d)"
    )
    chosen = parser.parse_args()
    console = Console(width=110)
    with tempfile.TemporaryDirectory(prefix="penstock-soak-", ignore_cleanup_errors=True) as folder:
        samples = disturb(folder, cycles=chosen.cycles, console=console)
        verdict = check(local_session(), folder)
        batches = list(Ledger(Path(folder) / "checkpoint" / "penstock" / "shed" / "ledger").batches())
    console.print(
        f"{BURST[1] / QUIET[1]:.0f}x bursts, {verdict.offered:,} distinct keys in {verdict.batches} batches; "
        f"{verdict.shed:,} rows shed, {verdict.windows} windows written, "
        f"{sum(batch.recounted for batch in batches)} batches counted again"
    )
    late = [batch for batch in batches if (batch.latency_seconds or 0) > 5.0]
    console.print(f"{len(late)} batches were late; the last batch's latency was {verdict.last_latency_seconds:.1f} s")
    console.print(memory_table(samples))
    console.print(
        "\n".join(verdict.failures) or "every window holds just the rows that its plans keep; the ledger balances"
    )
    return 1 if verdict.failures or verdict.last_latency_seconds > 5.0 else 0


if __name__ == "__main__":
    sys.exit(main())
