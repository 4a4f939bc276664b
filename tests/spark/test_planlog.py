import json
import os
import shutil
import time

import pytest

from penstock.control.governor import Decision
from penstock.control.guidance import Guidance
from penstock.model.errors import PlanLogError
from penstock.model.forecast import Forecast
from penstock.model.load import Cost
from penstock.model.plan import Plan
from penstock.spark.plan.log import PlanLog


def decision(batch_id, keep=0.5, key_keep=None):
    plan = Plan(keep=keep, key_keep=key_keep or {}, reason=f"because of {keep}")
    return Decision(batch_id=batch_id, decided_at=100.0 + batch_id, plan=plan, expected_tuples=10.0)


def test_an_entry_reads_back_as_it_was_written(tmp_path):
    log = PlanLog(tmp_path)
    written = decision(3, keep=1 / 3, key_keep={"vip": 1.0, "søren\n": 0.25})
    assert log.record(written) == written
    assert PlanLog(tmp_path).decision(3) == written
    assert log.decision(4) is None


def test_the_first_plan_of_a_batch_stands_whatever_comes_later(tmp_path):
    log = PlanLog(tmp_path)
    log.record(decision(3, keep=0.5))
    assert log.record(decision(3, keep=0.9)).plan.keep == 0.5
    assert log.decision(3).plan.keep == 0.5


def test_an_entry_is_json_that_a_person_can_read(tmp_path):
    PlanLog(tmp_path).record(decision(3))
    entry = json.loads((tmp_path / "plans" / "3.json").read_text())
    assert (entry["version"], entry["batch"], entry["keep"], entry["reason"]) == (1, 3, 0.5, "because of 0.5")


def test_rates_per_key_are_stored_once_however_many_batches_use_them(tmp_path):
    log = PlanLog(tmp_path)
    for batch_id in range(5):
        log.record(decision(batch_id, key_keep={str(key): 0.5 for key in range(1000)}))
    assert len(list((tmp_path / "rates").iterdir())) == 1


def test_pruning_removes_old_entries_and_the_rates_that_only_they_used(tmp_path):
    log = PlanLog(tmp_path)
    log.record(decision(1, key_keep={"old": 0.5}))
    log.record(decision(2, key_keep={"new": 0.5}))
    log.record_counts(1, {"offered": 3})
    log.prune(before=1)
    log.prune(before=2)
    assert len(list((tmp_path / "rates").iterdir())) == 2  # young: an entry that names it may just be on its way
    long_ago = time.time() - 3600
    for rates in (tmp_path / "rates").iterdir():
        os.utime(rates, (long_ago, long_ago))
    log.record(decision(3, key_keep={"new": 0.5}))
    log.prune(before=2)
    log.record(decision(0))
    log.prune(before=1)
    assert log.batch_ids() == [2, 3]
    assert log.decision(2).plan.key_keep == {"new": 0.5}
    assert len(list((tmp_path / "rates").iterdir())) == 1
    assert log.counts(1) is None


def test_recent_decisions_come_oldest_first_and_skip_gaps(tmp_path):
    log = PlanLog(tmp_path)
    for batch_id in (4, 5, 7):
        log.record(decision(batch_id))
    assert [d.batch_id for d in log.recent(8, 3)] == [5, 7]
    assert log.recent(0, 3) == []


def test_guidance_reads_back_with_and_without_costs(tmp_path):
    log = PlanLog(tmp_path)
    assert log.guidance() is None
    for guidance in (
        Guidance(published_at=1.0),
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
    log.record(decision(3))
    entry = tmp_path / "plans" / "3.json"
    entry.write_text(damage(entry.read_text()))
    with pytest.raises(PlanLogError, match=message):
        log.decision(3)
    with pytest.raises(PlanLogError, match="batch 3 must shed what it shed the first time"):
        log.record(decision(3))


def test_an_entry_of_another_version_is_refused_with_the_cure(tmp_path, monkeypatch):
    monkeypatch.setattr("penstock.spark.plan.log.VERSION", 2)
    PlanLog(tmp_path).record(decision(3))
    monkeypatch.undo()
    with pytest.raises(PlanLogError, match=r"has version 2, and this Penstock reads version 1; go on with"):
        PlanLog(tmp_path).decision(3)


def test_rates_that_do_not_match_their_name_are_refused(tmp_path):
    log = PlanLog(tmp_path)
    log.record(decision(3, key_keep={"vip": 1.0, "x": 0.123}))
    (rates,) = (tmp_path / "rates").iterdir()
    rates.write_text('{"vip": 0.0}')
    with pytest.raises(PlanLogError, match="do not match their name"):
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
