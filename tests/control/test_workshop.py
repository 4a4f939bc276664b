"""Budgets, backlogs and learned costs of an operator, without Spark."""

from dataclasses import replace

import numpy as np
import pytest

from penstock.control.governor import Decision, Demand
from penstock.control.guidance import Guidance
from penstock.control.target import Target
from penstock.control.workplan import RowRule, budget_seconds, plan_work
from penstock.control.workshop import PartitionReport, Workshop
from penstock.model.errors import InvalidInputError, PlanLogError
from penstock.model.work_plan import LearnedWork, PartitionState
from penstock.policy.rows.constraint import AverageLatency, MaximumLatency
from penstock.policy.rows.density import Density
from penstock.policy.rows.load_aware import FullKnowledge, Learning, LoadAware, StrawMan
from penstock.policy.rows.sequence import decide
from penstock.sketch.cost_pair import CostPair
from penstock.sketch.hashing import items_of

TARGET = AverageLatency(seconds=2.0)


def pair_of(items_to_seconds, times=1) -> CostPair:
    pair = CostPair(Learning().shape)
    items = items_of(np.array(list(items_to_seconds), dtype=np.int64))
    for _ in range(times):
        pair.update(items, np.array(list(items_to_seconds.values())))
    return pair


def report(partition=0, *, work_seconds, offered=100, kept=80, costs=None, pair=None) -> PartitionReport:
    return PartitionReport(
        partition=partition,
        offered=offered,
        kept=kept,
        failed=0,
        silent=0,
        work_seconds=work_seconds,
        pair=pair or pair_of(costs or {1: 0.01, 2: 0.03}),
        executed=pair_of(costs or {1: 0.01, 2: 0.03}),
    )


def plan(learned=None, policy=None, *, expected_tuples=200.0, batch_id=7, now=100.0) -> Decision:
    """Plan a batch that has collected for a second, with what was learned a hundred seconds after the epoch."""
    demand = Demand(
        batch_id=batch_id, now=now, started_at=100.0, waited_seconds=1.0, units_by_source=(expected_tuples,)
    )
    rule = RowRule(policy=policy or LoadAware(), constraint=TARGET)
    target = Target(latency_seconds=TARGET.seconds, probe_tuples=1_000)
    return plan_work(Guidance(published_at=100.0, work=learned), demand, rule=rule, target=target)


def with_budget(decision: Decision, seconds: float) -> Decision:
    work = replace(decision.plan.work, budget_seconds=seconds)
    return replace(decision, plan=replace(decision.plan, work=work))


def shedder_of(decision: Decision):
    return RowRule(policy=FullKnowledge(), constraint=TARGET).shedder(decision.plan.work, 0)


PAIR = pair_of({1: 0.01, 2: 0.03})
LEARNED = LearnedWork(
    batch_id=6, fixed_seconds=0.16, mean_seconds=PAIR.mean_seconds, partitions={0: PartitionState()}, sketch="here"
)


def test_a_mean_leaves_more_for_a_batch_than_a_maximum():
    assert budget_seconds(AverageLatency(seconds=2.0), 0.16) == pytest.approx(1.0)
    assert budget_seconds(MaximumLatency(seconds=2.0), 0.16) == pytest.approx(0.68)
    assert budget_seconds(AverageLatency(seconds=2.0), 9.0) == pytest.approx(0.2)


def test_nothing_is_shed_before_costs_are_learned_but_a_flood_is_only_tried():
    few, flood = plan(), plan(expected_tuples=50_000.0)

    assert not few.plan.work.sheds
    assert (few.plan.keep, few.plan.reason) == (1.0, "costs not learned yet: keeping all")
    assert not flood.plan.work.sheds
    assert flood.plan.keep == 0.02
    assert flood.plan.reason == "cold start: costs not learned yet, trying 1,000 of 50,000 tuples"


def test_a_plan_says_why():
    planned = plan(replace(LEARNED, partitions={0: PartitionState(), 1: PartitionState(backlog_seconds=0.25)}))

    assert planned.plan.work.sheds
    assert planned.plan.keep == pytest.approx(0.5)
    assert planned.plan.reason == (
        "2.00 s of work a partition for a budget of 1.00 s in 1.00 s of arrivals; partition 1 late by 0.25 s"
    )


def test_without_controller_everything_is_kept():
    planned = plan(LEARNED, now=200.0)

    assert not planned.plan.work.sheds
    assert planned.plan.keep == 1.0
    assert "silent for 100 s" in planned.plan.reason


def test_policies_that_need_no_learning_shed_from_the_second_batch_on():
    nothing = LearnedWork()

    assert plan(nothing, policy=FullKnowledge()).plan.work.sheds
    assert plan(nothing, policy=StrawMan(mean_seconds=0.02)).plan.work.sheds
    assert not plan(nothing, policy=LoadAware()).plan.work.sheds


def test_a_partition_keeps_about_its_budget_whatever_arrives():
    for offered in (50, 300, 3_000):
        planned = plan(LEARNED, expected_tuples=float(offered))
        shedder = shedder_of(planned)
        costs = np.where(np.arange(offered) % 2, 0.01, 0.03)
        arrived = np.linspace(0, 1, offered, endpoint=False)
        weights = decide(FullKnowledge.RULE, shedder, np.zeros(0), arrived, costs, np.ones(offered), np.uint64(0), 0)

        work = costs[weights > 0].sum()
        assert work <= 1.15 * planned.plan.work.budget_seconds
        assert work >= min(costs.sum(), 0.9 * planned.plan.work.budget_seconds)


def test_a_backlog_takes_its_part_of_the_budget():
    offered, kept = 1_000, {}
    arrived, costs = np.linspace(0, 1, offered, endpoint=False), np.full(offered, 0.01)
    for backlog in (0.0, 0.4):
        planned = plan(replace(LEARNED, partitions={0: PartitionState(backlog_seconds=backlog)}))
        shedder = shedder_of(planned)
        weights = decide(FullKnowledge.RULE, shedder, np.zeros(0), arrived, costs, np.ones(offered), np.uint64(0), 0)
        kept[backlog] = costs[weights > 0].sum()

    assert kept[0.0] - kept[0.4] == pytest.approx(0.4, abs=0.03)


def test_a_backlog_is_taken_off_evenly_over_the_arrivals():
    offered = 1_000
    arrived, costs = np.linspace(0, 1, offered, endpoint=False), np.full(offered, 0.01)
    planned = plan(replace(LEARNED, partitions={0: PartitionState(backlog_seconds=0.5)}))

    shedder = shedder_of(planned)
    weights = decide(FullKnowledge.RULE, shedder, np.zeros(0), arrived, costs, np.ones(offered), np.uint64(0), 0)

    # Half of what is left for half of the arrivals, and what may queue: three tuples of 20 ms.
    assert 0.25 <= costs[:500][weights[:500] > 0].sum() <= 0.25 + 0.06 + 0.01


def test_a_backlog_is_paid_once_though_the_next_batch_is_planned_before_the_last_is_seen():
    late = replace(LEARNED, partitions={0: PartitionState(backlog_seconds=0.5)})

    assert plan(late).plan.work.share(0) == pytest.approx(0.5)
    assert plan(late, batch_id=8).plan.work.share(0) == pytest.approx(1.0)


def test_a_backlog_larger_than_the_next_budget_leaves_half_of_it():
    late = replace(LEARNED, fixed_seconds=1.1, partitions={0: PartitionState(backlog_seconds=0.5)})

    planned = plan(late)

    assert planned.plan.work.budget_seconds == pytest.approx(0.2)
    assert planned.plan.work.share(0) == pytest.approx(0.1)


def test_backlogs_stay_apart_and_sketches_merge():
    workshop = Workshop(LoadAware(), TARGET)
    planned = with_budget(plan(LEARNED), 1.0)

    workshop.learn([report(0, work_seconds=1.3), report(1, work_seconds=0.4)], planned, duration_seconds=1.5)

    learned = workshop.learned()
    assert learned.partitions[0].backlog_seconds == pytest.approx(0.3)
    assert learned.partitions[1].backlog_seconds == 0.0
    assert learned.partitions[0].offered_share == 0.5
    assert workshop.pair.executed == 4
    assert workshop.pair.mean_seconds == pytest.approx(0.02)


def test_a_backlog_is_worked_off_and_never_grows_beyond_half_a_budget():
    workshop = Workshop(LoadAware(), TARGET)
    planned = with_budget(plan(LEARNED), 1.0)
    late = []
    for work in (9.0, 0.8, 0.8, 0.1):
        workshop.learn([report(work_seconds=work)], planned, duration_seconds=work + 0.2)
        late.append(workshop.learned().partitions[0].backlog_seconds)

    assert late == pytest.approx([0.5, 0.3, 0.1, 0.0])


def test_straw_man_never_hears_back():
    workshop = Workshop(StrawMan(mean_seconds=0.02), TARGET)
    workshop.learn([report(work_seconds=5.0)], with_budget(plan(LEARNED), 1.0), duration_seconds=5.2)

    assert workshop.learned().partitions[0].backlog_seconds == 0.0
    assert workshop.pair is None


def test_the_fixed_cost_is_a_median_and_leaves_the_first_batch_out():
    workshop = Workshop(LoadAware(), TARGET)
    found = []
    for duration in (30.0, 1.2, 9.0, 1.3, 1.4, 1.4):
        workshop.learn([report(work_seconds=1.0)], plan(LEARNED), duration_seconds=duration)
        found.append(workshop.learned().fixed_seconds)

    assert found == pytest.approx([0.2, 0.2, 4.1, 0.3, 0.4, 0.4])


def test_when_everything_slows_down_the_pace_knows_after_one_batch():
    workshop = Workshop(LoadAware(), TARGET, resume=LEARNED, pair=pair_of({1: 0.01, 2: 0.03}, times=50))

    workshop.learn([report(work_seconds=1.0, costs={1: 0.02, 2: 0.06})], plan(LEARNED), duration_seconds=1.2)

    assert workshop.learned().pace == pytest.approx(2.0, rel=0.05)


def test_an_empty_batch_teaches_nothing():
    workshop = Workshop(Density(), TARGET, resume=LEARNED, pair=PAIR)

    workshop.learn([report(work_seconds=0.0, offered=0, kept=0)], plan(LEARNED), duration_seconds=0.1)

    assert workshop.learned(sketch="here") == LEARNED


def test_a_target_of_zero_is_refused():
    with pytest.raises(InvalidInputError, match="must be above 0 s"):
        Workshop(LoadAware(), AverageLatency(seconds=0))


def test_the_pace_counts_every_execution_once_however_many_tuples_it_stands_for():
    known = pair_of({1: 0.01, 2: 0.03}, times=50)
    heavy = CostPair(Learning().shape)
    # The second took thrice as long as ever, and stands for twenty.
    heavy.update(items_of(np.array([1, 2])), np.array([0.01, 0.09]), np.array([1.0, 20.0]))
    workshop = Workshop(LoadAware(), TARGET, resume=LEARNED, pair=known)
    workshop.learn(
        [report(work_seconds=0.1, costs={1: 0.01, 2: 0.09}, pair=heavy)], plan(LEARNED), duration_seconds=0.5
    )
    # (0.01 + 0.09) / (0.01 + what the sketch now says of the second, (1.5 + 1.8) / 70)
    assert workshop.learned().pace == pytest.approx(0.1 / (0.01 + 3.3 / 70), rel=0.05)


def test_sketches_of_another_shape_are_learned_anew_when_the_policy_has_changed():
    fine = LoadAware(learning=Learning(eps=0.01))
    workshop = Workshop(fine, TARGET, resume=LEARNED, pair=PAIR)
    assert workshop.pair is None
    assert workshop.learned().mean_seconds is None
    assert not plan(workshop.learned(), policy=fine).plan.work.sheds


def test_an_operator_is_planned_and_learned_of_by_the_rule_that_is_in_force_and_judged_by_that_of_the_plan():
    before = RowRule(policy=Density(min_keep=0.2), constraint=TARGET, utility="priority")
    planned = replace(before.plan(), sheds=True, interval_seconds=1.0, budget_seconds=0.5, mean_seconds=0.01)
    now = RowRule(policy=StrawMan(mean_seconds=0.5), constraint=MaximumLatency(seconds=9.0), utility="priority")

    found = now.of(planned, batch_id=7)

    assert (found.policy, found.constraint) == (before.policy, before.constraint)
    assert found.shedder(planned, 0) == before.shedder(planned, 0)
    assert found.shedder(planned, 0) != now.shedder(planned, 0)


@pytest.mark.parametrize(
    ("then", "now", "message"),
    [
        ({"utility": "rank"}, {"utility": "age"}, r"batch 7 was decided by Density with utility='rank'.*utility='age'"),
        ({"utility": None}, {"utility": "age"}, r"with utility=None"),
        ({"policy": FullKnowledge(), "true_cost": "c"}, {"policy": LoadAware()}, r"FullKnowledge with true_cost='c'"),
    ],
)
def test_a_column_that_a_plan_went_by_must_still_be_the_same(then, now, message):
    planned = RowRule(**{"policy": Density(), "constraint": TARGET, **then}).plan()
    planned = replace(planned, sheds=True)
    with pytest.raises(PlanLogError, match=message):
        RowRule(**{"policy": Density(), "constraint": TARGET, **now}).of(planned, batch_id=7)


def test_a_column_that_the_rule_of_the_plan_does_not_read_may_change():
    planned = replace(RowRule(policy=LoadAware(), constraint=TARGET, utility="rank", true_cost="c").plan(), sheds=True)
    assert RowRule(policy=Density(), constraint=TARGET).of(planned, batch_id=7).policy == LoadAware()


def test_a_batch_that_was_kept_or_only_tried_at_random_asks_for_no_rule_of_its_own():
    kept = RowRule(policy=Density(), constraint=TARGET, utility="rank").plan()
    now = RowRule(policy=LoadAware(), constraint=TARGET)
    assert now.of(kept, batch_id=7) is now
