"""The demo fails when something is broken, and only then: made-up runs, each with one thing wrong."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy.stats import binom

from penstock.demo.batches import DemoBatch
from penstock.demo.figures import account_of, moods, promises, run_figures, to_json
from penstock.demo.run import Outcome, ShedOutcome
from penstock.model.arrivals import Arrivals

SECONDS = 50
ARRIVALS = Arrivals.of((14, 100), (24, 1_000), (12, 100))
GROUPS = 200


def batches(*, delay_seconds, keep=1.0, burst_keep=1.0, until=SECONDS):
    """A batch a second, committed so long after its last row came."""
    made, first = [], 0
    for number in range(until):
        end = ARRIVALS.count_at(number + 1)
        phase = "before" if number < 14 else "burst" if number < 38 else "after"
        kept = int((end - first) * (burst_keep if phase == "burst" else keep))
        made.append(
            DemoBatch(
                batch_id=number,
                phase=phase,
                first_row=first,
                offered=end - first,
                kept=kept,
                started_seconds=number + 1.0,
                duration_seconds=delay_seconds,
                latency_seconds=1 + delay_seconds,
                reason="",
                spark_ms={"addBatch": 1},
            )
        )
        first = end
    return made


def plain(delay_seconds=20.0, until=30):
    """Plain Spark, stopped when it had answered what came in the first half minute."""
    ran = batches(delay_seconds=delay_seconds, until=until)
    return Outcome(name="plain Spark", arrivals=ARRIVALS, batches=ran, stopped_seconds=60.0)


def shed(outside=0, whole_wrong=0, **given):
    """A run in which half of the answers were shed from, each with bounds that hold the truth but for some."""
    ran = batches(delay_seconds=2.0, burst_keep=0.5)
    groups = pd.DataFrame({"window_start": np.arange(GROUPS), "campaign": 0})
    sampled = np.arange(GROUPS) < GROUPS // 2
    truth = groups.assign(clicks=100, revenue=50.0, kept_share=np.where(sampled, 0.5, 1.0))
    off = np.arange(GROUPS) < outside
    wrong = np.arange(GROUPS) >= GROUPS - whole_wrong
    answers = groups.copy()
    for name in ("clicks", "revenue"):
        value = truth[name] * (1.0 + 0.3 * off + 0.01 * wrong)
        width = np.where(sampled, 0.1 * truth[name], 0.0)
        answers[f"{name}_value"] = value
        answers[f"{name}_lower"], answers[f"{name}_upper"] = value - width, value + width
    kept = sum(batch.kept for batch in ran)
    answers["rows"] = [*[0] * (GROUPS - 1), kept]
    ledger = pd.DataFrame([{"batch_id": b.batch_id, "offered": b.offered, "kept": b.kept} for b in ran])
    whole = {
        "name": "Penstock", "arrivals": ARRIVALS, "batches": ran, "stopped_seconds": 53.0,
        "answers": answers, "truth": truth, "ledger": ledger,
    }  # fmt: skip
    return ShedOutcome(**{**whole, **given})


def broken(outcome, against=None):
    """The promises that this run breaks."""
    claims = promises(run_figures(against or plain()), run_figures(outcome), account_of(outcome))
    return [claim.text for claim in claims if not claim.held]


def test_a_healthy_run_breaks_no_promise():
    assert broken(shed()) == []


@pytest.mark.parametrize(
    "damage",
    [
        lambda ledger: ledger.drop(index=20),
        lambda ledger: pd.concat([ledger, ledger.tail(1)]),
        lambda ledger: ledger.assign(offered=ledger["offered"] + (ledger["batch_id"] == 3)),
        lambda ledger: ledger.assign(batch_id=ledger["batch_id"].replace(7, 700)),
    ],
    ids=["a batch is missing", "a batch is there twice", "a row too many", "a batch that never was"],
)
def test_rows_that_the_ledger_does_not_hold_once_are_found(damage):
    ledger = damage(shed().ledger)
    assert "rows that are not in the ledger exactly once" in broken(shed(ledger=ledger))


def test_rows_that_were_never_committed_are_uncounted_too():
    short = shed()
    ran = short.batches[:-1]
    account = account_of(shed(batches=ran, ledger=short.ledger.head(len(ran))))
    assert account.uncounted == short.batches[-1].offered == 100


def test_a_ledger_that_kept_other_rows_than_the_answers_rest_on_is_found():
    ledger = shed().ledger
    ledger = ledger.assign(kept=ledger["kept"] - (ledger["batch_id"] == 20))
    assert broken(shed(ledger=ledger)) == ["rows kept by the ledger, more or less than the answers rest on"]


def test_bounds_may_miss_the_truth_as_often_as_stated_and_no_more():
    allowed = int(binom.ppf(1 - 1e-4, GROUPS // 2, 0.05))
    assert 5 < allowed < 20
    assert broken(shed(outside=allowed)) == []
    assert broken(shed(outside=allowed + 1)) == [
        "answers (clicks) with the truth outside their bounds, of 100",
        "answers (revenue) with the truth outside their bounds, of 100",
    ]


def test_an_answer_of_which_nothing_was_shed_has_to_be_exact_and_there():
    wrong = [f"answers ({name}) that are not exact though nothing was shed" for name in ("clicks", "revenue")]
    assert broken(shed(whole_wrong=1)) == wrong
    answers = shed().answers
    answers["rows"] = answers["rows"].to_numpy()[::-1]  # the count is not what is missing
    assert broken(shed(answers=answers.drop(index=GROUPS - 1))) == wrong


def test_an_answer_without_bounds_or_hardly_shed_from_is_told_and_not_judged():
    answers, truth = shed().answers, shed().truth
    answers.loc[:2, ["clicks_lower", "clicks_upper"]] = np.nan
    truth.loc[20:24, "kept_share"] = 0.99
    clicks, _ = account_of(shed(answers=answers.drop(index=10), truth=truth)).answers
    assert (clicks.bounded, clicks.without_bounds, clicks.barely_shed, clicks.whole) == (91, 4, 5, 100)


def test_penstock_has_to_be_sooner_than_plain_spark_in_the_burst():
    assert broken(shed(), against=plain(delay_seconds=1.0, until=SECONDS)) == [
        "p95 latency in the burst, seconds, against plain Spark's"
    ]


def test_percentiles_of_rows_without_an_answer_are_lower_bounds():
    before, burst, after = run_figures(plain()).phases
    # Up to the 30th second rows wait 20 to 21 s, those of the last 8 s of the burst 22 to 30 s, and are not answered.
    assert before.p95.exact
    assert before.p95.seconds == pytest.approx(20.95, abs=0.02)
    assert burst.p50.exact
    assert burst.p50.seconds == pytest.approx(20.75, abs=0.01)
    assert not burst.p95.exact
    assert 28 < burst.p95.seconds < 30
    assert (before.unanswered, burst.unanswered, after.unanswered) == (0, 8_000, 1_200)
    assert not after.p50.exact


def test_what_hangs_on_the_machine_is_measured_and_fails_only_if_it_is_judged():
    slow = run_figures(shed(batches=batches(delay_seconds=9.0, keep=0.9, burst_keep=0.1)))
    asked = moods(run_figures(plain()), slow, latency_seconds=5)
    assert [claim.held for claim in asked] == [False, False, False, False]
    assert [claim.held for claim in moods(run_figures(plain()), run_figures(shed()), latency_seconds=5)][:2] == [
        True,
        True,
    ]


def test_rows_per_second_in_the_burst_count_from_the_first_trigger_to_the_last_commit():
    # Triggered from 14 s to 37 s: 23 batches of 1,000 rows and one of 100; the last is committed after 2 s.
    assert run_figures(shed()).burst_rows_per_second == pytest.approx((23 * 500 + 100) / 25)


def test_a_run_without_a_batch_in_the_burst_has_no_rate_there():
    stopped = replace(plain(), batches=batches(delay_seconds=1.0, until=5))
    assert run_figures(stopped).burst_rows_per_second == 0


def test_the_json_holds_what_a_trace_needs():
    outcome = shed()
    figures = [run_figures(plain()), run_figures(outcome)]
    claims = promises(*figures, account_of(outcome))
    told = to_json(figures, account_of(outcome), {"seconds": SECONDS}, claims=claims, shown=[])
    assert {*told} >= {"settings", "runs", "claims", "shown"}
    for run in told["runs"]:
        assert {*run["batches"][0]} >= {
            "started_seconds", "offered", "kept", "duration_seconds", "latency_seconds", "spark_ms", "phase", "reason",
        }  # fmt: skip
    assert {*told["claims"][0]} == {"text", "value", "bound", "held"}
