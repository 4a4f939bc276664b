"""A real Kafka broker for tests, examples and benchmarks: one node in KRaft mode on loopback, with temporary data."""

from __future__ import annotations

import base64
import os
import signal
import socket
import subprocess
import tempfile
import time
import uuid
from pathlib import Path

from penstock.model.errors import EnvironmentMissingError
from penstock.spark.java import java_command, require_java
from penstock.spark.packages import cache, fetch

VERSION = "4.1.1"
START_SECONDS = 60.0

_PROPERTIES = """process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller_port}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT
log.dirs={folder}/data
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
group.initial.rebalance.delay.ms=0
auto.create.topics.enable=false
"""


class Broker:
    """Start a broker, wait until it answers, and stop it at the end of the ``with`` block.

    The jars come from Maven Central once and stay in the cache. Data live in a temporary folder and go with it.

    Examples
    --------
    >>> with Broker() as broker:  # doctest: +SKIP
    ...     broker.create_topic("clicks", partitions=4)
    ...     print(broker.servers)
    """

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="penstock-kafka-", ignore_cleanup_errors=True)
        self._ports = free_ports(2)
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def servers(self) -> str:
        """Address for clients, as ``kafka.bootstrap.servers``."""
        return f"127.0.0.1:{self._ports[0]}"

    @property
    def log_path(self) -> Path:
        """File with what the broker printed."""
        return Path(self._folder.name) / "broker.log"

    def __enter__(self) -> Broker:
        require_java()
        kafka_client()
        self._class_path = os.pathsep.join(str(jar) for jar in broker_jars())
        port, controller_port = self._ports
        text = _PROPERTIES.format(port=port, controller_port=controller_port, folder=self._folder.name)
        self._properties = Path(self._folder.name) / "server.properties"
        self._properties.write_text(text, encoding="utf-8")
        cluster = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        # One argument: an id may begin with a dash.
        formatting = self._java(
            "kafka.tools.StorageTool", "format", f"--cluster-id={cluster}", "-c", str(self._properties)
        )
        formatting.wait(START_SECONDS)
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        self._folder.cleanup()

    def start(self) -> None:
        """Start the broker, also again after :meth:`stop`, and wait until it takes requests."""
        self._process = self._java("kafka.Kafka", str(self._properties))
        ends_at = time.monotonic() + START_SECONDS
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > ends_at:
                self.stop()
                told = self.log_path.read_text(encoding="utf-8", errors="replace")[-1000:]
                raise EnvironmentMissingError(f"the Kafka broker on {self.servers} did not start; it said: {told}")
            time.sleep(0.2)

    def stop(self, *, kill: bool = False) -> None:
        """Stop the broker and keep its data; ``kill`` gives it no time to say goodbye."""
        if self._process is None:
            return
        self._process.send_signal(signal.SIGKILL if kill else signal.SIGTERM)
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process = None

    def create_topic(self, name: str, *, partitions: int = 1) -> None:
        """Create a topic that is not there yet."""
        from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

        admin = AdminClient({"bootstrap.servers": self.servers, "log_level": 2})
        admin.create_topics([NewTopic(name, num_partitions=partitions)])[name].result(30)

    def _answers(self) -> bool:
        from confluent_kafka import KafkaException
        from confluent_kafka.admin import AdminClient

        with socket.socket() as probe:
            probe.settimeout(0.5)
            if probe.connect_ex(("127.0.0.1", self._ports[0])) != 0:
                return False
        try:
            return bool(AdminClient({"bootstrap.servers": self.servers, "log_level": 2}).list_topics(timeout=5).brokers)
        except KafkaException:
            return False

    def _java(self, *arguments: str) -> subprocess.Popen[bytes]:
        command = [java_command(), "-Xmx512m", "-cp", self._class_path, *arguments]
        with self.log_path.open("ab") as log:
            # A session of its own: Ctrl-C at the terminal ends the example, which then stops the broker in order.
            return subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, start_new_session=True)


def broker_jars() -> tuple[Path, ...]:
    """Fetch the jars of the broker, or find them in the cache."""
    return fetch([f"org.apache.kafka:kafka_2.13:{VERSION}"], cache() / f"broker-{VERSION}", transitive=True)


def free_ports(count: int) -> list[int]:
    """Find ports on loopback that nobody listens on."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]
    finally:
        for each in sockets:
            each.close()


def kafka_client() -> None:
    """Name the cure where the Kafka client is missing."""
    try:
        import confluent_kafka  # noqa: F401
    except ImportError as cause:
        raise EnvironmentMissingError(
            "this needs a Kafka client for Python; run: pip install 'penstock[kafka]'"
        ) from cause
