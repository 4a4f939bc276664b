"""Stores for the tests: a real HDFS and an S3, both on loopback, and writers in processes of their own."""

from __future__ import annotations

import multiprocessing
import threading
import time
import uuid
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor

import pytest

from lab.servers.hdfs import Hdfs
from penstock.spark.store.folder import folder_at
from penstock.spark.store.paths import AnyPath, StorePath
from tests.kafka import unless_missing

BUCKET = "penstock"

# Processes that know nothing of this one, forked from one that has done the imports, which take seconds.
PROCESSES = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload(
    ["penstock.spark.plan.planner", "penstock.spark.store.s3", "penstock.spark.store.hdfs"]
)


@pytest.fixture(scope="session")
def hdfs() -> Iterator[Hdfs]:
    started = Hdfs()
    unless_missing(started.__enter__, what="HDFS")
    yield started
    started.__exit__()


@pytest.fixture(scope="session")
def s3() -> Iterator[str]:
    """Address of an S3. It serves one request at a time, so that conditions are decided one after the other."""
    from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
    from werkzeug.serving import WSGIRequestHandler, make_server

    class Quiet(WSGIRequestHandler):
        def log_request(self, *_):
            pass

    application = DomainDispatcherApplication(create_backend_app)
    server = make_server("127.0.0.1", 0, application, threaded=False, request_handler=Quiet)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    endpoint = f"http://127.0.0.1:{server.server_port}"
    import s3fs

    s3fs.S3FileSystem(endpoint_url=endpoint, key="test", secret="test").mkdir(BUCKET)
    yield endpoint
    server.shutdown()


@pytest.fixture(params=["local", pytest.param("hdfs", marks=pytest.mark.server), "s3"])
def anywhere(request, tmp_path) -> AnyPath:
    """A new folder on every kind of storage that is supported."""
    name = f"folder-{uuid.uuid4().hex[:8]}"
    if request.param == "local":
        return tmp_path / name
    if request.param == "hdfs":
        return request.getfixturevalue("hdfs").path(name)
    endpoint = request.getfixturevalue("s3")
    return StorePath(f"s3a://{BUCKET}/{name}", endpoint_url=endpoint, key="test", secret="test")


def create_all(path: AnyPath, names: list[str], text: str, starts_at: float) -> list[str]:
    """Try to create files, each at a moment of its own that all processes share; return those that were won."""
    folder = folder_at(path)
    folder.exists("anything")  # connected before the race
    won = []
    for number, name in enumerate(names):
        # Who looks first and writes then would find the name free in every process.
        time.sleep(max(0.0, starts_at + 0.25 * number - time.time()))
        if folder.create(name, text):
            won.append(name)
    return won


def race(path: AnyPath, names: list[str], *, processes: int) -> dict[str, list[str]]:
    """Let processes create the same files at once; return, by name, what the winners wrote."""
    with ProcessPoolExecutor(processes, mp_context=PROCESSES) as pool:
        # The pool starts as many processes as there is work: all are up before the race begins.
        list(pool.map(time.sleep, [0.5] * processes))
        starts_at = time.time() + 2
        tries = [pool.submit(create_all, path, names, f"writer {number}", starts_at) for number in range(processes)]
        won: dict[str, list[str]] = {name: [] for name in names}
        for number, each in enumerate(tries):
            for name in each.result():
                won[name].append(f"writer {number}")
    return won
