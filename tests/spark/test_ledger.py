"""The ledger on a local disk: what is entered once is there once, whoever reads, and however much there is."""

import itertools
import os
import shutil
import time
from concurrent.futures import ProcessPoolExecutor

import pytest

from penstock.model.batch import Batch
from penstock.model.errors import InvalidInputError, PlanLogError
from penstock.spark.run.ledger import ArcEntry, ArcLedger, Ledger
from penstock.spark.run.segments import Holdings, Segment
from penstock.spark.store.folder import Folder
from tests.stores import PROCESSES

# In a file of each kind: columns, lines, an entry alone. One more is the last of all.
LOST = [3, 995, 1_005, 1_333, 1_342, 1_344]
NOT_LOST = [number for number in range(1_345) if number not in LOST]


def batch(batch_id, kept=6, shed=4, **more):
    return Batch(batch_id=batch_id, offered=kept + shed, kept=kept, shed=shed, keep=0.6, reason="burst", **more)


def fill(path, numbers):
    return fill_on(Ledger(path), numbers)


def fill_on(ledger, numbers):
    for number in numbers:
        assert ledger.append(batch(number))
    return ledger


def ids(ledger, **options):
    return [each.batch_id for each in ledger.batches(**options)]


def entry_files(path):
    return sorted(file.name for file in path.iterdir())


def held(path):
    return [segment.name for segment in Holdings(entry_files(path), path=path)]


@pytest.fixture(scope="module")
def lost_once(tmp_path_factory):
    path = tmp_path_factory.mktemp("ledger")
    fill(path, NOT_LOST)
    return path


@pytest.fixture
def some_lost(lost_once, tmp_path):
    """A ledger of which some batches have no entry."""
    return shutil.copytree(lost_once, tmp_path / "some lost")


@pytest.fixture
def no_grace(monkeypatch):
    monkeypatch.setattr("penstock.spark.run.ledger.GRACE_SECONDS", 0.0)


@pytest.fixture
def read_only(monkeypatch):
    """A disk that nobody can write to."""

    def refuse(*_, **__):
        raise AssertionError("a reader wrote")

    def make():
        for name in ("create", "replace", "remove", "_write_aside"):
            monkeypatch.setattr(Folder, name, refuse)

    return make


def test_the_ledger_reads_back_what_was_entered(tmp_path):
    full = batch(
        1,
        kept=0,
        unread=2,
        started_at=1.5,
        backlog_tuples=7.0,
        recounted=True,
        partition_offered={"clicks-0": 4},
        outputs={"sales": {"offered": 4, "kept": 3, "shed": 1}},
    )
    entered = [batch(0), full, batch(10_000)]
    ledger = Ledger(tmp_path)
    assert [ledger.append(each) for each in entered] == [True] * 3
    assert list(Ledger(tmp_path).batches()) == entered
    assert ids(ledger, since=1) == [1, 10_000]


def test_entries_have_all_fields_of_a_batch_and_survive_both_kinds_of_files(tmp_path):
    assert set(Ledger.schema.names) == set(Batch.__slots__)
    entered = [batch(n, started_at=n / 3, outputs={"a": {"offered": n, "kept": n, "shed": 0}}) for n in range(1_003)]
    ledger = Ledger(tmp_path)
    for each in entered:
        ledger.append(each)
    assert held(tmp_path)[0] == "000000000000-000000000999-1000-of-1000.parquet"
    assert list(Ledger(tmp_path).batches()) == entered
    assert list(Ledger(tmp_path).batches(since=998)) == entered[998:]


def test_a_replayed_batch_is_entered_once(tmp_path):
    ledger = fill(tmp_path, range(1_003))
    for again in (0, 777, 1_002):
        assert not ledger.append(batch(again))
        assert not Ledger(tmp_path).append(batch(again))
    assert ids(ledger) == list(range(1_003))


@pytest.mark.parametrize("entries", [1, 11, 1_003], ids=["alone", "lines", "columns"])
def test_a_replay_that_counts_otherwise_is_an_error(tmp_path, entries):
    ledger = fill(tmp_path, range(entries))
    with pytest.raises(PlanLogError, match=r"batch 0 was replayed and counted .*'kept': 5.* has .*'kept': 6"):
        ledger.append(batch(0, kept=5, shed=5))
    assert ledger.append(batch(entries))


def test_two_writers_enter_a_batch_once(tmp_path):
    first, second = fill(tmp_path, [0]), fill(tmp_path, [1])
    assert first.append(batch(2))
    assert not second.append(batch(2))
    with pytest.raises(PlanLogError, match="batch 1 was replayed"):
        first.append(batch(1, kept=5, shed=5))


@pytest.mark.parametrize("torn", ['{"batch_id": 1, "offe', "{", ""])
def test_an_entry_that_a_crash_cut_short_is_none_and_can_be_entered_again(tmp_path, torn):
    """Where there are no hard links, a file has its name before its text."""
    fill(tmp_path, [0])
    (tmp_path / Segment(first=1, last=1, count=1, span=1).name).write_text(torn)
    ledger = Ledger(tmp_path)
    assert (ids(ledger), ledger.missing([0, 1])) == ([0], [1])
    assert ledger.append(batch(1))
    assert not ledger.append(batch(1))
    assert ids(Ledger(tmp_path)) == [0, 1]


def test_an_entry_that_was_cut_short_and_merged_is_missing_and_comes_late(tmp_path):
    fill(tmp_path, [0])
    (tmp_path / Segment(first=1, last=1, count=1, span=1).name).write_text("{")
    ledger = fill(tmp_path, range(2, 12))
    assert held(tmp_path)[0] == "000000000000-000000000009-9-of-10.jsonl"
    assert (ledger.missing(range(12)), ledger.gaps()) == ([1], [range(1, 2)])
    assert ledger.append(batch(1))
    assert (ids(ledger), ledger.gaps()) == (list(range(12)), [])


@pytest.mark.parametrize("written", [1.0, 0.0])
def test_a_batch_whose_entry_failed_or_was_only_not_confirmed_is_entered_once(tmp_path, monkeypatch, written):
    ledger = fill(tmp_path, [0])
    create = Folder.create

    def fail(folder, name, text):
        if written:
            create(folder, name, text)
        raise OSError("no space left, or no answer")

    with monkeypatch.context() as patched:
        patched.setattr(Folder, "create", fail)
        with pytest.raises(OSError, match="no space left"):
            ledger.append(batch(1))
    assert ledger.append(batch(1)) == (not written)
    assert list(Ledger(tmp_path).batches()) == [batch(0), batch(1)]


def test_what_could_not_be_kept_is_refused_before_it_is_entered(tmp_path):
    ledger = fill(tmp_path, [0])
    with pytest.raises((TypeError, ValueError), match="one"):
        ledger.append(batch(1, partition_offered={"clicks-0": "one"}))
    assert ledger.append(batch(1))
    assert ids(ledger) == [0, 1]


# --- readers


def test_readers_write_nothing_and_mend_nothing(some_lost, read_only):
    (some_lost / Segment(first=1_344, last=1_344, count=1, span=1).name).write_text("{")
    before = {file: file.stat().st_mtime_ns for file in some_lost.iterdir()}
    read_only()
    ledger = Ledger(some_lost)
    assert ids(ledger) == NOT_LOST
    assert ledger.missing([2, 3, 1_344]) == [3, 1_344]
    assert ledger.gaps() == [range(number, number + 1) for number in LOST[:-1]]
    assert {file: file.stat().st_mtime_ns for file in some_lost.iterdir()} == before


def write_many(path, count, grace_seconds):
    import penstock.spark.run.ledger as module

    module.GRACE_SECONDS = grace_seconds
    fill(path, range(count))


@pytest.mark.slow
def test_a_reader_beside_a_writer_loses_nothing_in_ten_thousand_entries(tmp_path):
    """Files are merged and, once they have been merged for a while, removed while they are read."""
    path, seen = tmp_path / "ledger", [0]
    with ProcessPoolExecutor(1, mp_context=PROCESSES) as pool:
        writing = pool.submit(write_many, path, 10_000, 5.0)
        reader = Ledger(path)
        while not writing.done():
            found = ids(reader)
            assert found == list(range(len(found)))
            assert len(found) >= seen[-1]
            assert reader.missing(range(len(found))) == reader.gaps() == []
            seen.append(len(found))
        writing.result()
    assert ids(reader) == list(range(10_000))
    assert not reader.append(batch(5_000))
    assert any(0 < count < 10_000 for count in seen)


def test_a_reader_that_was_overtaken_by_a_merge_reads_on_where_it_was(tmp_path, no_grace):
    ledger = fill(tmp_path, range(9))
    reading = Ledger(tmp_path).batches()
    assert [next(reading).batch_id for _ in range(3)] == [0, 1, 2]
    fill_on(ledger, range(9, 35))
    assert held(tmp_path)[0] == "000000000000-000000000009-10-of-10.jsonl"
    assert [each.batch_id for each in reading] == list(range(3, 35))


def test_a_listing_that_is_old_by_the_time_it_is_used_is_made_anew(tmp_path, no_grace, monkeypatch):
    ledger = fill(tmp_path, range(9))
    names = Folder.names

    def overtaken(folder):
        found = names(folder)
        monkeypatch.undo()
        monkeypatch.setattr("penstock.spark.run.ledger.GRACE_SECONDS", 0.0)
        for number in range(9, 21):
            Ledger.append(ledger, batch(number))
        return found

    for ask, answer in ((lambda: ledger.missing([3, 40]), [40]), (ledger.gaps, [])):
        monkeypatch.setattr(Folder, "names", overtaken)
        assert ask() == answer


def test_an_entry_that_a_listing_overlooked_is_no_gap(tmp_path, monkeypatch):
    """A folder that changes while it is listed may show the later one of two new files alone."""
    fill(tmp_path, range(4))
    names, listed = Folder.names, itertools.count()

    def list_while_entries_are_made(folder):
        if next(listed):
            return names(folder)
        return [name for name in names(folder) if not name.startswith(("000000000001", "000000000003"))]

    monkeypatch.setattr(Folder, "names", list_while_entries_are_made)
    assert ids(Ledger(tmp_path)) == [0, 1, 2]
    listed = itertools.count()
    assert Ledger(tmp_path).gaps() == []
    assert ids(Ledger(tmp_path)) == [0, 1, 2, 3]


# --- merging


def test_files_are_merged_ten_by_ten_and_stay_few(tmp_path, no_grace):
    fill(tmp_path, range(1_345))
    assert held(tmp_path) == [
        "000000000000-000000000999-1000-of-1000.parquet",
        *(f"00000000{n}00-00000000{n}99-100-of-100.jsonl" for n in (10, 11, 12)),
        *(f"0000000013{n}0-0000000013{n}9-10-of-10.jsonl" for n in range(4)),
        *(f"00000000134{n}-00000000134{n}-1-of-1.jsonl" for n in range(5)),
    ]
    assert entry_files(tmp_path) == sorted(held(tmp_path))


def test_merged_files_stay_for_a_while_and_are_then_removed_a_few_at_a_time(tmp_path):
    fill(tmp_path, range(120))
    assert len(entry_files(tmp_path)) == 120 + 11 + 1
    # A later writer goes by how long ago they were merged.
    past = time.time() - 601
    for file in tmp_path.iterdir():
        os.utime(file, (past, past))
    ledger = fill(tmp_path, [120])
    assert len(entry_files(tmp_path)) == 120 + 11 + 1 + 2 - 20
    fill_on(ledger, range(121, 128))
    just_merged = [Segment(first=n, last=n, count=1, span=1).name for n in range(110, 120)]
    assert entry_files(tmp_path) == sorted([*held(tmp_path), *just_merged])
    assert ids(ledger) == list(range(128))


class KilledError(BaseException):
    """The process is gone."""


def killed_at(monkeypatch, number, *, after):
    """Have the process die before or after it has changed the disk so many times."""
    changes = itertools.count()

    def dying(change):
        def changed(*what):
            this = next(changes)
            if this == number and not after:
                raise KilledError
            done = change(*what)
            if this == number:
                raise KilledError
            return done

        return changed

    for name in ("create", "replace", "remove"):
        monkeypatch.setattr(Folder, name, dying(getattr(Folder, name)))


@pytest.mark.parametrize("columnar_span", [10, 1_000], ids=["columns", "lines"])
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_a_writer_killed_at_any_change_of_the_disk_loses_and_doubles_nothing(
    tmp_path, monkeypatch, no_grace, columnar_span, after
):
    monkeypatch.setattr("penstock.spark.run.segments.COLUMNAR_SPAN", columnar_span)
    for number in itertools.count():
        path, entered = tmp_path / str(number), []
        ledger = Ledger(path)
        try:
            with monkeypatch.context() as patched:
                killed_at(patched, number, after=after)
                for batch_id in range(22):
                    ledger.append(batch(batch_id))
                    entered.append(batch_id)
        except KilledError:
            found = ids(Ledger(path))
            assert found in (entered, list(range(len(entered) + 1)))
            again = Ledger(path)
            assert [again.append(batch(each)) for each in range(23)] == [each not in found for each in range(23)]
            assert ids(again) == list(range(23))
            assert again.gaps() == again.missing(range(23)) == []
            assert entry_files(path) == sorted(held(path))
        else:
            break
    assert number == 22 + 2 + 20  # entries, merges, and the files that were merged


@pytest.mark.parametrize("late", LOST)
def test_batches_that_were_counted_late_take_their_place(some_lost, late):
    ledger = Ledger(some_lost)
    assert ledger.missing(range(1_345)) == LOST
    assert ledger.append(batch(late, recounted=True))
    assert not ledger.append(batch(late, recounted=True))
    assert ids(Ledger(some_lost)) == sorted([*NOT_LOST, late])
    assert next(Ledger(some_lost).batches(since=late)).recounted
    assert Ledger(some_lost).missing([late]) == []


def test_batches_before_between_and_after_all_others_come_in_any_order(tmp_path):
    order = [5_000, 5_001, 12_345, 7, 5_555, 12_346, 8, 12_400, 9, 0, 99_999, 1, 250_000, 6, 100_000]
    ledger = fill(tmp_path, order)
    assert ids(ledger) == ids(Ledger(tmp_path)) == sorted(order)
    assert ledger.missing([*order, 2, 12_347, 250_001]) == [2, 12_347, 250_001]
    assert [not Ledger(tmp_path).append(batch(number)) for number in order] == [True] * len(order)


def test_a_writer_that_another_one_overtook_looks_again(tmp_path, no_grace):
    first, second = fill(tmp_path, range(9)), Ledger(tmp_path)
    fill_on(second, range(9, 20))
    assert not first.append(batch(3))
    assert first.append(batch(20))
    assert ids(first) == list(range(21))


def test_a_merge_that_fails_is_said_and_the_entry_is_there(tmp_path, monkeypatch, caplog):
    ledger = fill(tmp_path, range(10))

    def full(*_):
        raise OSError("no space left")

    with monkeypatch.context() as patched:
        patched.setattr(Folder, "replace", full)
        assert ledger.append(batch(10))
    assert "are not merged or removed (no space left)" in caplog.text
    assert ledger.append(batch(11))
    assert held(tmp_path)[0] == "000000000000-000000000009-10-of-10.jsonl"


def test_what_a_writer_that_died_left_half_written_is_removed_by_a_later_one(tmp_path):
    fill(tmp_path, [0])
    old, young = tmp_path / ".000000000001-x.abc", tmp_path / ".000000000001-x.def"
    for file in (old, young):
        file.write_text("{")
    os.utime(old, (time.time() - 3_700,) * 2)
    assert ids(Ledger(tmp_path)) == [0]
    assert old.exists()
    fill(tmp_path, [1])
    assert not old.exists()
    assert young.exists()  # perhaps somebody is writing it


# --- gaps


def test_gaps_are_told_as_ranges(tmp_path, some_lost):
    assert Ledger(tmp_path / "new").gaps() == []
    assert Ledger(some_lost).gaps() == [range(number, number + 1) for number in LOST[:-1]]
    ledger = fill(tmp_path / "new", [n for n in range(20, 160) if n not in (25, 26) and not 50 <= n < 150])
    assert ledger.gaps() == [range(25, 27), range(50, 150)]
    assert ledger.missing(range(170)) == [*range(20), 25, 26, *range(50, 150), *range(160, 170)]


def test_of_a_long_ledger_no_more_is_read_than_is_asked_for(tmp_path):
    """Thirty million batches: names tell what is there, so files with nothing in them do."""
    for first in range(0, 30_000_000, 100_000):
        (tmp_path / Segment(first=first, last=first + 99_999, count=100_000, span=100_000).name).touch()
    ledger = Ledger(tmp_path)
    assert ledger.append(batch(30_000_001))
    assert ledger.missing([17, 29_999_999, 30_000_000, 30_000_001]) == [30_000_000]
    assert ledger.gaps() == [range(30_000_000, 30_000_001)]
    assert ids(ledger, since=30_000_000) == [30_000_001]


# --- damage


@pytest.mark.parametrize("damage", [b"garbage", b"\xff\xfe{}", b"[]", b"{}", b'{"batch_id": 0}', b'{"batch_id": 77}'])
def test_a_damaged_line_is_refused_with_its_place(tmp_path, damage):
    fill(tmp_path, range(11))
    file = tmp_path / "000000000000-000000000009-10-of-10.jsonl"
    file.write_bytes(damage + b"\n" + b"".join(file.read_bytes().splitlines(keepends=True)[1:]))
    for ask in (lambda: ids(Ledger(tmp_path)), lambda: Ledger(tmp_path).append(batch(3))):
        with pytest.raises(PlanLogError, match=r"line 1 of the ledger .*10-of-10.jsonl cannot be read.*restore"):
            ask()
    assert Ledger(tmp_path).append(batch(11))  # what is new goes elsewhere


def test_lines_that_are_lost_are_told_by_the_name(tmp_path):
    fill(tmp_path, range(11))
    file = tmp_path / "000000000000-000000000009-10-of-10.jsonl"
    file.write_text("".join(file.read_text().splitlines(keepends=True)[:-1]))
    with pytest.raises(PlanLogError, match=r"10-of-10.jsonl of the ledger has 9 entries, its name says 10; restore"):
        ids(Ledger(tmp_path))


def test_an_entry_that_does_not_balance_is_refused_with_its_place(tmp_path):
    fill(tmp_path, [0])
    (file,) = tmp_path.iterdir()
    file.write_text(file.read_text().replace('"kept": 6', '"kept": 7'))
    with pytest.raises(PlanLogError, match=r"batch 0 in .*1-of-1.jsonl of the ledger is no entry .*does not balance"):
        ids(Ledger(tmp_path))


@pytest.mark.parametrize("damage", [lambda data: data[:-100], lambda data: data[:200] + b"x" * 30 + data[230:]])
def test_a_damaged_segment_is_refused_with_its_name_and_leaves_the_others(tmp_path, damage, no_grace):
    fill(tmp_path, range(1_003))
    file = tmp_path / "000000000000-000000000999-1000-of-1000.parquet"
    file.write_bytes(damage(file.read_bytes()))
    with pytest.raises(PlanLogError, match=r"segment .*1000-of-1000.parquet of the ledger cannot be read .*move it"):
        ids(Ledger(tmp_path))
    assert ids(Ledger(tmp_path), since=1_000) == [1_000, 1_001, 1_002]
    file.rename(tmp_path.parent / "aside.parquet")
    assert Ledger(tmp_path).missing([999, 1_000]) == [999]


def test_damage_does_not_end_the_entering_or_the_merging_of_others(tmp_path, no_grace, caplog):
    ledger = fill(tmp_path, range(10))
    damaged = tmp_path / Segment(first=4, last=4, count=1, span=1).name
    damaged.write_text("garbage\n")
    fill_on(ledger, range(10, 32))
    assert caplog.text.count("line 1 of the ledger") == 1
    assert held(tmp_path)[10] == "000000000010-000000000019-10-of-10.jsonl"
    assert ids(ledger, since=5) == list(range(5, 32))
    assert damaged.exists()


def test_a_ledger_of_another_version_is_refused(tmp_path):
    (tmp_path / "00000000.jsonl").write_text("{}\n")
    for ask in (lambda: Ledger(tmp_path).append(batch(0)), lambda: ids(Ledger(tmp_path))):
        with pytest.raises(PlanLogError, match=r"00000000.jsonl is no file of a ledger as this Penstock writes"):
            ask()


# --- arcs


def test_arcs_have_a_ledger_of_the_same_kind(tmp_path):
    def entry(number, shed=2):
        arcs = {"events→bids": {"offered": 5, "kept": 5 - shed, "shed": shed}}
        return ArcEntry(batch_id=number, arcs=arcs, outputs={"bids": {"delivered": 0.6, "utility": 0.5}})

    ledger = ArcLedger(tmp_path)
    for number in range(1_005):
        assert ledger.append(entry(number))
    assert not ledger.append(entry(3))
    with pytest.raises(PlanLogError, match=r"batch 3 was replayed and counted .*'shed': 1"):
        ledger.append(entry(3, shed=1))
    assert list(ArcLedger(tmp_path).batches()) == [entry(number) for number in range(1_005)]
    assert entry(0).shed == {"events→bids": 2}


# --- with Spark


@pytest.mark.spark
def test_the_ledger_is_a_data_frame(spark, tmp_path):
    ledger = Ledger(tmp_path / "ledger")
    assert ledger.frame(spark).count() == 0
    ledger.append(batch(0, outputs={"sales": {"offered": 4, "kept": 3, "shed": 1}}))
    (row,) = ledger.frame(spark).collect()
    assert (row.batch_id, row.offered, row.kept, row.shed, row.recounted) == (0, 10, 6, 4, False)
    assert set(row.asDict()) == set(Batch.__slots__)
    assert row.outputs["sales"].kept == 3


@pytest.mark.spark
def test_a_frame_has_every_entry_once_or_just_the_last_ones(spark, some_lost):
    ledger = Ledger(some_lost)

    def found(**options):
        return sorted(row.batch_id for row in ledger.frame(spark, **options).select("batch_id").collect())

    assert found() == NOT_LOST
    for last in (1, 3, 45, 300, 342, 1_000, len(NOT_LOST), 10_000):
        assert found(last=last) == NOT_LOST[-last:]
    frame = ledger.frame(spark)
    assert frame.schema == ledger.frame(spark, last=1).schema
    fill_on(ledger, range(1_345, 2_004))
    assert frame.count() == len(NOT_LOST)  # as it was when it was made, although files were merged since
    for last in (0, -1, 2.5, True):
        with pytest.raises(InvalidInputError, match="last must be a whole number of at least 1"):
            ledger.frame(spark, last=last)
