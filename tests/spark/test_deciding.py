"""A batch is decided in one entry: a fault at any write leaves none, or a whole one."""

import time
from dataclasses import replace

import numpy as np
import pytest

import penstock as ps
from penstock.control.governor import Governor
from penstock.control.guidance import Guidance
from penstock.control.target import Target
from penstock.control.workplan import RowRule
from penstock.model.forecast import Forecast
from penstock.model.load import Cost
from penstock.model.network import Network, Operator, Output, Source
from penstock.model.work_plan import LearnedWork
from penstock.policy.network.plan_table import road_map_table
from penstock.policy.network.roadmap import RoadMap
from penstock.policy.rows.load_aware import Learning, StrawMan
from penstock.sketch.cost_pair import CostPair
from penstock.spark.plan.network_planner import NetworkPlanner
from penstock.spark.plan.planner import ShedPlanner
from penstock.spark.plan.work_planner import WorkPlanner, get_sketch, put_sketch
from penstock.spark.store.folder import Folder

GOVERNOR = Governor(latency_seconds=4.0, policy=ps.Priority(keep={"vip": 1.0}))
LEARNED = {
    "forecast": Forecast(cost=Cost(fixed_seconds=0.0, kept_seconds=1e-3), noise=0.1, late_factor=1.25),
    "tuples_per_unit": (1.0,),
}


class Crash(BaseException):
    """As a killed process: nobody catches it."""


def a_shedder(folder):
    planner = ShedPlanner(checkpoint=folder, governor=GOVERNOR, name="q")
    planner.log.publish(Guidance(published_at=time.time(), **LEARNED))
    return planner


def an_operator(folder):
    rule = RowRule(policy=ps.Density(), constraint=ps.AverageLatency(seconds=1.0))
    planner = WorkPlanner(checkpoint=folder, target=Target(latency_seconds=1.0), name="q", rule=rule)
    pair = CostPair(Learning().shape)
    pair.update(np.array([1, 2], dtype=np.uint64), np.array([0.01, 0.03]))
    work = LearnedWork(batch_id=0, mean_seconds=pair.mean_seconds, sketch=put_sketch(planner.log, pair))
    planner.log.publish(Guidance(published_at=time.time(), work=work, **LEARNED))
    return planner


def a_network(folder):
    model = Network(
        (
            Source(name="I", tuples_per_second=1),
            Operator(name="f", kind="filter", inputs=("I",), seconds_per_tuple=1.0),
            Output(name="O", input="f"),
        )
    )
    planner = NetworkPlanner(checkpoint=folder, governor=Governor(latency_seconds=4.0), name="q")
    table = planner.put(road_map_table(RoadMap.build(model)), latency_seconds=4.0, shedding="random")
    planner.log.publish(Guidance(published_at=time.time(), table=table, **LEARNED))
    return planner


PLANNERS = {"shedder": a_shedder, "operator": an_operator, "network": a_network}


def planner_at(folder, called):
    """A planner on a checkpoint of its own, whose batch 1 is too much."""
    offsets = folder / "offsets"
    offsets.mkdir(parents=True)
    for batch_id, tuples in enumerate((0, 10_000)):
        (offsets / str(batch_id)).write_text(f'v1\n{{"batchTimestampMs":{batch_id * 1000}}}\n{{"tuples":{tuples}}}')
    return PLANNERS[called](folder)


@pytest.fixture(params=PLANNERS)
def planner(request, tmp_path):
    return planner_at(tmp_path, request.param)


def crash_at(monkeypatch, number, *, after):
    """Die at a write, before it or after it; return the writes that were begun."""
    begun = []

    def dying(write):
        def either(self, name, text):
            begun.append(name)
            if len(begun) == number and not after:
                raise Crash
            done = write(self, name, text)
            if len(begun) == number:
                raise Crash
            return done

        return either

    monkeypatch.setattr(Folder, "create", dying(Folder.create))
    monkeypatch.setattr(Folder, "replace", dying(Folder.replace))
    return begun


# Rates per key are written before the entry; what others name was written when it was learned.
WRITES = {"shedder": ["blob", "entry"], "operator": ["entry"], "network": ["entry"]}


@pytest.mark.parametrize("called", PLANNERS)
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_a_crash_at_any_write_of_deciding_leaves_no_entry_or_a_whole_one(tmp_path, monkeypatch, called, after):
    for number, write in enumerate(WRITES[called], start=1):
        planner = planner_at(tmp_path / str(number), called)
        with monkeypatch.context() as patch:
            crash_at(patch, number, after=after)
            with pytest.raises(Crash):
                planner.decide(1)
        left = planner.log.decision(1)
        assert (left is not None) == (write == "entry" and after)
        decided = planner.decide(1)
        assert left in (None, decided)
        if decided.plan.work:
            assert get_sketch(planner.log, decided.plan.work.sketch).executed == 2

    with monkeypatch.context() as patch:
        planner = planner_at(tmp_path / "whole", called)
        begun = crash_at(patch, 99, after=after)
        planner.decide(1)
    # No write was passed over.
    assert ["entry" if name == "1.json" else "blob" for name in begun] == WRITES[called]


def test_a_batch_is_decided_as_before_whatever_has_changed_meanwhile(planner):
    decided = planner.decide(1)
    guidance = planner.log.guidance()
    planner.log.publish(replace(guidance, forecast=None, work=None, table=None))
    if isinstance(planner, WorkPlanner):
        rule = RowRule(policy=StrawMan(mean_seconds=9.0), constraint=ps.MaximumLatency(seconds=9.0))
        changed = replace(planner, rule=rule, target=Target(latency_seconds=99.0))
        assert changed.rule.of(decided.plan.work, batch_id=1) == planner.rule
    else:
        changed = replace(planner, governor=Governor(latency_seconds=99.0), value="another")
    assert changed.decide(1) == decided
