"""Estimate, decide and update on one core: the compiled kernels against the same steps in pure Python."""

from __future__ import annotations

import time
from statistics import median

import numpy as np
from rich.progress import Progress
from rich.table import Table

from lab.sim.tuple_stream import TupleStream
from penstock.policy.rows.constraint import AverageLatency
from penstock.policy.rows.density import Density
from penstock.policy.rows.load_aware import LoadAware
from penstock.policy.rows.sequence import TuplePolicy, decide
from penstock.policy.rows.shedding import RUN
from penstock.sketch.cost_pair import CostPair

TUPLES = 1_000_000
PYTHON_TUPLES = 20_000
ROUNDS = 7


def kernels(progress: Progress) -> Table:
    """Millions of tuples a second for the default sketches of 4 x 55."""
    stream = TupleStream.draw(seed=1, tuples=TUPLES, calm=0)
    table = Table(title="Estimate + decide + update on one core, sketches of 4 x 55", title_justify="left")
    for heading in ("policy", "million tuples a second", "rounds (min..max)", "pure Python", "ratio"):
        table.add_column(heading, justify="right")
    policies: dict[str, TuplePolicy] = {"load-aware": LoadAware(), "density": Density()}
    task = progress.add_task("kernels", total=len(policies) * (ROUNDS + 1))
    for name, policy in policies.items():
        rates = []
        compiled_rate(policy, stream)
        for _ in range(ROUNDS):
            rates.append(compiled_rate(policy, stream))
            progress.advance(task)
        plain = python_rate(policy, stream) if name == "load-aware" else None
        progress.advance(task)
        table.add_row(
            name, f"{median(rates) / 1e6:.1f}", f"{min(rates) / 1e6:.1f}..{max(rates) / 1e6:.1f}",
            "" if plain is None else f"{plain / 1e6:.3f}", "" if plain is None else f"{median(rates) / plain:.0f}",
        )  # fmt: skip
    return table


def compiled_rate(policy: TuplePolicy, stream: TupleStream) -> float:
    """Tuples a second through the three kernels that a task of Spark calls."""
    pair = CostPair(policy.learning.shape)
    pair.update(stream.items[:10_000], stream.costs_seconds[:10_000])
    shedder = policy.shedder(AverageLatency(seconds=6.4e-3))
    shedder["state"] = RUN
    utility, seed = np.ones(stream.items.size), np.uint64(1)
    started = time.perf_counter()
    costs = pair.estimate(stream.items)
    weights = decide(policy.RULE, shedder, np.zeros(0), stream.arrived_at, costs, utility, seed, 0)
    pair.update(stream.items, stream.costs_seconds, weights)
    return stream.items.size / (time.perf_counter() - started)


def python_rate(policy: TuplePolicy, stream: TupleStream) -> float:
    """The same for load-aware shedding in plain Python, with lists and whole numbers."""
    shape = policy.learning.shape
    coefficients = [[int(number) for number in row] for row in shape.family().coefficients]
    counts = [[1.0] * shape.columns for _ in range(shape.rows)]
    totals = [[stream.mean_seconds] * shape.columns for _ in range(shape.rows)]
    items = [int(item) for item in stream.items[:PYTHON_TUPLES]]
    arrived = stream.arrived_at[:PYTHON_TUPLES].tolist()
    true_costs = stream.costs_seconds[:PYTHON_TUPLES].tolist()
    busy_until, queued_seconds, admitted, tau, word = 0.0, 0.0, 0, 6.4e-3, (1 << 64) - 1
    started = time.perf_counter()
    for item, now, true_cost in zip(items, arrived, true_costs, strict=True):
        low, high = item & 0xFFFFFFFF, item >> 32
        columns = [(((((a + low) * (b + high) + c) & word) >> 32) * shape.columns) >> 32 for a, b, c in coefficients]
        least, cost = float("inf"), 0.0
        for row, column in enumerate(columns):
            if counts[row][column] < least:
                least, cost = counts[row][column], totals[row][column]
        queued = max(0.0, busy_until - now)
        if queued_seconds + queued > tau * (admitted + 1):
            continue
        queued_seconds += queued
        admitted += 1
        busy_until = max(busy_until, now) + cost / least * 1.05
        for row, column in enumerate(columns):
            counts[row][column] += 1
            totals[row][column] += true_cost
    return PYTHON_TUPLES / (time.perf_counter() - started)
