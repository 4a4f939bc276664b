"""How the soak tells from a ledger whether latency came back."""

import subprocess
import sys
from dataclasses import replace

from benchmarks.recovery import Fault, recoveries, recovery_table, undisturbed
from benchmarks.soak_job import ROOT
from benchmarks.soak_plan import schedule, timetable
from benchmarks.switches import CLOCK, FULL_DISK, SLOW_DISK, Switches
from penstock.model.batch import Batch


def ran(*latencies, seconds=1.0):
    """Batches that are committed at 1, 2, 3, ... with these latencies."""
    return [
        Batch(
            batch_id=number,
            offered=1,
            kept=1,
            shed=0,
            keep=1.0,
            reason="fits",
            started_at=number * seconds,
            duration_seconds=seconds,
            latency_seconds=latency,
        )
        for number, latency in enumerate(latencies)
    ]


def judged(batches, *times):
    found = recoveries(batches, [Fault(what=f"at {at}", at=at) for at in times], target_seconds=5.0)
    return [(each.batches, each.late, each.worst_seconds, each.back_seconds, each.back_batches) for each in found]


def test_latency_is_back_with_the_first_batch_after_which_none_is_late():
    assert judged(ran(2, 2, 7, 3, 6, 4, 2), 1.5) == [(6, 2, 7, 4.5, 5)]


def test_a_fault_that_makes_no_batch_late_is_over_with_the_batch_that_it_struck():
    assert judged(ran(2, 2, 2), 1.5) == [(2, 0, 2, 0.5, 1)]


def test_a_last_batch_that_is_late_is_no_recovery():
    assert judged(ran(2, 2, 7, 3, 6), 1.5) == [(4, 2, 7, None, None)]


def test_a_fault_is_judged_up_to_the_next_one():
    assert judged(ran(2, 7, 2, 6, 8, 2), 0.5, 3.5) == [(3, 1, 7, 2.5, 3), (3, 2, 8, 2.5, 3)]


def test_without_a_single_batch_nothing_is_back():
    assert judged(ran(2, 2), 9.0) == [(0, 0, None, None, None)]


def test_batches_of_unknown_latency_say_nothing():
    recounted = Batch(batch_id=1, offered=1, kept=1, shed=0, keep=1.0, reason="fits", recounted=True)
    before, _, *after = ran(2, 9, 2)
    assert judged([before, recounted, *after], 0.5) == [(2, 0, 2, 0.5, 1)]


def test_the_table_names_what_never_came_back():
    found = recoveries(ran(2, 7), [Fault(what="a worker is killed", at=1.5)], target_seconds=5.0)
    table = recovery_table(found, since=1.0, target_seconds=5.0, evidence={"a worker is killed": ""})
    assert [list(column.cells) for column in table.columns] == [
        ["a worker is killed"], ["NO"], ["0 s"], ["1"], ["1"], ["7.0 s"], ["NEVER"],
    ]  # fmt: skip
    assert "NOT back inside the target" in str(found[0])


def test_what_ran_before_anything_happened_is_told_with_its_slow_start():
    slow, *others = ran(9, 3, 2, 2, 7)
    batches = [replace(slow, duration_seconds=0.5), *others]
    assert undisturbed(batches, before=4.5) == (
        "undisturbed: 4 batches took 0.5, 1.0, 1.0, 1.0 s; median latency of the last 4: 2.5 s"
    )
    assert undisturbed(batches, before=0.1) == "undisturbed: no batch"


def test_the_soak_strikes_in_a_burst_where_it_says_so_and_in_order():
    happens, arrivals = list(schedule()), timetable()
    assert [at for at, _ in happens] == sorted(at for at, _ in happens)
    assert happens[-1][0] < arrivals.total_seconds
    in_bursts = [at for at, what in happens if "in a burst" in what]
    assert len(in_bursts) == 7
    for at in in_bursts:
        burst = arrivals.count_at(at + 1) - arrivals.count_at(at)
        quiet = arrivals.count_at(at - 2) - arrivals.count_at(at - 3)
        assert burst == 50 * quiet


def test_switches_act_in_the_process_that_heeds_them_and_leave_a_note(tmp_path):
    script = """
import os, sys, time
from benchmarks import switches
real = time.time()
heeded = switches.install(sys.argv[1])
assert abs(time.time() - real) < 60
heeded.turn(switches.CLOCK, "3600")
assert time.time() - real > 3_000
heeded.turn(switches.CLOCK, None)
assert abs(time.time() - real) < 60
heeded.turn(switches.FULL_DISK, "full")
try:
    os.fsync(os.open(sys.argv[1] + "/file", os.O_CREAT | os.O_WRONLY))
except OSError as full:
    print(full)
"""
    command = [sys.executable, "-c", script, str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert "No space left on device" in done.stdout
    switches = Switches(tmp_path)
    assert [switches.acted(name) for name in (CLOCK, FULL_DISK, SLOW_DISK)] == [True, True, False]
