import pytest

from penstock.model.batch import Batch
from penstock.model.errors import PlanLogError
from penstock.spark.run.ledger import Ledger


def batch(batch_id, kept=6, shed=4):
    return Batch(batch_id=batch_id, offered=kept + shed, kept=kept, shed=shed, keep=0.6, reason="burst")


def test_the_ledger_reads_back_what_was_entered(tmp_path):
    ledger = Ledger(tmp_path)
    entered = [batch(0), batch(1, kept=0), batch(10_000)]
    assert all(ledger.append(each) for each in entered)
    assert list(Ledger(tmp_path).batches()) == entered
    assert len(list(tmp_path.glob("*.jsonl"))) == 2  # a new file every ten thousand batches


def test_a_replayed_batch_is_entered_once(tmp_path):
    ledger = Ledger(tmp_path)
    assert ledger.append(batch(0))
    assert not ledger.append(batch(0))
    assert not Ledger(tmp_path).append(batch(0))
    assert list(ledger.batches()) == [batch(0)]


def test_a_replay_that_counts_otherwise_is_an_error(tmp_path):
    ledger = Ledger(tmp_path)
    ledger.append(batch(0, kept=6, shed=4))
    with pytest.raises(PlanLogError, match=r"batch 0 was replayed and kept 5 and shed 5 .* has 6 and 4"):
        ledger.append(batch(0, kept=5, shed=5))


@pytest.mark.parametrize("torn", ['{"batch_id": 1, "offe', "{", '{"batch_id": 1}'])
def test_a_line_that_a_crash_cut_short_is_dropped_and_can_be_entered_again(tmp_path, torn):
    Ledger(tmp_path).append(batch(0))
    (file,) = tmp_path.glob("*.jsonl")
    with file.open("a") as out:
        out.write(torn)
    ledger = Ledger(tmp_path)
    assert ledger.batch_ids == {0}
    ledger.append(batch(1))
    assert [each.batch_id for each in Ledger(tmp_path).batches()] == [0, 1]


def test_a_damaged_line_in_the_middle_is_refused_with_its_place(tmp_path):
    ledger = Ledger(tmp_path)
    ledger.append(batch(0))
    (file,) = tmp_path.glob("*.jsonl")
    file.write_text("garbage\n" + file.read_text())
    with pytest.raises(PlanLogError, match=r"line 1 of the ledger .*cannot be read"):
        Ledger(tmp_path)


@pytest.mark.parametrize("written", [1.0, 0.5])
def test_a_batch_whose_entry_failed_halfway_or_was_only_not_confirmed_is_entered_once(tmp_path, monkeypatch, written):
    ledger = Ledger(tmp_path)
    ledger.append(batch(0))

    def fail(folder, name, line):
        text = line + "\n"
        with (folder.path / name).open("a") as file:
            file.write(text[: int(len(text) * written)])
        raise OSError("no space left, or no answer")

    with monkeypatch.context() as patched:
        patched.setattr("penstock.spark.store.folder.Folder.append", fail)
        with pytest.raises(OSError, match="no space left"):
            ledger.append(batch(1))
    assert ledger.append(batch(1)) == (written < 1)
    assert list(Ledger(tmp_path).batches()) == [batch(0), batch(1)]


@pytest.mark.spark
def test_the_ledger_is_a_data_frame(spark, tmp_path):
    ledger = Ledger(tmp_path / "ledger")
    assert ledger.frame(spark).count() == 0
    ledger.append(batch(0))
    (row,) = ledger.frame(spark).collect()
    assert (row.batch_id, row.offered, row.kept, row.shed, row.recounted) == (0, 10, 6, 4, False)
    assert set(row.asDict()) == set(Batch.__slots__)
