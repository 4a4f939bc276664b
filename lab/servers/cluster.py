"""A small standalone Spark cluster on loopback: a master and some workers, each a process of its own."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import pyspark

from lab.servers.broker import free_ports
from penstock.model.errors import EnvironmentMissingError
from penstock.spark.java import require_java

START_SECONDS = 60.0


class Cluster:
    """Start a master and workers, and stop them at the end of the ``with`` block.

    Workers and the executors they start run the Python of this process. Each worker has a loopback address of its own,
    so that Spark takes them for two machines: it runs no speculative copy of a task on the machine of the first one.

    Parameters
    ----------
    workers, cores, memory
        How many workers, and what each has to give to executors.
    hidden
        Folders that master, workers and executors do not see, as if they were on the disk of another machine: an empty
        one is mounted over each, in a mount namespace of their own (Linux, with ``unshare``).

    Examples
    --------
    >>> with Cluster(workers=2) as cluster:  # doctest: +SKIP
    ...     cluster.submit("job.py", "/shared/checkpoint").wait()
    """

    def __init__(self, *, workers: int = 2, cores: int = 1, memory: str = "1g", hidden: Sequence[Path] = ()) -> None:
        self._hidden = [str(folder) for folder in hidden]
        self._workers = workers
        self._cores = cores
        self._memory = memory
        self._folder = tempfile.TemporaryDirectory(prefix="penstock-cluster-", ignore_cleanup_errors=True)
        self._processes: list[subprocess.Popen[bytes]] = []
        self._jobs: list[subprocess.Popen[bytes]] = []

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
        ports = ["--port", str(self._port), "--webui-port", str(web_ports[0])]
        self._start(f"{package}.master.Master", "--host", "127.0.0.1", *ports)
        self._await_master()
        for number in range(self._workers):
            work = str(Path(self._folder.name) / f"worker-{number}")
            sizes = ["--cores", str(self._cores), "--memory", self._memory, "--work-dir", work]
            host = _worker_host(number)
            address = ["--host", host, "--webui-port", str(web_ports[1 + number])]
            self._start(f"{package}.worker.Worker", *address, *sizes, self.master, host=host)
        return self

    def __exit__(self, *_: object) -> None:
        for process in reversed([*self._processes, *self._jobs]):
            _end(process)
        self._folder.cleanup()

    def submit(
        self,
        script: str,
        *arguments: str,
        settings: dict[str, str] | None = None,
        folder: Path | None = None,
        quiet: bool = False,
    ) -> subprocess.Popen[bytes]:
        """Submit a job with ``spark-submit``; its driver is the process that is returned.

        With ``folder`` the driver works there and has its temporary files there. With ``quiet`` what the job prints
        goes to the log, and so do the errors of its Python, which Spark prints with it.
        """
        wanted = {
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.ui.enabled": "false",
            "spark.executor.memory": "700m",
            **(settings or {}),
        }
        environment = _environment()
        if folder is not None:
            java = "spark.driver.extraJavaOptions"
            wanted[java] = f"{wanted.get(java, '')} -Djava.io.tmpdir={folder}".strip()
            environment |= {"TMPDIR": str(folder), "SPARK_LOCAL_DIRS": str(folder)}
        options = [part for name, value in wanted.items() for part in ("--conf", f"{name}={value}")]
        command = [_spark("spark-submit"), "--master", self.master, *options, script, *arguments]
        with self.log_path.open("ab") as log:
            printed = log if quiet else None
            job = subprocess.Popen(
                command, stdout=printed, stderr=log, env=environment, start_new_session=True, cwd=folder
            )
        self._jobs.append(job)
        return job

    def kill_worker(self, number: int) -> None:
        """Kill a worker and its executors, as if its machine had lost power."""
        process = self._processes[1 + number]
        executors = _descendants(process.pid, _processes())
        for each in (process.pid, *executors):
            try:
                os.kill(each, signal.SIGKILL)
            except ProcessLookupError:
                continue
        process.wait()

    def python_workers(self, number: int) -> list[int]:
        """Processes that run Python for the executors of a worker, without the daemons that they are forked from."""
        listed = _processes()
        python = {pid for pid, (_, program) in listed.items() if program.startswith("python")}
        below = _descendants(self._processes[1 + number].pid, listed)
        return [pid for pid in below if pid in python and listed[pid][0] in python]

    def _start(self, main_class: str, *arguments: str, host: str = "127.0.0.1") -> None:
        with self.log_path.open("ab") as log:
            self._processes.append(
                subprocess.Popen(
                    [*_hiding(self._hidden), _spark("spark-class"), main_class, *arguments],
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    # Master and workers do little: to compile it well would take time from the executors.
                    env={
                        **_environment(),
                        "SPARK_LOCAL_IP": host,
                        "SPARK_DAEMON_JAVA_OPTS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
                    },
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


def _worker_host(number: int) -> str:
    # Linux answers on all of 127.0.0.0/8; elsewhere there is but one loopback address.
    return f"127.0.0.{2 + number}" if sys.platform == "linux" else "127.0.0.1"


def _hiding(folders: list[str]) -> list[str]:
    """Command that runs another one with an empty folder mounted over each of these, for it alone."""
    if not folders:
        return []
    count = str(len(folders))
    script = (
        'n=$1; shift; while [ $n -gt 0 ]; do mount -t tmpfs none "$1" || exit 1; shift; n=$((n-1)); done; exec "$@"'
    )
    return ["unshare", "--map-root-user", "--mount", "sh", "-c", script, "sh", count, *folders]


def _spark(command: str) -> str:
    return str(Path(pyspark.__file__).parent / "bin" / command)


def _environment() -> dict[str, str]:
    # Executors must run this interpreter, or they may pick another Python that lacks Penstock.
    return {**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}


def _processes() -> dict[int, tuple[int, str]]:
    """Parent and program of every process of this machine."""
    listed = subprocess.run(["ps", "-e", "-o", "pid=,ppid=,comm="], capture_output=True, text=True, check=True)  # noqa: S607
    fields = (line.split(maxsplit=2) for line in listed.stdout.splitlines())
    return {int(pid): (int(parent), program) for pid, parent, program in fields}


def _descendants(pid: int, listed: dict[int, tuple[int, str]]) -> list[int]:
    parents = {child: parent for child, (parent, _) in listed.items()}
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
