"""What a task writes, wherever the spill lies; no Spark is needed to see it."""

import io
import json
import os
import time
import types
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import types as T

from penstock.control.governor import Governor
from penstock.control.guidance import Guidance
from penstock.model.batch import Batch
from penstock.model.errors import SpillError
from penstock.spark.plan.planner import ShedPlanner
from penstock.spark.spill import file as spillfile
from penstock.spark.spill import writer as spillwriter
from penstock.spark.spill.folder import SpillFolder
from penstock.spark.spill.options import Spill
from penstock.spark.spill.schema import OF_STREAM, stored_columns
from penstock.spark.spill.writer import Part
from penstock.spark.store.folder import folder_at
from penstock.spark.store.objects import store_of
from penstock.spark.store.paths import StorePath
from tests.spark.synced import assert_on_disk, synced_from_now

COLUMNS = T.StructType([T.StructField("id", T.LongType())])


@pytest.fixture
def task(monkeypatch):
    """The task that writes; its stage, partition and attempt can be changed."""
    context = types.SimpleNamespace(stage=3, partition=0, attempt=8)
    context.stageId, context.partitionId = lambda: context.stage, lambda: context.partition
    context.taskAttemptId = lambda: context.attempt
    monkeypatch.setattr(spillwriter, "TaskContext", types.SimpleNamespace(get=lambda: context))
    return context


def part_at(path, *, rows="all", batch_id=0):
    planner = ShedPlanner(checkpoint=path / "checkpoint", governor=Governor(latency_seconds=5), name="clicks")
    planner.log.publish(Guidance(published_at=time.time()))
    folder_at(planner.checkpoint).replace("metadata", json.dumps({"id": "q"}))
    where = path / "spill"
    spill = Spill(where if isinstance(where, StorePath) else str(where), rows=rows)
    spill.require_writable()
    columns = stored_columns(COLUMNS, OF_STREAM, weight="weight").json()
    return Part(
        spill=spill, planner=planner, weight="weight", columns_json=columns, build="b", batch_id=batch_id
    ), SpillFolder(path=spill.folder / "query=q")


def some_rows(*shed):
    """Rows as Spark hands them over: null where there is nothing to store."""
    rows = [None if each is None else {"id": n, "shed": each, "sampled": True} for n, each in enumerate(shed)]
    kind = pa.struct([("id", pa.int64()), ("shed", pa.bool_()), ("sampled", pa.bool_())])
    return pa.array(rows, type=kind)


def batch_of(offered, shed, **counts):
    return Batch(batch_id=0, offered=offered, kept=offered - shed, shed=shed, keep=0.5, reason="", **counts)


def read(run):
    """Rows of a run, from its files, or the folder where it holds nothing else."""
    files = []
    for path in run.paths:
        if isinstance(path, StorePath):
            store = store_of(path)
            names = (
                [path.key] if path.key.endswith(".parquet") else [f"{path.key}/{n}" for n in store.written_at(path.key)]
            )
            files += [io.BytesIO(store.read(name)) for name in names]
        else:
            files += [path] if path.is_file() else sorted(Path(path).glob("*.parquet"))
    return [row for file in files for row in pq.read_table(file).to_pylist()]


def counts(spilled, batch_id=0):
    return {run.name: (run.rows, run.shed) for run in spilled.runs(batch_id)}


@pytest.mark.slow
def test_a_task_that_runs_twice_leaves_its_rows_once_wherever_they_are(anywhere, task):
    part, spilled = part_at(anywhere)
    for task.attempt in (8, 9):
        kept = [each.to_pylist() for each in part.store(iter([some_rows(True, False), some_rows(True)]))]
        assert kept == [[False, True], [False]]
    task.partition = 1
    list(part.store(iter([some_rows(False)])))
    assert counts(spilled) == {"b-3": (4, 2)}
    run = spilled.whole(batch_of(4, 2), every=True)
    stored = read(run)
    assert [row["id"] for row in stored] == [0, 1, 0, 0]
    assert stored[0] | {"id": 0, "shed": True, "weight": 1.0, "batch": 0, "arc": "clicks"} == stored[0]
    assert stored[0]["reason"] == part.planner.log.decision(0).plan.reason
    # What does not balance with the ledger is not whole; what was never read cannot be there.
    assert spilled.whole(batch_of(5, 3), every=True) is None
    assert spilled.whole(batch_of(9, 7, unread=5), every=True) == run
    assert spilled.whole(batch_of(5, 2), every=False) is None
    assert (spilled.prune(before=0), spilled.pruned()) == (0, (0, 0))
    assert (spilled.prune(before=7), spilled.pruned()) == (1, (7, 1))
    assert spilled.batch_ids() == set()


def test_a_task_that_computes_several_partitions_under_one_number_keeps_their_files_apart(tmp_path, task):
    """As behind ``coalesce``: their counts are equal, and a first attempt dies on the way."""
    part, spilled = part_at(tmp_path)
    parents = [some_rows(True, False), some_rows(False, True), some_rows(True, True, False)]
    for rows in parents[:2]:
        list(part.store(iter([rows])))
    task.attempt = 9
    for rows in parents:
        list(part.store(iter([rows])))
    assert len(list(spilled.path.rglob("part-*.parquet"))) == 5
    assert counts(spilled) == {"b-3": (7, 4)}
    run = spilled.whole(batch_of(7, 4), every=True)
    assert sorted(row["shed"] for row in read(run)) == [False] * 3 + [True] * 4


def test_what_is_shed_is_on_the_disk_with_its_name_before_the_task_is_done(tmp_path, task, monkeypatch):
    part, spilled = part_at(tmp_path, rows="shed")
    part.planner.decide(0)
    synced = synced_from_now(monkeypatch)
    list(part.store(iter([some_rows(True, None)])))
    (file,) = spilled.path.rglob("part-*.parquet")
    assert_on_disk(synced, file, up_to=tmp_path / "spill")


def test_files_of_a_folder_are_on_the_disk_with_their_names(tmp_path, monkeypatch):
    folder = folder_at(tmp_path / "plans" / "new")
    synced = synced_from_now(monkeypatch)
    assert folder.create("0.json", "first")
    assert_on_disk(synced, tmp_path / "plans" / "new" / "0.json", up_to=tmp_path)
    folder.replace("guidance.json", "one")
    assert_on_disk(synced, tmp_path / "plans" / "new" / "guidance.json", up_to=tmp_path / "plans" / "new")
    # Who comes second goes on with what the first has written, which may have died before it synced the name.
    del synced[:]
    assert not folder.create("0.json", "second")
    assert (tmp_path / "plans" / "new").stat().st_ino in [inode for inode, _ in synced]


def test_kept_rows_are_not_stored_where_only_shed_ones_are_asked_for(tmp_path, task):
    part, spilled = part_at(tmp_path, rows="shed")
    kept = [each.to_pylist() for each in part.store(iter([some_rows(None, None), some_rows(None, True)]))]
    assert kept == [[True, True], [True, False]]
    assert counts(spilled) == {"b-3": (1, 1)}
    assert spilled.whole(batch_of(4, 1), every=False) is not None
    assert spilled.whole(batch_of(4, 1), every=True) is None
    assert [each.to_pylist() for each in part_at(tmp_path, batch_id=1)[0].store(iter([some_rows(None)]))] == [[True]]
    assert spilled.batch_ids() == {0}  # nothing to store, nothing touched


def test_a_task_whose_output_is_not_wanted_to_the_end_leaves_no_file(tmp_path, task):
    part, spilled = part_at(tmp_path)
    storing = part.store(iter([some_rows(True), some_rows(True)]))
    next(storing)
    assert list(spilled.path.rglob(".part-*"))
    storing.close()
    assert [path for path in spilled.path.rglob("*") if path.is_file()] == []


def test_many_rows_make_few_row_groups(tmp_path, task, monkeypatch):
    monkeypatch.setattr(spillfile, "GROUP_ROWS", 250)
    part, spilled = part_at(tmp_path)
    list(part.store(some_rows(*[True] * 100) for _ in range(10)))
    (file,) = spilled.path.rglob("part-*.parquet")
    assert pq.read_metadata(file).num_row_groups == 4
    assert pq.read_metadata(file).num_rows == 1_000


def test_a_full_disk_is_said_with_its_cure_and_leaves_no_file(tmp_path, task, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    part, spilled = part_at(tmp_path)
    part.planner.decide(0)  # planned before the disk was full
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(SpillError, match=r"rows of batch 0 cannot be spilled.*No space left.*Make room or mend"):
        list(part.store(iter([some_rows(True)])))
    assert [path for path in spilled.path.rglob("*") if path.is_file()] == []


def test_a_worker_that_sees_another_folder_under_the_same_name_says_so(tmp_path, task):
    part, _ = part_at(tmp_path)
    (tmp_path / "spill" / "_penstock").unlink()
    with pytest.raises(SpillError, match="is not the folder here that the driver sees under this name"):
        list(part.store(iter([some_rows(True)])))
