"""A ledger that cannot be written, and sampling that was changed under a checkpoint."""

import time

import pytest

import penstock as ps
from penstock.spark.ledger import Ledger
from tests.spark.streams import always_shedding, finish_batches, numbers

pytestmark = pytest.mark.spark


def test_a_ledger_that_cannot_be_written_is_said_and_made_up_for_later(spark, checkpoint, monkeypatch, caplog):
    broken = {"yes": True}
    append = Ledger.append

    def fail(self, batch):
        if broken["yes"]:
            raise OSError(28, "No space left on device")
        return append(self, batch)

    monkeypatch.setattr(Ledger, "append", fail)
    shedder = always_shedding(checkpoint, ps.Uniform(keep=0.5))
    run = shedder.start(numbers(spark, rows_per_batch=100).transform(shedder).writeStream.format("noop"))
    while not run.status.note:
        time.sleep(0.05)
    assert run.status.active
    assert not run.await_termination(1.0)  # the query goes on
    assert "batches cannot be entered in the ledger" in run.status.note
    broken["yes"] = False
    batches = finish_batches(run, 3)
    assert run.status.note == ""
    assert [batch.batch_id for batch in batches] == list(range(len(batches)))
    assert caplog.text.count("No space left on device") < 5  # said, not shouted


def test_another_row_id_key_or_seed_on_the_same_checkpoint_is_refused(spark, checkpoint):
    def start(**options):
        shedder = ps.shed(latency_seconds=5, checkpoint=checkpoint, **{"row_id": "value", **options})
        return shedder.start(numbers(spark).transform(shedder).writeStream.format("noop"))

    finish_batches(start(), 1)
    with pytest.raises(ps.PlanLogError, match=r"made with seed=0; with another one a replayed batch would keep other"):
        start(seed=1)
    with pytest.raises(ps.PlanLogError, match=r"made with row_id=\['value'\]"):
        start(row_id="timestamp")
    assert finish_batches(start(), 1)[0].offered == 5_000
