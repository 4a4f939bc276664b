"""A small standalone Spark cluster on loopback: a master and some workers, each a process of its own."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pyspark

from penstock.demo.broker import free_ports
from penstock.model.errors import EnvironmentMissingError
from penstock.spark.java import require_java

START_SECONDS = 60.0


class Cluster:
    """Start a master and workers, and stop them at the end of the ``with`` block.

    Workers and the executors they start run the Python of this process.

    Examples
    --------
    >>> with Cluster(workers=2) as cluster:  # doctest: +SKIP
    ...     cluster.submit("job.py", "/shared/checkpoint").wait()
    """

    def __init__(self, *, workers: int = 2, cores: int = 1, memory: str = "1g") -> None:
        self._workers = workers
        self._cores = cores
        self._memory = memory
        self._folder = tempfile.TemporaryDirectory(prefix="penstock-cluster-", ignore_cleanup_errors=True)
        self._processes: list[subprocess.Popen[bytes]] = []

    @property
    def master(self) -> str:
        """Address of the master, as ``--master`` takes it."""
        return f"spark://127.0.0.1:{self._port}"

    @property
    def log_path(self) -> Path:
        """File with what master and workers printed."""
        return Path(self._folder.name) / "cluster.log"

    def __enter__(self) -> Cluster:
        require_java()
        self._port, *web_ports = free_ports(2 + self._workers)
        package = "org.apache.spark.deploy"
        address = ["--host", "127.0.0.1", "--webui-port"]
        self._start(f"{package}.master.Master", *address, str(web_ports[0]), "--port", str(self._port))
        self._await_master()
        for number in range(self._workers):
            work = str(Path(self._folder.name) / f"worker-{number}")
            sizes = ["--cores", str(self._cores), "--memory", self._memory, "--work-dir", work]
            self._start(f"{package}.worker.Worker", *address, str(web_ports[1 + number]), *sizes, self.master)
        return self

    def __exit__(self, *_: object) -> None:
        for process in reversed(self._processes):
            _end(process)
        self._folder.cleanup()

    def submit(self, script: str, *arguments: str, settings: dict[str, str] | None = None) -> subprocess.Popen[bytes]:
        """Submit a job with ``spark-submit``; its driver is the process that is returned."""
        wanted = {
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.ui.enabled": "false",
            "spark.executor.memory": "700m",
            **(settings or {}),
        }
        options = [part for name, value in wanted.items() for part in ("--conf", f"{name}={value}")]
        command = [_spark("spark-submit"), "--master", self.master, *options, script, *arguments]
        with self.log_path.open("ab") as log:
            return subprocess.Popen(command, stderr=log, env=_environment(), start_new_session=True)

    def kill_worker(self, number: int) -> None:
        """Kill a worker and its executors, as if its machine had lost power."""
        process = self._processes[1 + number]
        executors = _descendants(process.pid)
        for each in (process.pid, *executors):
            try:
                os.kill(each, signal.SIGKILL)
            except ProcessLookupError:
                continue
        process.wait()

    def _start(self, main_class: str, *arguments: str) -> None:
        with self.log_path.open("ab") as log:
            self._processes.append(
                subprocess.Popen(
                    [_spark("spark-class"), main_class, *arguments],
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    env=_environment(),
                    start_new_session=True,
                )
            )

    def _await_master(self) -> None:
        ends_at = time.monotonic() + START_SECONDS
        while True:
            with socket.socket() as probe:
                probe.settimeout(0.5)
                if probe.connect_ex(("127.0.0.1", self._port)) == 0:
                    return
            if self._processes[0].poll() is not None or time.monotonic() > ends_at:
                told = self.log_path.read_text(encoding="utf-8", errors="replace")[-1000:]
                self.__exit__()
                raise EnvironmentMissingError(f"the master of the cluster did not start; it said: {told}")
            time.sleep(0.2)


def _spark(command: str) -> str:
    return str(Path(pyspark.__file__).parent / "bin" / command)


def _environment() -> dict[str, str]:
    # Executors must run this interpreter, or they may pick another Python that lacks Penstock.
    return {**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}


def _descendants(pid: int) -> list[int]:
    listed = subprocess.run(["ps", "-e", "-o", "pid=,ppid="], capture_output=True, text=True, check=True)  # noqa: S607
    parents = {int(child): int(parent) for child, parent in (line.split() for line in listed.stdout.splitlines())}
    found, grew = {pid}, True
    while grew:
        fresh = {child for child, parent in parents.items() if parent in found} - found
        found |= fresh
        grew = bool(fresh)
    return sorted(found - {pid})


def _end(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
