"""The streams of [CoD18]'s experiments: real ones where they are at hand, else generated ones of the same shape."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np

from penstock.policy.strata.groups import Floats, Ints

DATA_VARIABLE = "PENSTOCK_DATA"
DAY_SECONDS = 86_400.0
GENERATED_SEED = 2018
# Windows with fewer tuples are the ragged ends of a stream.
LEAST_TUPLES = 1_000


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Stream:
    """Tuples in the order of their event time, and the windows that the query slides over them.

    Attributes
    ----------
    name, question
        What the stream is, and what is asked of it.
    seconds
        Event time.
    keys
        Group of each tuple; all zero for a scalar query.
    values
        What is averaged.
    size_seconds, slide_seconds
        The sliding window.
    keep
        Share of a window that is processed.
    real
        Whether it was read from data, not generated.
    """

    name: str
    question: str
    seconds: Floats
    keys: Ints
    values: Floats
    size_seconds: float
    slide_seconds: float
    keep: float
    real: bool

    def windows(self) -> Iterator[slice]:
        """Slide over the stream; windows that are nearly empty are left out."""
        first, last = float(self.seconds[0]), float(self.seconds[-1])
        for start in np.arange(first, last - self.size_seconds + 1, self.slide_seconds):
            low, high = np.searchsorted(self.seconds, [start, start + self.size_seconds]).tolist()
            if high - low >= LEAST_TUPLES:
                yield slice(low, high)


def data_path(name: str) -> Path | None:
    """Find a file of real data: in the folder that PENSTOCK_DATA names, or beside the project; None if it is absent."""
    folder = os.environ.get(DATA_VARIABLE)
    beside = Path(__file__).resolve().parents[2].parent / "shared" / "data"
    path = (Path(folder) if folder else beside) / f"{name}.parquet"
    return path if path.exists() else None


def users() -> Stream:
    """GCM by user: mean CPU request, windows of 60 minutes that slide by 30, 2 % processed."""
    tasks = task_events()
    return _cpu_requests(tasks, "user", question="mean CPU request by user", keys=tasks.users, keep=0.02)


def scheduling_classes() -> Stream:
    """GCM as in the paper: mean CPU request by scheduling class."""
    tasks = task_events()
    question = "mean CPU request by scheduling class"
    return _cpu_requests(tasks, "class", question=question, keys=tasks.classes, keep=0.02)


def scalar() -> Stream:
    """DEC stands for a scalar aggregate: here the mean CPU request of all tasks, 1 % processed."""
    tasks = task_events()
    one_group = np.zeros(len(tasks.seconds), dtype=np.int64)
    return _cpu_requests(tasks, "scalar", question="mean CPU request", keys=one_group, keep=0.01)


def _cpu_requests(tasks: TaskEvents, label: str, *, question: str, keys: Ints, keep: float) -> Stream:
    """CPU requests of the task events in the paper's windows of 60 minutes that slide by 30."""
    return Stream(
        name=f"google {label}" if tasks.real else f"generated {label}",
        question=question,
        seconds=tasks.seconds,
        keys=keys,
        values=tasks.cpu,
        size_seconds=3_600.0,
        slide_seconds=1_800.0,
        keep=keep,
        real=tasks.real,
    )


def routes() -> Stream:
    """DEBS: mean fare by route; the stream is thin, so windows of 45 days, sliding by 15, hold as many trips."""
    trips = taxi_trips()
    return Stream(
        name="taxi route" if trips.real else "generated route",
        question="mean fare by route",
        seconds=trips.seconds,
        keys=trips.routes,
        values=trips.fares,
        size_seconds=45 * DAY_SECONDS,
        slide_seconds=15 * DAY_SECONDS,
        keep=0.25,
        real=trips.real,
    )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TaskEvents:
    """Google's cluster trace: who asked for how much CPU; ``kinds`` 0 is a submission, 1 a start, 4 an end."""

    seconds: Floats
    jobs: Ints
    users: Ints
    classes: Ints
    kinds: Ints
    cpu: Floats
    real: bool


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TaxiTrips:
    """Trips of New York's green taxis."""

    seconds: Floats
    routes: Ints
    fares: Floats
    real: bool


@lru_cache(maxsize=1)
def task_events() -> TaskEvents:
    """Read the trace, or make one up: 20 hours, bursty, 74 / 13 / 12 / 0.6 % of tuples by class, Zipf users."""
    path = data_path("google_task_events")
    if path is None:
        return _generated_tasks()
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    columns = ["ts_us", "job_id", "user", "scheduling_class", "event_type", "cpu_request"]
    table = pq.read_table(path, columns=columns)
    # Time zero stands for everything before the trace began.
    table = table.filter(pc.greater(table["ts_us"], 0))
    users = table["user"].combine_chunks().dictionary_encode().indices
    return TaskEvents(
        seconds=table["ts_us"].to_numpy() / 1e6,
        jobs=table["job_id"].to_numpy(),
        users=users.to_numpy(zero_copy_only=False).astype(np.int64),
        classes=table["scheduling_class"].to_numpy().astype(np.int64),
        kinds=table["event_type"].to_numpy().astype(np.int64),
        cpu=table["cpu_request"].to_numpy().astype(np.float64),
        real=True,
    )


@lru_cache(maxsize=1)
def taxi_trips() -> TaxiTrips:
    """Read the trips, or make some up: 27,000 routes, a third of them seen once."""
    path = data_path("tlc_green")
    if path is None:
        return _generated_trips()
    import pyarrow.parquet as pq

    table = pq.read_table(path, columns=["pickup_time", "pu_zone", "do_zone", "fare_amount"])
    zones = [table[name].fill_null(0).to_numpy().astype(np.int64) for name in ("pu_zone", "do_zone")]
    fares = table["fare_amount"].to_numpy().astype(np.float64)
    sound = np.isfinite(fares)
    return TaxiTrips(
        seconds=table["pickup_time"].to_numpy().astype("datetime64[us]").astype(np.int64)[sound] / 1e6,
        routes=(zones[0] * 1_000 + zones[1])[sound],
        fares=fares[sound],
        real=True,
    )


def _generated_tasks() -> TaskEvents:
    random = np.random.default_rng(GENERATED_SEED)
    count = 2_000_000
    users = _zipf(random, groups=400, exponent=1.6, size=count)
    own = random.lognormal(-3.0, 0.8, 400)
    return TaskEvents(
        seconds=np.sort(random.uniform(0, 20 * 3_600, count)),
        jobs=_zipf(random, groups=16_000, exponent=1.1, size=count),
        users=users,
        classes=random.choice(4, size=count, p=[0.743, 0.13, 0.121, 0.006]).astype(np.int64),
        kinds=random.choice([0, 1, 4], size=count).astype(np.int64),
        cpu=own[users] * random.lognormal(0, 0.3, count),
        real=False,
    )


def _generated_trips() -> TaxiTrips:
    random = np.random.default_rng(GENERATED_SEED)
    count = 763_000
    routes = _zipf(random, groups=27_000, exponent=1.15, size=count)
    own = random.lognormal(2.6, 0.5, 27_000)
    return TaxiTrips(
        seconds=np.sort(random.uniform(0, 39 * 30 * DAY_SECONDS, count)),
        routes=routes,
        fares=own[routes] * random.lognormal(0, 0.25, count),
        real=False,
    )


def _zipf(random: np.random.Generator, *, groups: int, exponent: float, size: int) -> Ints:
    popularity = np.cumsum(np.arange(1, groups + 1) ** -exponent)
    ranks = np.searchsorted(popularity / popularity[-1], random.random(size), side="right")
    return ranks.clip(max=groups - 1).astype(np.int64)
