import json
import os
import shutil
import time

import pytest

from penstock.control.governor import Decision
from penstock.control.guidance import Guidance, TableInForce
from penstock.model.errors import PlanLogError
from penstock.model.forecast import Forecast
from penstock.model.load import Cost
from penstock.model.network_plan import Drop, NetworkPlan
from penstock.model.plan import ByGroup, Plan
from penstock.model.work_plan import LearnedWork, PartitionState, WorkPlan
from penstock.spark.plan import log as log_module
from penstock.spark.plan.log import PlanLog


def decision(batch_id, keep=0.5, key_keep=None):
    plan = Plan(keep=keep, key_keep=key_keep or {}, reason=f"because of {keep}")
    return Decision(batch_id=batch_id, decided_at=100.0 + batch_id, plan=plan, expected_tuples=10.0)


def enter(log, made):
    return log.decide(made.batch_id, lambda: made)


def test_an_entry_reads_back_as_it_was_written(tmp_path):
    log = PlanLog(tmp_path)
    written = decision(3, keep=1 / 3, key_keep={"vip": 1.0, "søren\n": 0.25})
    assert enter(log, written) == written
    assert PlanLog(tmp_path).decision(3) == written
    assert log.decision(4) is None


@pytest.mark.parametrize(
    "part",
    [
        {"network": NetworkPlan(drops={("", "I"): Drop(0.5, ((1.0, 2.0),))}, reason="row 3", row=3, value="score")},
        {"by_group": ByGroup(rule="neyman", wins="coverage", value="fare")},
        {
            "work": WorkPlan(
                policy={"kind": "Density", "min_keep": 0.1},
                constraint={"kind": "AverageLatency", "seconds": 2.0},
                utility="priority",
                sheds=True,
                interval_seconds=1.5,
                partitions={0: PartitionState(backlog_seconds=0.25, offered_share=1 / 3), 11: PartitionState()},
                sketch="0123456789abcdef",
            )
        },
    ],
    ids=lambda part: next(iter(part)),
)
def test_an_entry_holds_all_that_judging_the_batch_again_needs(tmp_path, part):
    written = Decision(batch_id=3, decided_at=1.0, plan=Plan(keep=0.5, reason="why", **part), expected_tuples=None)
    assert enter(PlanLog(tmp_path), written) == written
    assert PlanLog(tmp_path).decision(3) == written
    assert [file.name for file in tmp_path.rglob("*.*")] == ["3.json"]


def test_the_first_plan_of_a_batch_stands_whatever_comes_later(tmp_path):
    log = PlanLog(tmp_path)
    enter(log, decision(3, keep=0.5))
    assert enter(log, decision(3, keep=0.9)).plan.keep == 0.5
    assert log.decision(3).plan.keep == 0.5


def test_an_entry_is_json_that_a_person_can_read(tmp_path):
    enter(PlanLog(tmp_path), decision(3))
    entry = json.loads((tmp_path / "plans" / "3.json").read_text())
    assert (entry["version"], entry["batch"], entry["keep"], entry["reason"]) == (2, 3, 0.5, "because of 0.5")


def test_rates_per_key_are_stored_once_however_many_batches_use_them(tmp_path):
    log = PlanLog(tmp_path)
    for batch_id in range(5):
        enter(log, decision(batch_id, key_keep={str(key): 0.5 for key in range(1000)}))
    assert len(list((tmp_path / "blobs").iterdir())) == 1


def grow_old(folder, *names):
    long_ago = time.time() - 3600
    for name in names:
        os.utime(folder / f"{name}.txt", (long_ago, long_ago))


def blobs(log):
    return {file.stem for file in (log.path / "blobs").iterdir()}


def test_pruning_removes_old_entries_and_the_rates_that_only_they_used(tmp_path):
    log = PlanLog(tmp_path)
    enter(log, decision(1, key_keep={"old": 0.5}))
    (old,) = blobs(log)
    enter(log, decision(2, key_keep={"new": 0.5}))
    (new,) = blobs(log) - {old}
    log.record_counts(1, {"offered": 3})
    log.prune(before=2)
    log.prune(before=2)
    assert blobs(log) == {old, new}  # young: an entry that names it may just be on its way
    grow_old(tmp_path / "blobs", old, new)
    log.prune(before=2)
    assert log.batch_ids() == [2]
    assert log.decision(2).plan.key_keep == {"new": 0.5}
    assert blobs(log) == {new}
    assert log.counts(1) is None


def test_a_blob_goes_only_when_two_looks_found_it_unnamed_and_stays_while_guidance_names_it(tmp_path):
    log = PlanLog(tmp_path)
    table, sketch = log.put("a table"), log.put("a sketch")
    log.publish(
        Guidance(
            published_at=1.0,
            work=LearnedWork(sketch=sketch),
            table=TableInForce(digest=table, latency_seconds=5.0, shedding="random"),
        )
    )
    grow_old(tmp_path / "blobs", table, sketch)
    log.prune(before=0)
    log.prune(before=0)
    assert blobs(log) == {table, sketch}
    log.publish(Guidance(published_at=2.0))
    log.prune(before=0)
    assert blobs(log) == {table, sketch}  # somebody may just plan with the guidance before
    log.prune(before=0)
    assert blobs(log) == set()


def test_a_blob_that_is_put_again_is_young_again_and_one_that_was_lost_is_back(tmp_path, monkeypatch):
    log = PlanLog(tmp_path)
    digest = log.put("rates")
    grow_old(tmp_path / "blobs", digest)
    assert log.put("rates") == digest
    assert log._blobs.ages(suffix=".txt")[f"{digest}.txt"] > 3000  # written a moment ago, as far as this process knows
    later = time.monotonic() + 301.0
    monkeypatch.setattr(log_module.time, "monotonic", lambda: later)
    log.put("rates")
    assert log._blobs.ages(suffix=".txt")[f"{digest}.txt"] < 3000
    (tmp_path / "blobs" / f"{digest}.txt").unlink()
    log.put("rates")
    assert log.get(digest) == "rates"


def test_recent_decisions_come_oldest_first_and_skip_gaps(tmp_path):
    log = PlanLog(tmp_path)
    for batch_id in (4, 5, 7):
        enter(log, decision(batch_id))
    assert [d.batch_id for d in log.recent(8, 3)] == [5, 7]
    assert log.recent(0, 3) == []


def test_guidance_reads_back_with_and_without_costs(tmp_path):
    log = PlanLog(tmp_path)
    assert log.guidance() is None
    for guidance in (
        Guidance(published_at=1.0),
        Guidance(
            published_at=1.5,
            work=LearnedWork(batch_id=7, partitions={3: PartitionState(backlog_seconds=0.5)}, mean_seconds=0.01),
            table=TableInForce(digest="0123", latency_seconds=5.0, shedding="random"),
        ),
        Guidance(
            published_at=2.0,
            forecast=Forecast(cost=Cost(fixed_seconds=0.1, kept_seconds=1e-4), noise=0.1, late_factor=1.25),
            tuples_per_unit=(3.0,),
        ),
    ):
        log.publish(guidance)
        assert log.guidance() == guidance


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda text: text[: len(text) // 2], r"3\.json is truncated or not JSON .*restore the file from a copy"),
        (lambda text: "", "truncated or not JSON"),
        (lambda text: text.replace('"keep": 0.5', '"keep": 0.7'), "was changed after it was written"),
        (lambda text: "[1, 2]", "truncated or not JSON"),
    ],
)
def test_a_damaged_entry_is_refused_with_the_cure(tmp_path, damage, message):
    log = PlanLog(tmp_path)
    enter(log, decision(3))
    entry = tmp_path / "plans" / "3.json"
    entry.write_text(damage(entry.read_text()))
    with pytest.raises(PlanLogError, match=message):
        log.decision(3)
    with pytest.raises(PlanLogError, match="batch 3 must shed what it shed the first time"):
        enter(log, decision(3))


def test_an_entry_of_another_version_is_refused_with_the_cure(tmp_path, monkeypatch):
    monkeypatch.setattr("penstock.spark.plan.log.VERSION", 1)
    enter(PlanLog(tmp_path), decision(3))
    monkeypatch.undo()
    with pytest.raises(
        PlanLogError, match=r"has version 1, and this Penstock reads version 2; go on with.*new checkpoint"
    ):
        PlanLog(tmp_path).decision(3)


def test_rates_that_do_not_match_their_name_are_refused(tmp_path):
    log = PlanLog(tmp_path)
    enter(log, decision(3, key_keep={"vip": 1.0, "x": 0.123}))
    (rates,) = (tmp_path / "blobs").iterdir()
    rates.write_text('{"vip": 0.0}')
    with pytest.raises(PlanLogError, match="does not match its name"):
        PlanLog(tmp_path).decision(3)
    rates.unlink()
    with pytest.raises(PlanLogError, match="cannot be read"):
        PlanLog(tmp_path).decision(3)


def test_queries_have_salts_of_their_own_by_checkpoint_and_name(tmp_path):
    salts = {PlanLog(tmp_path / job / "penstock" / name).salt() for job in ("a", "b") for name in ("shed", "other")}
    assert len(salts) == 4


def test_a_salt_tells_machines_apart_on_which_folders_have_the_same_name(tmp_path, monkeypatch):
    here = PlanLog(tmp_path).salt()
    monkeypatch.setattr("socket.gethostname", lambda: "another machine")
    assert PlanLog(tmp_path).salt() != here


def test_a_salt_is_pinned_at_the_first_start_and_moves_with_the_checkpoint(tmp_path, monkeypatch):
    log = PlanLog(tmp_path / "first")
    salt = log.salt()
    log.pin_sampling({"seed": 0, "salt": salt})
    monkeypatch.setattr("socket.gethostname", lambda: "another machine")
    assert PlanLog(tmp_path / "first").salt() == salt
    shutil.copytree(tmp_path / "first", tmp_path / "copied")
    assert PlanLog(tmp_path / "copied").salt() == salt
    with pytest.raises(PlanLogError, match="this checkpoint was made with salt="):
        PlanLog(tmp_path / "copied").pin_sampling({"seed": 0, "salt": "another"})


def test_a_checkpoint_from_before_there_were_salts_is_refused(tmp_path):
    PlanLog(tmp_path).pin_sampling({"seed": 0})
    with pytest.raises(PlanLogError, match=r"names no salt.*start from a new checkpoint"):
        PlanLog(tmp_path).salt()
