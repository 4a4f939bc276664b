"""Controllers that die, and queries that were down."""

from dataclasses import replace

import numpy as np
import pytest

from lab.sim.engine import Engine
from lab.sim.machine import Machine
from penstock.control.governor import Governor
from penstock.model.arrivals import Arrivals
from penstock.model.load import Cost
from tests.sim.scenarios import COST, NOISE, QUIET, TARGET_SECONDS, between, latencies, run

HOUR = 3600.0
# 10 ms a tuple, 60 tuples a second: utilisation 0.6 with few tuples, so that an hour of them is quick to simulate.
SLOW = Cost(fixed_seconds=0.2, kept_seconds=1e-2, shed_seconds=1e-5)


def test_when_the_controller_dies_plans_go_on_for_the_grace_then_all_is_kept_and_the_reason_says_so():
    governor = Governor(latency_seconds=TARGET_SECONDS, grace_seconds=20.0)
    batches = run((30, QUIET), (60, 5 * QUIET), governor=governor, controller_dies_at_batch=70)
    died_at = batches[70].started_at
    orphaned = between(batches, died_at)

    graced = [batch for batch in orphaned if batch.started_at <= died_at + 20]
    silent = [batch for batch in orphaned if batch.started_at > died_at + 20]
    assert 30 < died_at < 60
    assert all(batch.reason.startswith("load ") and batch.keep < 1 for batch in graced)
    assert np.quantile(latencies(graced), 0.9) <= 1
    assert len(silent) >= 2
    assert all(batch.keep == 1 and batch.shed == 0 for batch in silent)
    assert all(
        batch.reason.startswith("the controller has been silent for ")
        and batch.reason.endswith(" s, longer than the 20 s of grace: keeping all")
        for batch in silent
    )


def test_a_living_controller_is_not_taken_for_dead_during_a_long_pause():
    governor = Governor(latency_seconds=TARGET_SECONDS, grace_seconds=20.0)
    batches = run((20, QUIET), (300, 0), (20, QUIET), governor=governor)

    assert not any("silent" in batch.reason for batch in batches)


@pytest.mark.parametrize("readable", [True, False], ids=["offsets", "rates"])
def test_after_an_hour_down_the_first_batch_does_not_take_everything(readable):
    engine = Engine(
        Arrivals.of((HOUR + 120, 60)),
        Governor(latency_seconds=TARGET_SECONDS),
        Machine(SLOW, noise=0.2, seed=1, start_up_seconds=3.0),
        offsets_readable=readable,
    )
    before = engine.run(until_seconds=40)
    engine.restart(at_seconds=40 + HOUR)
    first, *after = engine.run()[len(before) :]

    assert sum(batch.shed for batch in before) == 0
    assert first.offered > 215_000
    # It would take 2,160 s to keep them all; the least rate of the policy is what remains.
    assert first.keep <= 0.01
    assert first.duration_seconds < 60
    assert first.reason.startswith("the target cannot be met at any rate: ")
    # Three batches later the stream is back in the target, and whole.
    assert latencies(after[3:]).max() <= 1
    assert [batch.batch_id for batch in after[3:] if batch.keep < 1] == []


def test_a_short_restart_goes_on_with_what_was_learned():
    engine = Engine(
        Arrivals.of((60, 5 * QUIET)),
        Governor(latency_seconds=TARGET_SECONDS),
        Machine(Cost(fixed_seconds=0.2, kept_seconds=1e-4, shed_seconds=5e-6), noise=0.2, seed=2),
    )
    before = engine.run(until_seconds=30)
    engine.restart(at_seconds=33)
    after = engine.run()[len(before) :]

    assert after[0].reason.startswith("load ")
    assert not any("cold start" in batch.reason or "not learned" in batch.reason for batch in after)
    assert np.quantile(latencies(after[1:]), 0.9) <= 1


@pytest.mark.parametrize("trigger", [{}, {"trigger_seconds": 1}], ids=["back-to-back", "every-second"])
@pytest.mark.parametrize("seed", range(5))
def test_a_slow_disk_for_the_plan_log_is_learned_as_what_a_batch_costs_and_forgotten_with_it(seed, trigger):
    """A batch waits until its plan is written: a second of it is a second for which the batch keeps less."""
    slow = replace(COST, fixed_seconds=COST.fixed_seconds + 1.0)
    machine = Machine({0: COST, 30: slow, 60: COST}, noise=NOISE, seed=seed)
    batches = run((90, QUIET), machine=machine, **trigger)
    during, after = between(batches, 30, 60), between(batches, 60)

    assert not any(batch.shed for batch in between(batches, 10, 30))
    # Noise alone makes one in twenty batches late that fill their time to the headroom.
    assert np.quantile(latencies(during), 0.75) <= 1
    assert latencies(during).max() <= 1.2
    assert latencies(after).max() <= 1
    assert [batch.batch_id - after[0].batch_id for batch in after if batch.shed] in ([], [0], [0, 1])
