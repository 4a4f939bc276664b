"""What happens in the soak, and when: the timetable of the stream, with a fault in every act."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from penstock.model.arrivals import Arrivals

TARGET_SECONDS = 5.0
GRACE_SECONDS = 10.0
QUIET = (12.0, 2_000.0)
BURST = (4.0, 100_000.0)
# New JVMs load and compile for a while: on 2 cores the first batch takes some 25 s, the next ones less and less. Bursts
# come when that is over; after the driver is killed it has to start first, too.
LEAD, RESTART = (60.0, 2_000.0), (75.0, 2_000.0)
# Twice, the first time in vain.
TWO_STARTS = (120.0, 2_000.0)
GRACE_AND_MORE = (GRACE_SECONDS + 15.0, 2_000.0)
TAIL = (20.0, 2_000.0)

TASKS_LOST = "Python workers are killed in a burst: tasks are lost and tried again"
TASKS_HANG = "the Python workers of one executor hang for 4 s in a burst: speculative copies overtake them"
WORKER_KILLED = "a worker and its executors are killed, in a burst"
SLOW_DISK = "every write to the plan log takes a second, in a burst"
CLOCK_AHEAD = "clocks jump ahead by an hour, in a burst"
CLOCK_BACK = "clocks jump back, in a burst"
CONTROLLER_DEAD = "the controller dies"
DRIVER_KILLED = "the driver is killed and started again"
DRIVER_HELD_UP = "the driver is held up for 3 s, in a burst"
DISK_FULL = "no room for a plan: the query stops. A plan cut short: the start is refused. Both mended"
ANOTHER_BURST = f"a burst of {BURST[1] / QUIET[1]:.0f} times the load, and nothing else"


@dataclass(frozen=True)
class Act:
    """A part of the stream, and what happens so many seconds into it."""

    what: str
    phases: tuple[tuple[float, float], ...]
    strikes_at: float


IN_A_BURST = ((QUIET, BURST), QUIET[0] + 1.0)
# Python workers that are forked anew import everything first: what follows is left alone for longer.
AND_A_REST = ((QUIET, BURST, QUIET), QUIET[0] + 1.0)
ACTS = (
    Act(TASKS_LOST, *AND_A_REST),
    Act(TASKS_HANG, *AND_A_REST),
    Act(WORKER_KILLED, *IN_A_BURST),
    Act(SLOW_DISK, *IN_A_BURST),
    Act(CLOCK_AHEAD, *IN_A_BURST),
    Act(CLOCK_BACK, *IN_A_BURST),
    Act(CONTROLLER_DEAD, (GRACE_AND_MORE,), 0.0),
    Act(DRIVER_KILLED, (RESTART,), 0.0),
    Act(DRIVER_HELD_UP, *IN_A_BURST),
    Act(DISK_FULL, (TWO_STARTS,), 12.0),
    Act(ANOTHER_BURST, (QUIET, BURST), QUIET[0]),
)


def timetable() -> Arrivals:
    """Arrivals of the whole stream."""
    return Arrivals.of(LEAD, *(phase for act in ACTS for phase in act.phases), TAIL)


def schedule() -> Iterator[tuple[float, str]]:
    """Seconds into the stream at which something happens, and what."""
    began = LEAD[0]
    for act in ACTS:
        yield began + act.strikes_at, act.what
        began += sum(seconds for seconds, _ in act.phases)
