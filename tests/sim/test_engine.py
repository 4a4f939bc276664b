"""The engine runs batches as Spark does; whole traces, without noise, without shedding."""

import pytest

from lab.sim.engine import Engine, simulate
from lab.sim.machine import Machine
from penstock.control.governor import Governor
from penstock.model.arrivals import Arrivals
from penstock.model.errors import InvalidInputError
from penstock.model.load import Cost
from penstock.policy.baseline import KeepAll

WATCH_ONLY = Governor(latency_seconds=1e6, policy=KeepAll(), probe_tuples=10**9)


def trace(batches):
    return [
        (round(batch.started_at, 6), batch.offered, round(batch.duration_seconds, 6), round(batch.latency_seconds, 6))
        for batch in batches
    ]


def test_back_to_back_batches_take_what_arrived_meanwhile():
    # 4 tuples a second, 0.5 s a batch and 0.25 s a tuple.
    batches = simulate(Arrivals.of((5, 4)), WATCH_ONLY, Cost(fixed_seconds=0.5, kept_seconds=0.25))

    assert trace(batches) == [
        (0.25, 1, 0.75, 0.75),
        (1.0, 3, 1.25, 1.75),
        (2.25, 5, 1.75, 2.75),
        (4.0, 7, 2.25, 3.75),
        (6.25, 4, 1.5, 3.5),
    ]
    assert [batch.mean_latency_seconds for batch in batches] == pytest.approx([0.75, 1.5, 2.25, 3.0, 3.125])


def test_triggered_batches_start_at_boundaries_and_at_once_after_an_overrun():
    costs = {0: Cost(fixed_seconds=0.5, kept_seconds=0), 2: Cost(fixed_seconds=2.25, kept_seconds=0)}
    costs[4] = costs[0]

    batches = simulate(Arrivals.of((8, 4)), WATCH_ONLY, costs, trigger_seconds=1)

    assert trace(batches) == [
        (1.0, 4, 0.5, 1.25),
        (2.0, 4, 2.25, 3.0),
        (4.25, 9, 0.5, 2.5),
        (5.0, 3, 0.5, 1.0),
        (6.0, 4, 0.5, 1.25),
        (7.0, 4, 0.5, 1.25),
        (8.0, 4, 0.5, 1.25),
    ]


def test_there_is_no_batch_while_nothing_arrives():
    pause = Arrivals.of((1, 2), (10, 0), (1, 2))
    cost = Cost(fixed_seconds=0.25, kept_seconds=0)

    assert [at for at, *_ in trace(simulate(pause, WATCH_ONLY, cost))] == [0.5, 1.0, 11.5, 12.0]
    assert [at for at, *_ in trace(simulate(pause, WATCH_ONLY, cost, trigger_seconds=2))] == [2.0, 12.0]


def test_every_tuple_is_offered_once_and_every_batch_balances():
    arrivals = Arrivals.of((10, 3_000), (10, 90_000), (5, 0), (10, 3_000))
    cost = Cost(fixed_seconds=0.2, kept_seconds=1e-4, shed_seconds=5e-6)

    batches = simulate(arrivals, Governor(latency_seconds=4.0), cost, noise=0.2, seed=3)

    assert sum(batch.offered for batch in batches) == arrivals.total_tuples
    assert sum(batch.kept + batch.shed for batch in batches) == arrivals.total_tuples
    assert sum(batch.shed for batch in batches) > 0
    assert [batch.batch_id for batch in batches] == list(range(len(batches)))


def test_the_same_seed_gives_the_same_trace():
    def run(seed):
        cost = Cost(fixed_seconds=0.2, kept_seconds=1e-4)
        return simulate(Arrivals.of((20, 20_000)), Governor(latency_seconds=4.0), cost, noise=0.2, seed=seed)

    assert run(1) == run(1)
    assert run(1) != run(2)


def test_a_run_can_be_stopped_and_goes_on_from_the_same_tuple():
    def engine():
        return Engine(Arrivals.of((5, 4)), WATCH_ONLY, Machine(Cost(fixed_seconds=0.5, kept_seconds=0.25)))

    halted = engine()
    before = halted.run(until_seconds=2.25)

    assert [batch.batch_id for batch in before] == [0, 1]
    assert halted.run() == engine().run()


def test_after_a_restart_the_backlog_is_taken_at_once_and_its_age_counts():
    engine = Engine(
        Arrivals.of((20, 4)),
        WATCH_ONLY,
        Machine(Cost(fixed_seconds=0.5, kept_seconds=0), start_up_seconds=3.0),
        trigger_seconds=1,
    )
    engine.run(until_seconds=6)
    engine.restart(at_seconds=15.5)

    assert trace(engine.run()) == [
        (1.0, 4, 3.5, 4.25),
        (4.5, 14, 0.5, 3.75),
        (5.0, 2, 0.5, 0.75),
        (15.5, 42, 3.5, 13.75),
        (19.0, 14, 0.5, 3.75),
        (20.0, 4, 0.5, 1.25),
    ]


def test_guidance_that_lags_has_seen_one_batch_less():
    def first_known(lag):
        engine = Engine(
            Arrivals.of((20, 100)),
            Governor(latency_seconds=5.0),
            Machine(Cost(fixed_seconds=0.5, kept_seconds=1e-3)),
            guidance_lag_batches=lag,
        )
        return [batch.reason.startswith("load") for batch in engine.run()].index(True)

    assert [first_known(lag) for lag in (0, 1, 3)] == [4, 5, 7]


@pytest.mark.parametrize("options", [{"trigger_seconds": -1}, {"guidance_lag_batches": -1}])
def test_an_engine_that_makes_no_sense_is_refused(options):
    (name,) = options
    with pytest.raises(InvalidInputError, match=f"{name} must be finite and at least 0, got -1"):
        Engine(Arrivals.of((1, 1)), WATCH_ONLY, Machine(Cost(fixed_seconds=1, kept_seconds=0)), **options)
