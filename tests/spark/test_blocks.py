"""Tuples cut into blocks, written and read again; no Spark session needed."""

import numpy as np
import pyarrow as pa
import pytest

from penstock.policy.strata.groups import GroupConcept
from penstock.spark.windows.blocks import HASH, KEY, TIME, VALUE, BlockFolder, Cut, gather, unpack_concept
from penstock.spark.windows.stateful import Index, Span
from tests.spark.synced import assert_on_disk, synced_from_now


def table(seconds, keys, *, first=0):
    count = len(seconds)
    return pa.table(
        {
            "id": np.arange(first, first + count),
            "name": [f"row {number}" for number in range(first, first + count)],
            TIME: (np.array(seconds) * 1e6).astype(np.int64),
            KEY: np.array(keys, dtype=np.int64) << 17,
            HASH: np.arange(count, dtype=np.int64),
            VALUE: np.array(keys, dtype=float),
        }
    )


def test_every_tuple_comes_back_once_in_its_pane_and_bucket(tmp_path):
    folder, cut = BlockFolder(tmp_path), Cut(pane_micros=10_000_000, buckets=2)
    seconds, keys = [1.0, 12.0, 3.0, 14.0, 5.0], [4, 5, 7, 4, 6]

    blocks = folder.write(table(seconds, keys).to_batches(), cut)

    found = {}
    for block in blocks:
        if block.tuples:
            stored = folder.read(block)
            rows = gather([stored], None)
            found[block.pane // 10**7, block.bucket] = rows["id"].tolist()
            assert list(rows.columns) == ["id", "name"]
            assert rows["name"].tolist() == [f"row {number}" for number in rows["id"]]
            assert stored.keys[stored.codes].tolist() == [keys[number] << 17 for number in rows["id"]]
            assert stored.hashes.tolist() == rows["id"].tolist()
    assert found == {(0, 0): [0, 4], (0, 1): [2], (1, 0): [3], (1, 1): [1]}
    assert len(blocks) == 4


def test_every_bucket_knows_the_concept_of_the_whole_pane(tmp_path):
    folder, cut = BlockFolder(tmp_path), Cut(pane_micros=10_000_000, buckets=2)
    blocks = folder.write(table([1.0, 2.0, 3.0], [4, 4, 6]).to_batches(), cut)

    concepts = [unpack_concept(folder.read_concept(block)) for block in blocks]

    assert [block.tuples for block in blocks] == [3, 0]
    for concept in concepts:
        assert (concept.keys >> 17).tolist() == [4, 6]
        assert (concept.counts.tolist(), concept.means.tolist()) == ([2, 1], [4.0, 6.0])


def test_blocks_are_on_the_disk_with_their_names_before_anybody_is_told_of_them(tmp_path, monkeypatch):
    (tmp_path / "checkpoint").mkdir()
    folder, cut = BlockFolder(tmp_path / "checkpoint" / "penstock" / "blocks"), Cut(pane_micros=10_000_000, buckets=2)
    synced = synced_from_now(monkeypatch)
    blocks = folder.write(table([1.0, 12.0, 3.0], [4, 5, 7]).to_batches(), cut)
    files = sorted(folder.path.rglob("*.*"))
    assert len(files) == len(blocks) + sum(block.tuples > 0 for block in blocks)
    for file in files:
        assert_on_disk(synced, file, up_to=tmp_path / "checkpoint")

    # Named by the state that is committed with the answer, like the blocks.
    folder.write_window(10, 1, b"concept")
    assert_on_disk(synced, folder.path / "windows" / "1" / "10.concept", up_to=tmp_path / "checkpoint")


def test_only_survivors_become_rows(tmp_path):
    folder, cut = BlockFolder(tmp_path), Cut(pane_micros=10_000_000, buckets=1)
    parts = [
        folder.read(block)
        for first in (0, 3)
        for block in folder.write(table([1.0, 2.0, 3.0], [4, 5, 6], first=first).to_batches(), cut)
    ]

    rows = gather(parts, [np.array([2]), np.array([0, 1])])

    assert rows["id"].tolist() == [2, 3, 4]


def test_codes_follow_the_concept_of_the_window(tmp_path):
    folder, cut = BlockFolder(tmp_path), Cut(pane_micros=10_000_000, buckets=1)
    (block,) = folder.write(table([1.0, 2.0], [6, 4]).to_batches(), cut)
    window = GroupConcept.of(np.array([4, 5, 6]) << 17)

    codes, hashes = folder.read(block).coded(window)

    assert (codes.tolist(), hashes.tolist()) == ([2, 0], [0, 1])


def test_a_pane_is_removed_with_the_last_of_its_buckets(tmp_path):
    folder, cut = BlockFolder(tmp_path), Cut(pane_micros=10_000_000, buckets=2)
    folder.write(table([1.0, 2.0], [4, 5]).to_batches(), cut)

    folder.remove_pane(0, 0)
    assert (tmp_path / "0" / "1").exists()
    folder.remove_pane(0, 1)
    assert not (tmp_path / "0").exists()
    folder.remove_pane(0, 1)


def test_an_empty_partition_has_no_blocks(tmp_path):
    assert BlockFolder(tmp_path).write(table([], []).to_batches(), Cut(pane_micros=1, buckets=2)) == []


@pytest.mark.parametrize(
    ("size", "slide", "pane", "at", "ends"),
    [(30, 10, 10, 20, [30, 40, 50]), (10, 10, 10, 20, [30]), (25, 10, 5, 20, [25, 35, 45]), (25, 10, 5, 25, [35, 45])],
)
def test_a_pane_knows_its_windows(size, slide, pane, at, ends):
    span = Span(size_micros=size, slide_micros=slide, pane_micros=pane)

    assert span.ends_of(at) == ends
    assert all(at in span.panes_of(end) for end in ends)


def test_an_index_survives_being_written():
    span = Span(size_micros=30, slide_micros=10, pane_micros=10)
    index = Index.new(Cut(pane_micros=10, buckets=2))
    index.panes[0] = [(0, "a", 5)]
    index.panes[10] = [(1, "b", 0)]
    index.ends |= {30, 20, 10}
    index.answer(30, 7, span)

    again = Index.read(index.written())

    assert again == index
    assert (again.panes, again.ends, again.answered_panes) == ({10: [(1, "b", 0)]}, {10, 20}, {0: 7})
    assert [again.accepts(end, 35) for end in (30, 40, 50)] == [False, True, True]
