"""Several window aggregates of one stream in one query, each sampled at a rate of its own."""

import time
from pathlib import Path

import pytest
from pyspark.sql import functions as F

import penstock as ps
from benchmarks.workload import too_much
from penstock.control.governor import Decision
from penstock.control.guidance import Guidance
from penstock.model.branches import Branch, Branches
from penstock.model.errors import TargetMissedError
from penstock.model.forecast import Forecast
from penstock.model.load import Cost
from penstock.spark.answers.outputs import interval_seconds
from penstock.spark.plan.log import PlanLog
from tests.spark.streams import finish_batches, known_costs, numbers

pytestmark = pytest.mark.spark

OUTPUTS = (
    ps.WindowAggregate(name="every"),
    ps.WindowAggregate(name="tens", aggregate="sum", value="value % 100 + 1", where="value % 10 = 0"),
    ps.WindowAggregate(name="mean", aggregate="avg", value="value % 7", group="value % 2"),
)


def answers_of(spark, run_name):
    return spark.table(run_name).selectExpr("window", "output", "`group`", "answer.*")


def start(spark, checkpoint, policy, name, *, outputs=OUTPUTS, rows=20_000, headroom=1e-9, shared=lambda kept: kept):
    known_costs(checkpoint)
    shedder = ps.shed(latency_seconds=5, checkpoint=checkpoint, row_id="value", policy=too_much(policy, headroom))
    events = numbers(spark, rows_per_batch=rows)
    kept = shared(events.transform(shedder))
    answered = kept.transform(shedder.answers(*outputs, time="timestamp", window="1 hour"))
    writer = answered.writeStream.outputMode("complete").format("memory").queryName(name)
    return shedder.start(writer)


def fixed(**rates):
    """A policy that always gives the same rates by output; its class is local, so that workers get it by value."""

    class Fixed:
        def decide(self, load):
            return ps.Plan(keep=max(rates.values()), key_keep=rates, reason=load.explain())

    return Fixed()


RATES = {"every": 0.2, "tens": 0.8, "mean": 0.4}


def test_each_output_is_sampled_at_its_own_rate_behind_one_shared_drop(spark, checkpoint):
    run = start(spark, checkpoint, fixed(**RATES), "rates", shared=lambda kept: kept.withColumn("extra", F.lit(1)))
    batches = finish_batches(run, 3)

    offered = sum(batch.offered for batch in batches)
    assert sum(batch.kept for batch in batches) == pytest.approx(0.8 * offered, rel=0.02)
    for batch in batches:
        for name, share in (("every", 1.0), ("tens", 0.1), ("mean", 1.0)):
            drop = batch.outputs[name]
            assert drop["offered"] == drop["kept"] + drop["shed"]
            assert drop["offered"] == pytest.approx(batch.kept * share, rel=0.1)
            assert drop["kept"] == pytest.approx(batch.offered * share * RATES[name], rel=0.1)
    shares = {row.output: row.share for row in answers_of(spark, "rates").collect()}
    assert shares == pytest.approx(RATES, rel=1e-6)


def test_a_batch_that_another_policy_planned_is_replayed_with_its_rates_by_output(spark, checkpoint):
    log = PlanLog(Path(checkpoint) / "penstock" / "shed")
    planned = ps.Plan(keep=0.8, key_keep=RATES, reason="planned before the restart")
    log.decide(0, lambda: Decision(batch_id=0, decided_at=time.time(), plan=planned, expected_tuples=None))
    run = start(spark, checkpoint, ps.Uniform(keep=0.5), "replayed")
    first, second = finish_batches(run, 2)[:2]

    assert first.kept == pytest.approx(0.8 * first.offered, rel=0.02)
    assert first.outputs["every"]["kept"] == pytest.approx(0.2 * first.offered, rel=0.1)
    assert first.outputs["mean"]["kept"] == pytest.approx(0.4 * first.offered, rel=0.1)
    assert second.outputs["every"]["kept"] == second.outputs["mean"]["kept"] == second.kept


def test_weighted_answers_hold_the_truth_and_the_ledger_holds_the_drops(spark, checkpoint):
    run = start(spark, checkpoint, fixed(**RATES), "truths")
    batches = finish_batches(run, 3)
    answers = {(row.output, row.group): row for row in answers_of(spark, "truths").collect()}

    total = sum(batch.offered for batch in batches)
    values = range(total)
    truth = {
        ("every", None): total,
        ("tens", None): sum(value % 100 + 1 for value in values if value % 10 == 0),
        ("mean", "0"): sum(value % 7 for value in values[::2]) / len(values[::2]),
        ("mean", "1"): sum(value % 7 for value in values[1::2]) / len(values[1::2]),
    }
    assert set(answers) == set(truth)
    for key, expected in truth.items():
        assert answers[key].reliable
        # Twice the width: four fixed samples, and each 95 % interval is allowed to miss one time in twenty.
        half = (answers[key].upper - answers[key].lower) / 2
        assert abs(answers[key].value - expected) < 2 * half
    kept = run.ledger().selectExpr("sum(outputs['tens'].kept)", "sum(outputs['tens'].offered)").first()
    assert tuple(kept) == tuple(sum(batch.outputs["tens"][part] for batch in batches) for part in ("kept", "offered"))


def test_while_the_load_fits_every_answer_is_exact(spark, checkpoint):
    run = start(spark, checkpoint, ps.LeastError(), "exact", headroom=1.0, rows=500)
    batches = finish_batches(run, 2)

    assert all(batch.shed == 0 for batch in batches)
    for row in answers_of(spark, "exact").collect():
        assert row.lower == row.value == row.upper
        assert row.share == 1


def test_the_parameters_of_every_output_are_learned_from_the_running_query(spark, checkpoint):
    run = start(spark, checkpoint, fixed(**RATES), "learned")
    finish_batches(run, 6)

    guidance = PlanLog(Path(checkpoint) / "penstock" / "shed").guidance()
    learned = {branch.name: branch for branch in guidance.branches.outputs}
    assert set(learned) == {"every", "tens", "mean"}
    assert learned["tens"].share == pytest.approx(0.1, rel=0.1)
    assert learned["tens"].mean == pytest.approx(46, rel=0.1)
    assert learned["mean"].standard_deviation == pytest.approx(2, rel=0.1)
    # 20,000 rows come with every second of event time, and windows are an hour long; two groups share an output.
    assert learned["every"].answer_tuples == pytest.approx(20_000 * 3600, rel=0.1)
    assert learned["mean"].answer_tuples == pytest.approx(20_000 * 3600 / 2, rel=0.2)
    assert guidance.cost.kept_seconds > 0


def test_a_new_run_plans_with_the_outputs_that_the_one_before_learned(spark, checkpoint):
    branches = Branches(
        shared_seconds=1e-6,
        outputs=(
            Branch(name="every", share=1.0, seconds_per_tuple=1e-4, answer_tuples=1e6),
            Branch(name="tens", share=0.1, seconds_per_tuple=1e-4, answer_tuples=1e3),
            Branch(name="mean", share=1.0, seconds_per_tuple=1e-4, answer_tuples=1e6),
        ),
    )
    shedder = ps.shed(latency_seconds=5, checkpoint=checkpoint, row_id="value", policy=too_much(ps.LeastError(), 0.1))
    cost = Cost(fixed_seconds=0.01, kept_seconds=branches.seconds_per_tuple)
    PlanLog(Path(checkpoint) / "penstock" / "shed").publish(
        Guidance(
            published_at=time.time(),
            forecast=Forecast(cost=cost, noise=0.1, late_factor=1.25),
            tuples_per_unit=(1.0,),
            branches=branches,
        )
    )
    kept = numbers(spark, rows_per_batch=20_000).transform(shedder)
    answered = kept.transform(shedder.answers(*OUTPUTS, time="timestamp", window="1 hour"))
    run = shedder.start(answered.writeStream.outputMode("update").format("noop"))
    first = finish_batches(run, 1)[0]

    assert "least error at keep" in first.reason
    assert first.outputs["tens"]["shed"] < first.outputs["every"]["shed"]


def test_answers_that_miss_their_target_are_named_by_the_run_and_one_can_stop_it(spark, checkpoint, tmp_path):
    warned = ps.WindowAggregate(name="every", target=ps.MaxError(relative=1e-6))
    run = start(spark, checkpoint, ps.Uniform(keep=0.5), "warned", outputs=(warned,))
    finish_batches(run, 2)
    assert "1 of 1 answers of every miss their target" in run.status.note
    assert answers_of(spark, "warned").first().value is not None

    stopping = ps.WindowAggregate(name="every", target=ps.MaxError(relative=1e-6, otherwise="stop"))
    run = start(spark, str(tmp_path / "stopping"), ps.Uniform(keep=0.5), "stopped", outputs=(stopping,))
    with pytest.raises(TargetMissedError, match="every has a relative error of"):
        run.await_termination(timeout_seconds=60)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ps.WindowAggregate(name="a b"), "the name of an output must be letters"),
        (lambda: ps.WindowAggregate(name="a", aggregate="sum"), "output 'a' is a sum of nothing; give value="),
        (lambda: ps.WindowAggregate(name="a", confidence=1.0), r"confidence must be in \(0, 1\)"),
        (lambda: interval_seconds("soon"), "cannot read the time span 'soon'"),
        (lambda: interval_seconds("2 months"), "cannot read the time span"),
    ],
)
def test_outputs_that_cannot_be_are_refused(make, message):
    with pytest.raises(ps.InvalidInputError, match=f"^{message}"):
        make()


def test_answers_without_what_they_need_are_refused(spark, checkpoint):
    shedder = ps.shed(latency_seconds=5, checkpoint=checkpoint, row_id="value")
    asked = shedder.answers(OUTPUTS[0], time="timestamp", window="1 hour")
    with pytest.raises(ps.InvalidInputError, match=r"^nothing was shed yet"):
        numbers(spark).transform(asked)
    kept = numbers(spark).transform(shedder)
    with pytest.raises(ps.InvalidInputError, match=r"^the column 'value' is gone before the outputs"):
        kept.drop("value").transform(asked)
    with pytest.raises(ps.InvalidInputError, match=r"^no output was named; give a WindowAggregate"):
        kept.transform(shedder.answers(time="timestamp", window="1 hour"))
    with pytest.raises(ps.InvalidInputError, match=r"^outputs must have names of their own"):
        kept.transform(shedder.answers(OUTPUTS[0], OUTPUTS[0], time="timestamp", window="1 hour"))
