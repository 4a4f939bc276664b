"""The same promises wherever the checkpoint lies: a local folder, HDFS over WebHDFS, S3."""

import pickle
import subprocess
import sys
from dataclasses import replace

import pytest
import requests

from penstock.model.batch import Batch
from penstock.model.errors import (
    EnvironmentMissingError,
    InvalidInputError,
    NotSupportedError,
    PlanLogError,
    StoreError,
)
from penstock.spark.plan.log import PlanLog
from penstock.spark.run.ledger import Ledger
from penstock.spark.run.segments import Holdings
from penstock.spark.store.folder import Folder, copy_tree, folder_at, remove_tree, require_exclusive
from penstock.spark.store.objects import StoreFolder, store_of
from penstock.spark.store.paths import StorePath, local_path, place, spark_address
from tests.spark.test_planlog import decision, enter
from tests.stores import race


@pytest.mark.slow
def test_of_many_processes_that_create_a_file_exactly_one_wins(anywhere):
    names = [f"{number}.json" for number in range(15)]
    won = race(anywhere, names, processes=4)
    folder = folder_at(anywhere)
    assert {name: [folder.read(name)] for name in names} == won
    assert folder.ids(suffix=".json") == list(range(15))
    # Nothing is left lying about: all that is there are the files.
    assert list(folder.ages(suffix="")) == sorted(names)


@pytest.mark.slow
def test_a_folder_keeps_its_promises_wherever_it_is(anywhere):
    folder = folder_at(anywhere / "new")
    assert (folder.read("7.json"), folder.exists("7.json")) == (None, False)
    assert (folder.ids(), folder.names(), folder.ages(suffix="")) == ([], [], {})
    assert folder.create("7.json", "first — søren\n")
    assert not folder.create("7.json", "second")
    assert folder.read("7.json") == "first — søren\n"
    folder.replace("guidance.json", "old")
    folder.replace("guidance.json", "new")
    assert folder.read("guidance.json") == "new"
    folder.replace("columns.bin", b"\x00\xff")
    assert (folder.read_bytes("columns.bin"), folder.read_bytes("absent.bin")) == (b"\x00\xff", None)
    assert folder.names() == ["7.json", "columns.bin", "guidance.json"]
    for name in ("10.json", "9.json"):
        folder.create(name, "")
    assert folder.ids(suffix=".json") == [7, 9, 10]
    assert all(abs(age) < 60 for age in folder.ages(suffix=".json").values())
    folder.remove("7.json")
    folder.remove("7.json")
    assert not folder.exists("7.json")
    assert folder_at(anywhere).ids() == []  # a folder in it is no file


@pytest.mark.slow
def test_a_tree_is_copied_and_removed_with_all_below_it(anywhere):
    folder_at(anywhere / "sources" / "0").replace("0", "offset")
    folder_at(anywhere / "sources" / "1").replace("0", "\0v1\n{}")
    copy_tree(anywhere / "sources", anywhere / "copy")
    assert folder_at(anywhere / "copy" / "1").read("0") == "\0v1\n{}"
    remove_tree(anywhere / "copy")
    assert folder_at(anywhere / "copy" / "0").read("0") is None
    assert folder_at(anywhere / "sources" / "0").read("0") == "offset"
    copy_tree(anywhere / "absent", anywhere / "copy")
    remove_tree(anywhere / "absent")


@pytest.mark.slow
def test_plans_and_ledger_read_back_wherever_they_are(anywhere):
    log = PlanLog(anywhere)
    written = decision(3, keep=1 / 3, key_keep={"vip": 1.0, "søren\n": 0.25})
    assert enter(log, written) == written
    assert enter(log, decision(3, keep=0.9)) == PlanLog(anywhere).decision(3) == written
    enter(log, decision(2))
    log.prune(before=3)
    assert log.batch_ids() == [3]
    log.pin_sampling({"seed": 0})
    with pytest.raises(PlanLogError, match="was made with seed=0"):
        log.pin_sampling({"seed": 1})
    ledger = Ledger(anywhere / "ledger")
    batches = [Batch(batch_id=n, offered=10, kept=6, shed=4, keep=0.6, reason="burst") for n in (0, 1, 1_000, 10_000)]
    assert [ledger.append(batch) for batch in [*batches, batches[0]]] == [True] * 4 + [False]
    assert list(Ledger(anywhere / "ledger").batches()) == batches


@pytest.mark.slow
def test_a_ledger_writes_no_file_twice_and_merges_them_wherever_it_is(anywhere, monkeypatch):
    monkeypatch.setattr("penstock.spark.run.ledger.GRACE_SECONDS", 0.0)
    monkeypatch.setattr("penstock.spark.run.segments.COLUMNAR_SPAN", 100)
    written = []
    for name in ("create", "replace"):
        for kind in (Folder, StoreFolder):
            monkeypatch.setattr(kind, name, noting(getattr(kind, name), written))
    ledger = Ledger(anywhere)
    numbers = [number for number in range(125) if number not in (7, 113)]
    batches = {n: Batch(batch_id=n, offered=10, kept=6, shed=4, keep=0.6, reason="burst") for n in range(125)}
    for number in numbers:
        assert ledger.append(batches[number])
    assert ledger.gaps() == [range(7, 8), range(113, 114)]
    assert [Ledger(anywhere).append(batches[number]) for number in (7, 113, 7, 50, 124)] == [True] * 2 + [False] * 3
    assert list(Ledger(anywhere).batches()) == list(batches.values())
    assert (ledger.missing(range(126)), ledger.gaps()) == ([125], [])
    assert len(written) == len(set(written)) == 123 + 12 + 1 + 2

    # A writer that dies when the larger file is there and its parts are, too.
    with monkeypatch.context() as patched:
        patched.setattr(type(folder_at(anywhere)), "remove", lambda *_: None)
        for number in range(125, 131):
            Ledger(anywhere).append(replace(batches[0], batch_id=number))
    assert [batch.batch_id for batch in Ledger(anywhere).batches()] == list(range(131))
    Ledger(anywhere).append(replace(batches[0], batch_id=131))
    names = folder_at(anywhere).names()
    assert len(names) == len(Holdings(names, path=anywhere).superseded) + 6
    assert Ledger(anywhere).missing(range(132)) == []


def noting(write, written):
    def noted(folder, name, content):
        written.append(name)
        return write(folder, name, content)

    return noted


@pytest.mark.server
@pytest.mark.slow
@pytest.mark.parametrize("operation", ["CREATE", "RENAME", "OPEN"])
def test_an_answer_of_the_name_node_that_is_lost_makes_no_second_writer(hdfs, monkeypatch, operation):
    path = hdfs.path(f"lost-{operation}")
    folder, session = folder_at(path), store_of(path)._fs.session
    send, lost = session.request, []

    def lose_the_first(method, url, **options):
        answer = send(method, url, **options)
        if (options.get("params") or {}).get("op") == operation and len(lost) < 1:
            lost.append(url)
            raise requests.ConnectionError("the answer was lost")
        return answer

    monkeypatch.setattr(session, "request", lose_the_first)
    assert folder.create("7.json", "first")
    assert not folder.create("7.json", "second")
    folder.replace("7.json", "third")
    assert folder.read("7.json") == "third"
    assert len(lost) == 1


def test_a_store_that_passes_conditions_over_is_refused(monkeypatch):
    class Careless(dict):
        def create(self, key, data):
            self[key] = data
            return True

        def remove(self, key):
            self.pop(key)

    careless = Careless()
    monkeypatch.setattr("penstock.spark.store.objects.store_of", lambda _: careless)
    with pytest.raises(NotSupportedError, match=r"lets two writers create the same file .*honours conditional writes"):
        require_exclusive(StorePath("s3a://bucket/clicks"))


def test_what_cannot_be_a_checkpoint_is_refused_with_the_reason(tmp_path):
    with pytest.raises(InvalidInputError, match="name a folder"):
        place("")
    with pytest.raises(NotSupportedError, match=r"gs://bucket/ck is not in a store .*hdfs://, s3a://"):
        place("gs://bucket/ck")
    with pytest.raises(InvalidInputError, match=r"s3a://bucket names no folder; add one"):
        place("s3a://bucket")
    with pytest.raises(InvalidInputError, match=r"hdfs:///clicks names no name node"):
        place("hdfs:///clicks")
    with pytest.raises(InvalidInputError, match=r"must be text, numbers"):
        StorePath("s3a://bucket/ck", session=object())
    with pytest.raises(NotSupportedError, match=r"s3a://bucket/ck is on s3a:, and blocks .*give such a checkpoint"):
        local_path("s3a://bucket/ck", needed_for="blocks of windows")
    assert place(str(tmp_path)) == tmp_path


def test_a_path_travels_and_does_not_tell_its_secrets():
    path = StorePath("s3a://bucket/clicks/", key="AK", secret="hidden") / "penstock"
    assert pickle.loads(pickle.dumps(path)) == path
    assert path.settings == {"key": "AK", "secret": "hidden"}
    assert (path.scheme, path.authority, path.key) == ("s3a", "bucket", "clicks/penstock")
    assert repr(path) == "StorePath('s3a://bucket/clicks/penstock', key=..., secret=...)"
    assert str(path) == spark_address(path) == "s3a://bucket/clicks/penstock"


def test_a_name_node_that_does_not_answer_is_named_with_the_cure():
    folder = folder_at(StorePath("hdfs://127.0.0.1:1/clicks", webhdfs="http://127.0.0.1:1"))
    with pytest.raises(StoreError, match=r"hdfs://127.0.0.1:1 is not reached over WebHDFS .*say so: StorePath"):
        folder.read("7.json")


@pytest.mark.slow
def test_a_bucket_that_is_not_there_is_named_with_the_cure(s3):
    path = StorePath("s3a://nowhere/clicks", endpoint_url=s3, key="test", secret="test")
    assert folder_at(path).read("7.json") is None
    with pytest.raises(StoreError, match=r"there is no bucket s3://nowhere .*create it"):
        require_exclusive(path)


def test_penstock_starts_without_the_packages_of_stores(monkeypatch):
    told = subprocess.run(
        [sys.executable, "-c", "import sys, penstock; penstock.shed; print(*sys.modules)"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert not {"fsspec", "requests", "s3fs", "penstock.spark.store.hdfs"} & set(told.stdout.split())
    monkeypatch.setitem(sys.modules, "penstock.spark.store.hdfs", None)
    with pytest.raises(EnvironmentMissingError, match=r"pip install 'penstock\[hdfs\]'"):
        folder_at(StorePath("hdfs://absent:8020/clicks")).read("0")
