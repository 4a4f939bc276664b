"""What windows and tasks say of their rows, and how tasks draw; without Spark."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import penstock as ps
from penstock.control.governor import Decision
from penstock.control.target import Target
from penstock.control.workplan import RowRule
from penstock.model.errors import InvalidInputError
from penstock.model.plan import Plan
from penstock.model.work_plan import WorkPlan
from penstock.policy.recorded import to_settings
from penstock.policy.strata.groups import GroupConcept
from penstock.policy.strata.selection import spread
from penstock.spark.judge.sampling import stage_seed
from penstock.spark.plan.work_planner import WorkPlanner
from penstock.spark.windows.answer import Account, OneStream, Part, TwoStreams
from penstock.spark.windows.blocks import Cut, Stored
from penstock.spark.work.calls import FAIL, Calling
from penstock.spark.work.task import ITEM, REPORT, WorkTask

POLICIES = [ps.ConceptDriven(keep=0.2), ps.Uniform(keep=0.3), ps.KeepAll()]
CUT = Cut(pane_micros=10, buckets=1)


def part():
    """One side of a window: 153 rows of five groups in two blocks."""
    blocks = []
    for first, end in ((0, 100), (100, 153)):
        ids = np.arange(first, end)
        codes = (ids % 5).astype(np.int32)
        rows = pa.table({"id": ids})
        blocks.append(Stored(rows=rows, keys=np.arange(5), codes=codes, hashes=spread(ids, seed=1)))
    return Part(blocks=blocks, whole=GroupConcept.of_codes(np.arange(5), np.concatenate([b.codes for b in blocks])))


@pytest.mark.parametrize("policy", POLICIES)
def test_an_account_of_a_window_is_what_the_function_got_and_what_it_did_not(policy):
    got = []

    def function(*sides):
        got.extend(set(side["id"]) for side in sides)
        return sides[0][["id"]]

    of_one = OneStream(function=function, columns=("id",), weight="weight")
    of_one = of_one.answer([part()], CUT, 0, policy=policy)
    of_two = TwoStreams(function=function, columns=("id",), weight="weight")
    of_two = of_two.answer([part(), part()], CUT, 0, policy=policy)

    missing = [len(set(range(153)) - ids) for ids in got]
    assert (of_one.account.kept, of_one.account.shed) == (len(got[0]), missing[0])
    assert (of_two.account.kept, of_two.account.shed) == (len(got[1]) + len(got[2]), missing[1] + missing[2])
    assert (missing[0] > 0) == (policy != ps.KeepAll())


def test_an_account_that_does_not_balance_is_refused():
    with pytest.raises(InvalidInputError, match=r"offered 10 != kept 4 \+ shed 5"):
        Account(offered=10, kept=4, shed=5, groups=1, missing_groups=0, missing_tuples=0)


def kept_by(stage, *, rows=4_000):
    """Run the task of an operator on rows, half of which are to be tried; give what it kept and what it reports."""
    policy, constraint = ps.Density(), ps.AverageLatency(seconds=1.0)
    planner = WorkPlanner(
        checkpoint=Path("/nowhere"),
        target=Target(latency_seconds=1.0),
        name="operator",
        rule=RowRule(policy=policy, constraint=constraint),
    )
    calling = Calling(
        function=lambda row: row,
        schema=pa.schema([("id", pa.int64())]),
        weight="weight",
        batchwise=False,
        chunk_tuples=100,
        on_error=FAIL,
    )
    work = WorkPlan(policy=to_settings(policy), constraint=to_settings(constraint))
    plan = Plan(keep=0.5, reason="costs are not known", work=work)
    decision = Decision(batch_id=3, decided_at=0.0, plan=plan)
    shift = WorkTask(calling=calling, planner=planner, stage=stage)._shift(decision)
    batch = pa.record_batch({"id": np.arange(rows), ITEM: np.zeros(rows, dtype=np.int64)})
    results = [result for part in (batch.slice(0, 1_500), batch.slice(1_500)) for result in shift.work(part)]
    return [number for each in results for number in each.column(0).to_pylist()], shift.report().column(REPORT)[0]


def test_a_task_reports_what_it_executed_and_what_it_did_not():
    executed, report = kept_by(1)
    told = report.as_py()
    assert (told["offered"], told["kept"]) == (4_000, len(executed))
    assert told["shed"] == len(set(range(4_000)) - set(executed)) > 0


def test_operators_in_a_row_draw_independently_and_each_alike_in_a_replay():
    first, again, second = (
        kept_by(stage_seed(salt, seed=0))[0] for salt in ("/a/penstock/op", "/a/penstock/op", "/b/penstock/op")
    )
    assert first == again
    # Of two independent halves a quarter is in both.
    assert abs(len(set(first) & set(second)) - 1_000) < 4 * (4_000 * 3 / 16) ** 0.5
