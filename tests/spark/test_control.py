"""The control of a query, round by round, with one fault after the other put into it: it always comes back by itself.

What Spark reports is scripted here; logs, ledger and lease are real files. ``test_trouble.py`` does it on Spark.
"""

import json
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

import penstock as ps
from penstock.control.controller import Controller
from penstock.control.governor import Decision, Governor
from penstock.model.errors import LeaseLostError
from penstock.spark.plan.planner import ShedPlanner
from penstock.spark.run import control as controls
from penstock.spark.run import gaps as gaps_module
from penstock.spark.run import reports as reports_module
from penstock.spark.run import trouble
from penstock.spark.run.control import Control
from penstock.spark.run.gaps import Gaps
from penstock.spark.run.learner import CostLearner, Counts
from penstock.spark.run.lease import Lease
from penstock.spark.run.ledger import Ledger
from penstock.spark.run.reports import Reports

OFFERED, KEPT = 10, 6


@dataclass
class Scripted:
    """A query whose every round does the next step; it remembers as many reports as it is told to."""

    steps: list = field(default_factory=list)
    recentProgress: list = field(default_factory=list)  # noqa: N815
    remembers: int = 100
    stopped: bool = False

    @property
    def isActive(self):  # noqa: N802
        if self.stopped or not self.steps:
            return False
        self.steps.pop(0)()
        return True

    @property
    def lastProgress(self):  # noqa: N802
        return self.recentProgress[-1] if self.recentProgress else None

    def stop(self):
        self.stopped = True


@dataclass
class Job:
    """A checkpoint, its control, and a script to run it by."""

    path: Path
    query: Scripted = field(default_factory=Scripted)
    finished: list = field(default_factory=list)
    notes: list = field(default_factory=list)
    recounted: list = field(default_factory=list)
    unreadable: set = field(default_factory=set)

    def __post_init__(self):
        governor = Governor(latency_seconds=5.0, policy=ps.Uniform(keep=KEPT / OFFERED))
        self.planner = ShedPlanner(checkpoint=self.path, governor=governor, name="shed")
        self.log = self.planner.log

    def begin(self, *, learners=None):
        costs = CostLearner(Controller(self.planner.governor, resume=self.log.guidance()))
        self.lease = Lease.take(self.log.path / "epochs", heard_at=lambda: None)
        gaps = Gaps(planner=self.planner, ledger=Ledger(self.log.path / "ledger"), recount=self.recount)
        self.control = Control(
            planner=self.planner,
            lease=self.lease,
            gaps=gaps,
            learners={**(learners or {}), "costs": costs},
            catch_up=False,
            tidy=None,
            finished=self.finished.append,
        )
        return self.control.prepare()

    def run(self, *steps, last_id=None):
        """Do the steps, one in each round, and note the status after each round; then let the query end."""
        known = self.begin() if last_id is None else last_id
        self.query.steps = [*steps, self.note]
        self.control.run(self.query, Reports(self.query, self.path, last_id=known))

    def note(self):
        self.notes.append((self.control.note, self.control.silent))

    def commit(self, *batch_ids, report=True):
        """Have Spark commit some batches and report them, as far as it remembers."""
        for batch_id in batch_ids:
            decision = Decision(
                batch_id=batch_id,
                decided_at=float(batch_id),
                plan=ps.Plan(keep=KEPT / OFFERED, reason="burst"),
                expected_tuples=OFFERED,
            )
            # Executors plan, whatever fails on the driver.
            self.log._enter(decision)
            for kind, text in (
                ("offsets", f'v1\n{{"batchTimestampMs": {batch_id * 1000}}}\n{{"tuples": {(batch_id + 1) * OFFERED}}}'),
                ("commits", "v1\n{}"),
            ):
                (self.path / kind).mkdir(parents=True, exist_ok=True)
                (self.path / kind / str(batch_id)).write_text(text)
            if report:
                self.query.recentProgress = [*self.query.recentProgress, report_of(batch_id)][-self.query.remembers :]

    def commits(self, *batch_ids, **options):
        return lambda: self.commit(*batch_ids, **options)

    def recount(self, batch_id, *, seconds):
        assert seconds > 0
        if batch_id in self.unreadable:
            return None
        self.recounted.append(batch_id)
        batch = ps.Batch(
            batch_id=batch_id,
            offered=OFFERED,
            kept=KEPT,
            shed=OFFERED - KEPT,
            keep=KEPT / OFFERED,
            reason="burst",
            recounted=True,
        )
        return batch, Counts(name="shed", observed={"shed": {"offered": OFFERED, "kept": KEPT, "shed": OFFERED - KEPT}})

    @property
    def entered(self):
        return [batch.batch_id for batch in Ledger(self.log.path / "ledger").batches()]


def report_of(batch_id):
    offset = json.dumps({"tuples": (batch_id + 1) * OFFERED})
    start = json.dumps({"tuples": batch_id * OFFERED}) if batch_id else None
    return {
        "batchId": batch_id,
        "timestamp": f"2026-01-01T00:00:{batch_id % 60:02d}.000Z",
        "durationMs": {"triggerExecution": 500, "addBatch": 400},
        "sources": [{"startOffset": start, "endOffset": offset, "latestOffset": offset}],
        "observedMetrics": {"shed": {"offered": OFFERED, "kept": KEPT, "shed": OFFERED - KEPT}},
    }


@pytest.fixture
def job(tmp_path, monkeypatch):
    # Rounds follow on each other at once, and what failed is tried again in the next.
    monkeypatch.setattr(reports_module, "POLL_SECONDS", 0.0)
    monkeypatch.setattr(reports_module, "POLLS_PER_BATCH", 1e9)
    monkeypatch.setattr(reports_module, "ASK_AT_LEAST_SECONDS", 0.0)
    monkeypatch.setattr(trouble, "AGAIN_SECONDS", 0.0)
    monkeypatch.setattr(controls, "HEARTBEAT_SECONDS", 0.0)
    return Job(tmp_path / "checkpoint")


class Fault:
    """Lets a method fail while it is switched on."""

    def __init__(self, monkeypatch, owner, name, error, *, when=lambda *_: True):
        self.on, self.error, self.tries = False, error, 0
        whole = getattr(owner, name)

        def fail(*arguments, **named):
            if self.on and when(*arguments):
                self.tries += 1
                raise self.error
            return whole(*arguments, **named)

        monkeypatch.setattr(owner, name, fail)

    def strike(self):
        self.on = True

    def mend(self):
        self.on = False


def nothing():
    """A round without news."""


def test_what_spark_reports_is_entered_and_learned_from_once_each(job):
    job.run(job.commits(0), job.commits(1, 2), nothing)
    assert job.entered == [0, 1, 2] == [batch.batch_id for batch in job.finished]
    assert job.notes == [("", False)]
    known = job.log.guidance()
    assert (known.batch_id, known.epoch, known.stopped) == (2, 1, False)
    assert known.tuples_per_unit == (1.0,)


def test_while_the_ledger_cannot_be_written_control_goes_on_and_entries_are_made_up_for(job, monkeypatch):
    fault = Fault(monkeypatch, Ledger, "append", OSError(28, "No space left on device"))
    learned = []
    job.run(
        job.commits(0),
        fault.strike,
        job.commits(1, 2),
        job.note,
        lambda: learned.append(job.log.guidance().batch_id),
        job.commits(3),
        fault.mend,
        job.note,
        nothing,
    )
    during, after, end = job.notes
    assert "batches cannot be entered in the ledger" in during[0]
    assert "No space left on device" in during[0]
    assert not during[1]  # the guidance is renewed all the same
    assert learned == [2]
    assert after == end == ("", False)
    assert job.entered == [0, 1, 2, 3]
    assert not any(batch.recounted for batch in Ledger(job.log.path / "ledger").batches())
    assert fault.tries > 1


def test_what_waits_for_the_ledger_is_bounded_and_the_rest_counted_again(job, monkeypatch):
    monkeypatch.setattr(gaps_module, "WAITING_AT_MOST", 2)
    fault = Fault(monkeypatch, Ledger, "append", OSError(28, "No space left on device"))
    job.run(fault.strike, job.commits(0, 1, 2, 3, 4), nothing, fault.mend, *[nothing] * 10)
    assert job.entered == [0, 1, 2, 3, 4]
    assert job.recounted == [0, 1, 2]
    assert job.notes[-1] == ("", False)


def test_a_batch_that_cannot_be_learned_from_is_named_entered_and_passed(job, monkeypatch):
    fault = Fault(monkeypatch, Controller, "learn", ArithmeticError("injected"), when=lambda _, batch: True)
    job.run(job.commits(0), fault.strike, job.commits(1), job.note, fault.mend, job.commits(2), nothing)
    (words, silent), end = job.notes
    assert "costs cannot be learned from batch 1, which is passed (ArithmeticError('injected'))" in words
    assert "goes on with the last guidance for 60 s, then keeps all" in words
    assert silent
    assert end == ("", False)
    assert job.entered == [0, 1, 2]
    assert job.log.guidance().batch_id == 2


def test_guidance_is_not_renewed_while_nothing_is_learned(job, monkeypatch):
    fault = Fault(monkeypatch, Controller, "learn", ArithmeticError("injected"))
    published = []

    def look():
        published.append(job.log.guidance().published_at)

    job.run(job.commits(0), nothing, fault.strike, job.commits(1), nothing, look, nothing, look)
    assert published[0] == published[1]


def test_a_poison_report_does_not_hold_up_those_behind_it_and_its_batch_is_counted_again(job):
    def poison():
        job.commit(1)
        del job.query.recentProgress[-1]["sources"]
        job.commit(2)

    job.run(job.commits(0), poison, job.commits(3), *[nothing] * 5)
    assert job.entered == [0, 1, 2, 3]
    assert job.recounted == [1]
    assert {batch.batch_id for batch in Ledger(job.log.path / "ledger").batches() if batch.recounted} == {1}
    assert job.notes[-1] == ("", False)


def test_a_batch_that_is_missed_at_the_very_end_is_counted_again_before_the_run_ends(job):
    def poison():
        job.commit(1)
        del job.query.recentProgress[-1]["sources"]
        job.query.steps.clear()

    job.run(job.commits(0), poison)
    assert job.entered == [0, 1]
    assert [batch.batch_id for batch in job.finished] == [0, 1]


def test_a_report_that_says_not_even_which_batch_it_is_of_leaves_a_gap_that_is_closed(job):
    def poison():
        job.commit(1)
        job.query.recentProgress[-1] = {"batchId": "?", "durationMs": {"addBatch": 1}}

    job.run(job.commits(0), poison, nothing, job.commits(2, 3), *[nothing] * 5)
    assert job.entered == [0, 1, 2, 3]
    assert job.recounted == [1]


def test_a_batch_that_can_neither_be_read_nor_counted_again_is_named_for_good(job, caplog):
    job.unreadable = {1}

    def poison():
        job.commit(1)
        del job.query.recentProgress[-1]["sources"]

    job.run(job.commits(0), poison, nothing, job.commits(2), nothing, nothing)
    assert job.entered == [0, 2]
    assert job.notes[-1] == ("batch 1 was committed and not entered: its rows can no longer be read", False)
    assert "batch 1 cannot be taken in and is passed" in caplog.text

    again = Job(job.path)
    again.unreadable = {1}
    again.run(nothing)
    assert [(gap.first, gap.last) for gap in again.control.gaps.named] == [(1, 1)]
    readable = Job(job.path)
    readable.run(nothing)
    assert readable.entered == [0, 1, 2]
    assert readable.control.gaps.named == []
    assert json.loads((job.log.path / "gaps.json").read_text())["gaps"] == []


def test_more_reports_than_spark_remembers_are_noticed_and_their_batches_counted_again(job):
    job.query.remembers = 2
    job.run(job.commits(0), job.commits(1, 2, 3, 4, 5, 6), *[nothing] * 20)
    assert job.entered == list(range(7))
    assert job.recounted == [1, 2, 3, 4]
    assert job.notes[-1] == ("", False)


def test_missed_batches_whose_offsets_are_gone_are_named_as_a_range(job):
    job.query.remembers = 2

    def miss():
        job.commit(*range(1, 8))
        for kind in ("offsets", "commits"):
            for number in range(4):
                (job.path / kind / str(number)).unlink()

    job.run(job.commits(0), miss, *[nothing] * 10)
    assert job.entered == [0, 4, 5, 6, 7]
    assert job.notes[-1][0] == (
        "batches 1 to 3 were committed and not entered: Spark had dropped the report before it was read, and Spark has "
        "dropped the offsets to count again from"
    )
    assert Job(job.path).begin() == 7


def test_batches_that_were_committed_behind_the_back_of_every_driver_are_named_at_the_next_start(job):
    job.run(job.commits(0))
    job.commit(*range(1, 9), report=False)  # a query that was left to itself
    for kind in ("offsets", "commits"):
        for number in range(6):
            (job.path / kind / str(number)).unlink()

    later = Job(job.path)
    later.run(nothing)
    assert later.entered == [0, 6, 7, 8]
    assert later.recounted == [6, 7, 8]
    assert [(gap.first, gap.last) for gap in later.control.gaps.named] == [(1, 5)]


@pytest.mark.parametrize("name", ["publish", "decision", "batch_ids"])
def test_a_store_that_does_not_answer_for_a_while_ends_nothing(job, monkeypatch, name):
    fault = Fault(monkeypatch, type(job.log), name, OSError("no answer"))
    job.run(job.commits(0), nothing, fault.strike, job.commits(1), job.commits(2), fault.mend, *[nothing] * 5)
    assert job.entered == [0, 1, 2]
    assert job.log.guidance().batch_id == 2
    assert job.notes[-1] == ("", False)
    assert not any(batch.recounted for batch in Ledger(job.log.path / "ledger").batches())


def test_a_plan_that_stays_out_of_reach_holds_up_nothing_for_long(job, monkeypatch):
    monkeypatch.setattr(controls, "PATIENCE_SECONDS", 0.0)
    fault = Fault(
        monkeypatch, type(job.log), "decision", OSError("input/output error"), when=lambda _, batch_id: batch_id == 1
    )
    job.run(job.commits(0), fault.strike, job.commits(1, 2), job.commits(3), *[nothing] * 5)
    assert job.entered == [0, 1, 2, 3]
    assert job.recounted == [1]


def test_pruning_that_fails_is_tried_again(job, monkeypatch):
    fault = Fault(monkeypatch, type(job.log), "prune", OSError("busy"))
    monkeypatch.setattr(controls, "PRUNE_EVERY_BATCHES", 2)

    def drop():
        (job.path / "offsets" / "0").unlink()

    job.run(job.commits(0, 1), drop, fault.strike, job.commits(2), job.note, fault.mend, nothing, nothing)
    assert "what belongs to old batches cannot be removed" in job.notes[0][0]
    assert job.notes[-1] == ("", False)
    assert job.log.batch_ids() == [1, 2]


def test_a_replay_that_counts_otherwise_is_named_and_passed(job):
    job.run(job.commits(0))
    other = Job(job.path)
    other.begin()
    other.query.recentProgress = [
        report_of(0) | {"observedMetrics": {"shed": {"offered": OFFERED, "kept": 5, "shed": OFFERED - 5}}}
    ]
    other.query.steps = [nothing, other.commits(1), nothing, other.note]
    other.control.run(other.query, Reports(other.query, other.path, last_id=-1))
    assert other.entered == [0, 1]
    assert "batch 0 was replayed and" in other.notes[0][0]


def test_spark_that_does_not_answer_is_asked_again(job, monkeypatch):
    answers = iter([ConnectionError("reset")] * 3)
    whole = Scripted.lastProgress.fget

    def last(query):
        for error in answers:
            raise error
        return whole(query)

    monkeypatch.setattr(Scripted, "lastProgress", property(last))
    job.run(job.commits(0), nothing, job.note, nothing, nothing)
    assert "Spark's reports cannot be taken in (ConnectionError('reset'))" in job.notes[0][0]
    assert job.entered == [0]
    assert job.notes[-1] == ("", False)


def test_a_part_that_cannot_give_guidance_is_tried_again(job, monkeypatch):
    class Part:
        learns = "nothing"
        on = False

        def learn(self, batch, counts):
            return replace(batch, reason=counts.own["kept"])

        def enter(self, batch, counts): ...

        def guidance(self, known):
            if self.on:
                raise ValueError("no road map")
            return known

    part = Part()
    known = job.begin(learners={"part": part})

    def strike():
        part.on = True

    def mend():
        part.on = False

    job.run(job.commits(0), strike, job.commits(1), job.note, mend, nothing, last_id=known)
    assert "guidance cannot be published (ValueError('no road map'))" in job.notes[0][0]
    assert job.notes[0][1]
    assert job.notes[-1] == ("", False)
    assert job.log.guidance().batch_id == 1


def texts_in(path):
    """What drivers write: plans are Spark's to ask for, and epochs tell of drivers."""
    files = [file for file in path.rglob("*") if file.is_file() and file.parent.name not in ("epochs", "plans")]
    return {file: file.read_text() for file in files}


@pytest.mark.parametrize("first", ["entry", "guidance", "pruning", "noting a gap", "recount", "the end"])
def test_a_driver_that_has_lost_its_lease_stops_its_query_and_writes_nothing_more(job, monkeypatch, first):
    """Whatever it would write first."""
    other = Job(job.path)
    busy = Fault(monkeypatch, type(job.log), "prune", OSError("busy"))
    if first == "pruning":
        busy.strike()

    def take_over():
        monkeypatch.setattr(controls, "HEARTBEAT_SECONDS", 0.0 if first == "guidance" else 1e9)
        other.begin()
        other.before = texts_in(job.log.path)
        busy.mend()
        (job.path / "offsets" / "0").rename(job.path / "offsets" / "1")
        if first in ("entry", "recount"):
            job.commit(1)  # Spark was quicker
        if first == "recount":
            del job.query.recentProgress[-1]["sources"]
        if first == "noting a gap":
            job.control.gaps.name(7, 7, "nobody knows")

    job.run(job.commits(0), nothing, take_over, *([] if first == "the end" else [nothing] * 5))
    job.control.end()
    assert job.query.stopped
    assert isinstance(job.control.lost, LeaseLostError)
    assert "epoch 1) has lost the checkpoint" in job.control.note
    assert texts_in(job.log.path) == other.before
    assert job.entered == [0]
    assert 0 in job.log.batch_ids()
    assert job.log.guidance().epoch == 2
    assert not job.log.guidance().stopped


def test_a_good_end_is_noted_and_lets_the_next_driver_start_at_once(job):
    job.run(job.commits(0), nothing)
    job.control.end()
    assert job.log.guidance() == replace(job.log.guidance(), stopped=True, epoch=1)
    assert json.loads((job.log.path / "epochs" / "1.json").read_text())["released"]
    later = Job(job.path)
    later.begin()
    known = later.log.guidance()
    assert (known.stopped, known.epoch) == (False, 2)
    assert known.tuples_per_unit == job.log.guidance().tuples_per_unit


def test_what_the_parts_have_learned_outlives_an_orderly_end(job):
    class Keys:
        learns = "keys"

        def learn(self, batch, counts):
            return batch

        def enter(self, batch, counts):
            pass

        def guidance(self, known):
            return replace(known, key_shares={"a": 1.0})

    job.begin(learners={"keys": Keys()})
    job.control.end()
    left = job.log.guidance()
    assert left.stopped
    assert left.key_shares == {"a": 1.0}
