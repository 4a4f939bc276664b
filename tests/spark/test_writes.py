"""The switch that strikes at writes: no Spark is needed to see that it finds them all."""

import os
import signal
import subprocess
import sys
from contextlib import suppress

import pytest

from benchmarks.kill.writes import AFTER, BEFORE, KILL, RAISE, TORN, Killed, Writes
from penstock.spark.store.folder import Folder

FOLDER_PLACES = {
    "create": ["open root/.N.json.H", "fsync root/.N.json.H", "link root/N.json", "remove root/.N.json.H"],
    "replace": ["open root/.N.json.H", "fsync root/.N.json.H", "replace root/N.json"],
    "append": ["open root/N.json", "fsync root/N.json"],
    "remove": ["remove root/N.json"],
}


@pytest.fixture
def writes(tmp_path):
    switch = Writes(tmp_path / "control")
    switch.install()
    yield switch
    switch.uninstall()


def append(path, line):
    """Add a line to a file; no folder of Penstock's does, so that nothing of it can be torn."""
    with path.open("a") as file:
        file.write(f"{line}\n")
        file.flush()
        os.fsync(file.fileno())


def act(folder, name):
    if name == "append":
        return append(folder.path / "7.json", "text")
    change = getattr(folder, name)
    return change("7.json") if name == "remove" else change("7.json", "text")


def strikes_of(writes, root, name, **options):
    """Do a change until nothing is struck at any more."""
    found = []
    while True:
        folder = Folder(root)
        (root / "7.json").unlink(missing_ok=True)
        if name in ("remove", "append"):
            (root / "7.json").write_text("line\n")
        writes.arm([root], **options)
        with suppress(OSError, Killed):
            act(folder, name)
        if writes.struck is None:
            return found
        found.append(writes.struck)
        writes.disarm()


@pytest.mark.parametrize("name", FOLDER_PLACES)
def test_every_write_of_a_folder_is_struck_before_and_after_once_by_a_failure_and_once_by_a_death(
    writes, tmp_path, name
):
    root = tmp_path / "root"
    root.mkdir()
    found = strikes_of(writes, root, name)
    expected = {
        f"{how} {moment} driver: {place}"
        for place in FOLDER_PLACES[name]
        for moment in (BEFORE, AFTER)
        for how in (RAISE, KILL)
    }
    if name == "append":
        expected |= {f"{how} {TORN} driver: fsync root/N.json" for how in (RAISE, KILL)}
    assert sorted(found) == sorted(expected)


def test_what_is_struck_before_is_not_written_and_what_is_struck_after_is(writes, tmp_path):
    root = tmp_path / "root"
    folder = Folder(root)
    for moment, there in ((BEFORE, None), (AFTER, "text")):
        writes.arm([root], strikes={moment: [RAISE]}, hidden=False)
        with pytest.raises(OSError, match=f"injected {moment} driver: replace root/N.json"):
            folder.replace("7.json", "text")
        assert folder.read("7.json") == there


def test_a_torn_line_is_half_there(writes, tmp_path):
    folder = Folder(tmp_path / "root")
    folder.replace("lines", "first\n")
    writes.arm([folder.path], strikes={TORN: [RAISE]})
    with pytest.raises(OSError, match="injected torn"):
        append(folder.path / "lines", "second")
    assert folder.read("lines") == "first\nsec"


def test_the_dead_write_nothing_any_more_until_the_next_life(writes, tmp_path):
    folder = Folder(tmp_path / "root")
    folder.replace("7.json", "before")
    writes.arm([folder.path], strikes={BEFORE: [KILL]})
    for _ in range(2):
        with pytest.raises(Killed):
            folder.replace("7.json", "after")
    assert folder.read("7.json") == "before"
    writes.arm([folder.path], strikes={})
    folder.replace("7.json", "after")
    assert folder.read("7.json") == "after"


def test_a_worker_that_is_struck_dies_like_a_process_and_takes_the_driver_with_it(writes, tmp_path):
    root = tmp_path / "root"
    writes.arm([root], strikes={BEFORE: [KILL]})
    code = (
        "import sys, pathlib\n"
        "from benchmarks.kill.writes import Writes\n"
        "from penstock.spark.store.folder import Folder\n"
        "Writes(sys.argv[1]).install(role='worker'); Folder(pathlib.Path(sys.argv[2])).replace('7.json', 'text')"
    )
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path / "control"), str(root)], check=False)
    assert done.returncode == -signal.SIGKILL
    assert writes.killed
    assert writes.struck == "kill before worker: open root/.N.json.H"
    with pytest.raises(Killed):
        Folder(root).replace("7.json", "text")
    assert os.listdir(root) == []
