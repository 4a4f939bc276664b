"""The two state machines, step by step, and the policies that are settings of them."""

import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.model.errors import InvalidInputError
from penstock.policy.rows.constraint import AverageLatency, MaximumLatency, WindowLatency
from penstock.policy.rows.density import Density
from penstock.policy.rows.load_aware import (
    BaseLine,
    FullKnowledge,
    Learning,
    LoadAware,
    StrawMan,
    new_shedder,
    utility_of,
)
from penstock.policy.rows.sequence import decide
from penstock.policy.rows.shedding import NOP, RUN, STABILIZING, START, keeps, learn, queuing_seconds, sent
from penstock.sketch.cost_pair import CostPair
from penstock.sketch.hashing import items_of

POLICIES = [
    LoadAware(),
    StrawMan(mean_seconds=1.0),
    FullKnowledge(),
    BaseLine(keep=0.75),
    Density(),
    Density(true_costs=True),
]
NO_WINDOW = np.zeros(0)


def running(constraint, **fields) -> np.ndarray:
    shedder = new_shedder(constraint, state=RUN)
    for name, value in fields.items():
        shedder[name] = value
    return shedder


def fates(shedder, arrivals_and_costs, window=NO_WINDOW, droppable=True) -> list[bool]:
    return [bool(keeps(shedder[0], window, now, cost, droppable)) for now, cost in arrivals_and_costs]


@pytest.mark.parametrize("policy", POLICIES, ids=repr)
def test_every_policy_pickles_and_makes_the_same_start(policy):
    travelled = pickle.loads(pickle.dumps(policy))

    assert travelled == policy
    assert travelled.shedder(AverageLatency(seconds=1.0)) == policy.shedder(AverageLatency(seconds=1.0))


def test_before_the_first_pair_everything_is_kept():
    shedder = LoadAware().shedder(MaximumLatency(seconds=0.0))

    assert shedder["state"][0] == NOP
    assert fates(shedder, [(0.0, 9.0)] * 5) == [True] * 5


def test_abs_keeps_what_waits_no_longer_than_tau():
    shedder = running(MaximumLatency(seconds=2.0))

    # Work of 1.5 each, all at once: the queue stands at 0, 1.5, then 3.0, which is too long until it has shrunk.
    assert fates(shedder, [(0.0, 1.5), (0.0, 1.5), (0.0, 1.5), (0.5, 1.5), (1.0, 1.5)]) == [
        True,
        True,
        False,
        False,
        True,
    ]


def test_avg_counts_the_new_tuple_in_and_starts_without_a_division_by_zero():
    shedder = running(AverageLatency(seconds=1.0))

    # Waits of 0 and 2 average to 1; a third wait of 4 would make it 2.
    assert fates(shedder, [(0.0, 2.0), (0.0, 2.0), (0.0, 2.0), (2.0, 2.0)]) == [True, True, False, False]
    assert shedder["admitted"][0] == 2
    assert shedder["queued_seconds"][0] == 2.0


def test_a_window_forgets_what_is_older():
    window = np.zeros(2)
    shedder = running(WindowLatency(seconds=1.0, tuples=2))

    # Waits 0 and 2 fill the window; 2 + 3 is too much; once the queue has drained, 2 + 0 fits and the first goes.
    assert fates(shedder, [(0.0, 2.0), (0.0, 3.0), (2.0, 1.0), (5.0, 1.0), (6.0, 1.0)], window) == [
        True,
        True,
        False,
        True,
        True,
    ]
    assert sorted(window) == [0.0, 0.0]


@settings(deadline=None)
@given(st.lists(st.tuples(st.floats(0, 2), st.floats(0, 3)), max_size=50), st.floats(0, 5), st.integers(1, 6))
def test_with_true_costs_the_window_average_never_exceeds_tau(tuples, tau, size):
    window, now, waits, busy_until = np.zeros(size), 0.0, [], 0.0
    shedder = running(WindowLatency(seconds=tau, tuples=size))
    for gap, cost in tuples:
        now += gap
        if keeps(shedder[0], window, now, cost, True):
            waits.append(max(0.0, busy_until - now))
            busy_until = max(busy_until, now) + cost
            assert sum(waits[-size:]) / len(waits[-size:]) <= tau + 1e-9


@settings(deadline=None)
@given(st.lists(st.tuples(st.floats(0, 2), st.floats(0, 3)), max_size=50), st.floats(0, 5))
def test_with_true_costs_the_average_never_exceeds_tau(tuples, tau):
    now, waits, busy_until = 0.0, [], 0.0
    shedder = running(AverageLatency(seconds=tau))
    for gap, cost in tuples:
        now += gap
        if keeps(shedder[0], NO_WINDOW, now, cost, True):
            waits.append(max(0.0, busy_until - now))
            busy_until = max(busy_until, now) + cost
            assert sum(waits) / len(waits) <= tau + 1e-9


def test_a_quiet_time_earns_no_credit():
    """As published, an hour of idling would let a burst of an hour's work through."""
    shedder = running(MaximumLatency(seconds=1.0))
    fates(shedder, [(0.0, 1.0)])

    assert queuing_seconds(shedder[0], 3600.0) == 0
    assert fates(shedder, [(3600.0, 1.0)] * 5) == [True, True, False, False, False]


def test_a_tuple_that_must_not_be_dropped_is_kept_and_counted():
    shedder = running(AverageLatency(seconds=0.0))

    assert fates(shedder, [(0.0, 5.0), (0.0, 5.0)], droppable=False) == [True, True]
    assert shedder["queued_seconds"][0] == 5.0


def test_after_tuples_that_had_to_be_kept_a_drained_queue_is_open_again():
    """As published, nothing would be let in until the average is below tau, and with nothing let in it stays above."""
    for constraint in (AverageLatency(seconds=1.0), WindowLatency(seconds=1.0, tuples=3)):
        shedder, window = running(constraint), np.full(constraint.window_tuples, 9.0)
        shedder["admitted"], shedder["queued_seconds"] = 3, 27.0

        assert fates(shedder, [(0.0, 2.0), (0.0, 2.0), (2.0, 0.5)], window) == [True, False, True]


def test_check_utility_says_for_each_item_whether_it_may_be_dropped():
    items = np.arange(4, dtype=np.uint64)

    assert utility_of(items, None).tolist() == [1.0] * 4
    assert utility_of(items, lambda given: given % 2 == 0).tolist() == [1.0, np.inf, 1.0, np.inf]
    with pytest.raises(InvalidInputError, match="one True or False for each of 4 items"):
        utility_of(items, lambda given: [1, 2])


def test_the_operator_sends_its_pair_once_estimates_have_settled():
    learning = Learning(every_tuples=10, tolerance=0.05, by_traffic=False)
    operator, pair = learning.operator(), CostPair(learning.shape)
    snapshot = np.zeros(pair.cells.shape[:2])
    items = items_of(np.zeros(1, dtype=np.int64))
    states, sent_after = [], []
    for number in range(1, 61):
        if learn(operator[0], pair.cells, snapshot, pair.coefficients, items[0], 0.5, 1.0):
            sent_after.append((number, pair.executed))
            sent(operator[0], pair.cells, pair.coefficients, items[0], 0.5, 1.0)
        states.append(int(operator["state"][0]))

    # A snapshot at 10, a stable comparison at 20 with what was executed before it, then all anew.
    assert sent_after == [(20, 19.0), (40, 20.0), (60, 20.0)]
    assert states[8] == START
    assert states[9] == STABILIZING
    assert states[19] == START


def test_the_operator_waits_while_estimates_move():
    learning = Learning(every_tuples=10, tolerance=0.05)
    operator, pair = learning.operator(), CostPair(learning.shape)
    snapshot = np.zeros(pair.cells.shape[:2])
    item = items_of(np.zeros(1, dtype=np.int64))[0]

    moved = [learn(operator[0], pair.cells, snapshot, pair.coefficients, item, 1.1**n, 1.0) for n in range(100)]

    assert not any(moved)
    assert operator["state"][0] == STABILIZING


def test_an_eager_operator_sends_every_snapshot_and_fades():
    learning = Learning(every_tuples=10, eager=True, fade_above_tuples=15)
    operator, pair = learning.operator(), CostPair(learning.shape)
    snapshot = np.zeros(pair.cells.shape[:2])
    item = items_of(np.zeros(1, dtype=np.int64))[0]
    held = []
    for number in range(40):
        if learn(operator[0], pair.cells, snapshot, pair.coefficients, item, float(number), 1.0):
            held.append(pair.executed)
            sent(operator[0], pair.cells, pair.coefficients, item, float(number), 1.0)

    assert held == [9.0, 19.0, 19.5, 19.75]


def test_decisions_on_a_sequence_do_not_depend_on_how_it_is_cut():
    rng = np.random.default_rng(1)
    arrived, costs = np.cumsum(rng.random(500)), rng.random(500) * 3
    for policy in POLICIES:
        at_once = policy.shedder(AverageLatency(seconds=1.0))
        at_once["state"] = RUN
        in_parts = at_once.copy()
        utility, seed = np.ones(500), np.uint64(7)
        whole = decide(policy.RULE, at_once, NO_WINDOW, arrived, costs, utility, seed, 0)
        parts = [
            decide(policy.RULE, in_parts, NO_WINDOW, arrived[a:b], costs[a:b], utility[a:b], seed, a)
            for a, b in ((0, 100), (100, 101), (101, 500))
        ]

        assert (whole == np.concatenate(parts)).all()
        assert at_once == in_parts


@pytest.mark.parametrize(
    "make",
    [
        lambda: Learning(every_tuples=0),
        lambda: Learning(eps=0),
        lambda: StrawMan(mean_seconds=0),
        lambda: BaseLine(keep=1.5),
        lambda: AverageLatency(seconds=-1),
        lambda: WindowLatency(seconds=1, tuples=0),
        lambda: Density(min_keep=-0.1),
    ],
)
def test_settings_without_meaning_are_refused(make):
    with pytest.raises(InvalidInputError):
        make()
