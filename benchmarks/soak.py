"""``make soak``: bursts of 50x and a million keys that never repeat, with a fault in every burst.

Bounded in time. Prints how soon latency was back inside its target after each fault and what every process needed in
memory, and checks every window at the end. A second part does the same with a Kafka broker that dies and records that
nobody can read.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks import soak_plan as plan
from benchmarks import switches as faults
from benchmarks.cluster import check, ledger_of
from benchmarks.recovery import Fault, recoveries, recovery_table, undisturbed
from benchmarks.soak_job import ROOT, epoch_of, switches_of
from benchmarks.soak_kafka import soak_kafka
from lab.servers.cluster import Cluster
from penstock.model.batch import Batch
from penstock.spark.plan.log import PlanLog
from penstock.spark.session import local_session

JOB = Path(__file__).with_name("soak_job.py")
START_SECONDS = 120.0
TASK_LOST, LOSING_TRIES = "Lost task", 20
REFUSED = "is truncated or not JSON"
ROLES = (
    ("driver, JVM", "org.apache.spark.deploy.SparkSubmit"),
    ("driver, Python", "soak_job.py"),
    ("executors, JVM", "CoarseGrainedExecutorBackend"),
    ("executors, Python", faults.__name__),
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


@dataclass
class Soak:
    """A job on a cluster, what was done to it, and what its processes needed meanwhile."""

    cluster: Cluster
    folder: str
    console: Console
    faults: list[Fault] = field(default_factory=list)
    samples: list[dict[str, float]] = field(default_factory=list)
    _undoing: deque[tuple[float, Callable[[], None]]] = field(default_factory=deque)
    _log_began: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._switches = faults.Switches(switches_of(self.folder))
        self._job = self._submit()

    def run(self) -> float:
        """Go through all acts; return when the stream began."""
        epoch = self._await_stream()
        events = deque(plan.schedule())
        gives_up_at = epoch + plan.timetable().total_seconds + START_SECONDS
        while self._job.poll() is None and time.time() < gives_up_at:
            time.sleep(1.0)
            now = time.time()
            self.samples.append(memory_megabytes())
            while self._undoing and self._undoing[0][0] <= now:
                self._undoing.popleft()[1]()
            if events and now >= epoch + events[0][0]:
                _, what = events.popleft()
                self.console.print(f"{now - epoch:5.0f} s: {what}")
                self.faults.append(Fault(what=what, at=now))
                self._log_began.append(len(self._log()))
                self._strike(what)
        if self._job.poll() != 0:
            raise RuntimeError(f"the job did not end well; the log ends: {self._log()[-2000:]}")
        return epoch

    def evidence(self, batches: list[Batch]) -> dict[str, str]:
        """What shows that a fault did strike, empty where nothing does; for the faults that might miss."""
        log, ends = self._log(), [*self._log_began[1:], None]
        said = {
            fault.what: log[began:end] for fault, began, end in zip(self.faults, self._log_began, ends, strict=True)
        }
        plans = PlanLog(Path(self.folder) / "checkpoint" / "penstock" / "shed")
        decided = {batch.batch_id: plans.decision(batch.batch_id) for batch in batches}
        ahead = [
            batch
            for batch in batches
            if batch.started_at and (entry := decided[batch.batch_id]) and entry.decided_at > batch.started_at + 1800
        ]
        silent = [batch for batch in batches if "the controller has been silent" in batch.reason]

        def counted(what: str, words: str, told: str) -> str:
            count = said[what].count(words)
            return f"{count} {told}" if count else ""

        return {
            plan.TASKS_LOST: counted(plan.TASKS_LOST, TASK_LOST, "tasks lost"),
            plan.TASKS_HANG: counted(plan.TASKS_HANG, "as speculatable", "tasks copied"),
            plan.WORKER_KILLED: counted(plan.WORKER_KILLED, "Removing worker", "worker missed"),
            plan.SLOW_DISK: "writes held up" if self._switches.acted(faults.SLOW_DISK) else "",
            plan.CLOCK_AHEAD: f"{len(ahead)} plans dated an hour ahead" if ahead else "",
            plan.CONTROLLER_DEAD: f"{len(silent)} batches kept whole, and said so" if silent else "",
            plan.DISK_FULL: (
                "stopped, refused, started"
                if "No space left on device" in said[plan.DISK_FULL] and REFUSED in said[plan.DISK_FULL]
                else ""
            ),
        }

    def _strike(self, what: str) -> None:
        {
            plan.TASKS_LOST: self._lose_tasks,
            plan.TASKS_HANG: self._hang_tasks,
            plan.WORKER_KILLED: lambda: self.cluster.kill_worker(1),
            plan.SLOW_DISK: self._slow_disk,
            plan.CLOCK_AHEAD: lambda: self._switches.turn(faults.CLOCK, "3600"),
            plan.CLOCK_BACK: lambda: self._switches.turn(faults.CLOCK, None),
            plan.CONTROLLER_DEAD: lambda: self._switches.turn(faults.CONTROLLER, "fails"),
            plan.DRIVER_KILLED: self._kill_driver,
            plan.DRIVER_HELD_UP: self._hold_driver_up,
            plan.DISK_FULL: self._fill_disk,
            plan.ANOTHER_BURST: lambda: None,
        }[what]()

    def _lose_tasks(self) -> None:
        """Kill Python workers until one had a task: Spark just replaces one that is found dead before its next task."""
        began = self._log_began[-1]
        for _ in range(LOSING_TRIES):
            self._signal_workers(signal.SIGKILL, *range(2))
            time.sleep(0.2)
            if TASK_LOST in self._log()[began:]:
                return

    def _hang_tasks(self) -> None:
        self._signal_workers(signal.SIGSTOP, 0)
        self._later(4.0, lambda: self._signal_workers(signal.SIGCONT, 0))

    def _slow_disk(self) -> None:
        self._switches.turn(faults.SLOW_DISK, "slow")
        self._later(4.0, lambda: self._switches.turn(faults.SLOW_DISK, None))

    def _kill_driver(self) -> None:
        os.killpg(self._job.pid, signal.SIGKILL)
        self._job.wait()
        self._switches.turn(faults.CONTROLLER, None)
        self._job = self._submit()

    def _hold_driver_up(self) -> None:
        os.killpg(self._job.pid, signal.SIGSTOP)
        time.sleep(3.0)
        os.killpg(self._job.pid, signal.SIGCONT)

    def _fill_disk(self) -> None:
        """Leave no room for a plan; when the query has stopped, cut a plan short, and mend one after the other."""
        self._switches.turn(faults.FULL_DISK, "full")
        if self._job.wait(START_SECONDS) == 0:
            raise RuntimeError("the query went on though its plan could not be written")
        self._switches.turn(faults.FULL_DISK, None)
        plans = Path(self.folder) / "checkpoint" / "penstock" / "shed" / "plans"
        newest = max(plans.glob("*.json"), key=lambda file: int(file.stem))
        whole = newest.read_text()
        newest.write_text(whole[:-9])
        if self._submit().wait(START_SECONDS) == 0:
            raise RuntimeError("the query started though a plan that it may need was cut short")
        newest.write_text(whole)
        self._job = self._submit()

    def _signal_workers(self, number: signal.Signals, *workers: int) -> None:
        for worker in workers:
            for pid in self.cluster.python_workers(worker):
                try:
                    os.kill(pid, number)
                except ProcessLookupError:
                    continue

    def _later(self, seconds: float, undo: Callable[[], None]) -> None:
        self._undoing.append((time.time() + seconds, undo))

    def _submit(self) -> subprocess.Popen[bytes]:
        return self.cluster.submit(str(JOB), self.folder, quiet=True)

    def _await_stream(self) -> float:
        gives_up_at = time.time() + START_SECONDS
        while (epoch := epoch_of(self.folder)) is None:
            if self._job.poll() is not None or time.time() > gives_up_at:
                raise RuntimeError(f"the job did not start; the log ends: {self._log()[-2000:]}")
            time.sleep(0.2)
        return epoch

    def _log(self) -> str:
        return self.cluster.log_path.read_text(encoding="utf-8", errors="replace")


def memory_table(samples: list[dict[str, float]]) -> Table:
    """The most that each role needed in each third of the time."""
    table = Table(title="most memory, MB (proportional set size)", title_justify="left")
    for heading in ("role", "first third", "second third", "last third"):
        table.add_column(heading, justify="right")
    third = max(1, len(samples) // 3)
    parts = (samples[:third], samples[third : 2 * third], samples[2 * third :])
    for role in dict.fromkeys(role for role, _ in ROLES):
        table.add_row(role, *(f"{max((each.get(role, 0) for each in part), default=0):,.0f}" for part in parts))
    return table


def soak_cluster(console: Console) -> bool:
    """Disturb a query on two workers; tell whether everything held."""
    # The job and the Python workers of its executors import this project's faults.
    os.environ["PYTHONPATH"] = ROOT
    with tempfile.TemporaryDirectory(prefix="penstock-soak-", ignore_cleanup_errors=True) as folder:
        with Cluster(workers=2) as cluster:
            soak = Soak(cluster=cluster, folder=folder, console=console)
            epoch = soak.run()
            batches = ledger_of(folder)
            evidence = soak.evidence(batches)
        verdict = check(local_session(), folder)
    console.print(
        f"{plan.BURST[1] / plan.QUIET[1]:.0f}x bursts, {verdict.offered:,} distinct keys in {verdict.batches} batches; "
        f"{verdict.shed:,} rows shed, {verdict.windows} windows written, "
        f"{sum(batch.recounted for batch in batches)} batches counted again"
    )
    console.print(undisturbed(batches, before=epoch + plan.LEAD[0] + plan.QUIET[0]))
    found = recoveries(batches, soak.faults, target_seconds=plan.TARGET_SECONDS)
    console.print(recovery_table(found, since=epoch, target_seconds=plan.TARGET_SECONDS, evidence=evidence))
    console.print(memory_table(soak.samples))
    failures = [*verdict.failures, *(f"NOT SHOWN: {what}" for what, seen in evidence.items() if not seen)]
    console.print("\n".join(failures) or "every window holds just the rows that its plans keep; the ledger balances")
    return not failures and all(each.is_back for each in found)


PARTS: dict[str, Callable[[Console], bool]] = {"cluster": soak_cluster, "kafka": soak_kafka}


def main() -> int:
    # Ended from outside, the processes that were started here must not be left behind.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", default=list(PARTS), help=f"any of {', '.join(PARTS)} (default: both)")
    chosen = parser.parse_args().parts
    if unknown := set(chosen) - set(PARTS):
        parser.error(f"unknown part {', '.join(sorted(unknown))}; choose from {', '.join(PARTS)}")
    console = Console(width=150)
    held = [PARTS[name](console) for name in chosen]
    return 0 if all(held) else 1


if __name__ == "__main__":
    sys.exit(main())
