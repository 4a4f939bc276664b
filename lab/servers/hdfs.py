"""A real HDFS for tests: a name node and a data node on loopback, in a process of their own, with temporary data."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path

import pyspark

from lab.servers.broker import free_ports
from penstock.model.errors import EnvironmentMissingError
from penstock.spark.java import java_command, require_java
from penstock.spark.packages import cache, fetch
from penstock.spark.store.paths import StorePath

# Hadoop's small cluster looks for its folder with assertions of JUnit.
JUNIT = "org.junit.jupiter:junit-jupiter-api:5.13.4"
START_SECONDS = 90.0
# A file is complete when its data node has reported it to the name node. A client that asks too soon asks again only
# after 400 ms, half a micro-batch; a client here is a data node that writes for WebHDFS, and Spark.
ASK_AGAIN = {"dfs.client.block.write.locateFollowingBlock.initial.delay.ms": "20"}

_LOGGING = """rootLogger.level = warn
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %d %p %c: %m%n
"""


class Hdfs:
    """Start HDFS in the version of PySpark's Hadoop client, and stop it at the end of the ``with`` block.

    The jar comes from Maven Central once and stays in the cache. Data live in a temporary folder and go with it.

    Examples
    --------
    >>> with Hdfs() as hdfs:  # doctest: +SKIP
    ...     shedder = ps.shed(latency_seconds=5, checkpoint=hdfs.path("clicks"))
    """

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="penstock-hdfs-", ignore_cleanup_errors=True)
        self._port, self._http_port = free_ports(2)
        self._process: subprocess.Popen[bytes] | None = None

    def path(self, name: str) -> StorePath:
        """A folder in this HDFS."""
        return StorePath(f"hdfs://127.0.0.1:{self._port}/{name}", webhdfs=self.http)

    @property
    def http(self) -> str:
        """Where the name node answers HTTP."""
        return f"http://127.0.0.1:{self._http_port}"

    @property
    def log_path(self) -> Path:
        """File with what name node and data node printed."""
        return Path(self._folder.name) / "hdfs.log"

    def __enter__(self) -> Hdfs:
        require_java()
        pyspark_jars = Path(pyspark.__file__).parent / "jars"
        (client,) = pyspark_jars.glob("hadoop-client-api-*.jar")
        version = client.stem.removeprefix("hadoop-client-api-")
        cluster = f"org.apache.hadoop:hadoop-client-minicluster:{version}"
        jars = [
            *fetch([cluster], cache() / f"hdfs-{version}", transitive=False),
            *fetch([JUNIT], cache() / f"junit-{JUNIT.rpartition(':')[2]}", transitive=True),
        ]
        logging = Path(self._folder.name) / "log4j2.properties"
        logging.write_text(_LOGGING, encoding="utf-8")
        command = [
            java_command(),
            "-Xmx512m",
            f"-Dtest.build.data={self._folder.name}",
            f"-Dlog4j2.configurationFile={logging}",
            "-cp",
            os.pathsep.join([*map(str, jars), str(pyspark_jars / "*")]),
            "org.apache.hadoop.mapreduce.MiniHadoopClusterManager",
            *("-nomr", "-format", "-datanodes", "1"),
            *(f"-D{name}={value}" for name, value in ASK_AGAIN.items()),
            *("-nnport", str(self._port), "-nnhttpport", str(self._http_port)),
        ]
        with self.log_path.open("wb") as log:
            self._process = subprocess.Popen(
                command, cwd=self._folder.name, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
            )
        self._await_writes()
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            self._process.send_signal(signal.SIGTERM)
            try:
                self._process.wait(15)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            self._process = None
        self._folder.cleanup()

    def _await_writes(self) -> None:
        """Wait until the name node can name a data node that takes a file."""
        ends_at = time.monotonic() + START_SECONDS
        while not self._takes_files():
            if self._process is None or self._process.poll() is not None or time.monotonic() > ends_at:
                told = self.log_path.read_text(encoding="utf-8", errors="replace")[-1000:]
                self.__exit__()
                raise EnvironmentMissingError(f"HDFS did not start on {self.http}; it said: {told}")
            time.sleep(0.3)

    def _takes_files(self) -> bool:
        question = f"{self.http}/webhdfs/v1/.started?op=CREATE&overwrite=true&noredirect=true&user.name=root"
        request = urllib.request.Request(question, method="PUT")  # noqa: S310 - loopback
        try:
            with urllib.request.urlopen(request, timeout=5) as answer:  # noqa: S310
                return bool(answer.status == 200)
        except (urllib.error.URLError, OSError):
            return False
