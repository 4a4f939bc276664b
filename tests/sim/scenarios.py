"""The machine that the closed-loop tests share, and how they look at a run."""

import numpy as np

from lab.sim.engine import Engine
from lab.sim.machine import Machine
from penstock.control.governor import Governor
from penstock.model.arrivals import Arrivals
from penstock.model.load import Cost

TARGET_SECONDS = 5.0
# 10,000 tuples keep the machine busy for a second; a batch costs 0.2 s, and dropping a twentieth of keeping.
COST = Cost(fixed_seconds=0.2, kept_seconds=1e-4, shed_seconds=5e-6)
# Utilisation 0.6: back to back, batches of 0.5 s.
QUIET = 6_000
NOISE = 0.2


def times(factor, cost=COST):
    """Make everything as many times dearer."""
    return Cost(
        fixed_seconds=cost.fixed_seconds * factor,
        kept_seconds=cost.kept_seconds * factor,
        shed_seconds=cost.shed_seconds * factor,
    )


def run(*phases, cost=COST, noise=NOISE, seed=0, governor=None, machine=None, **engine):
    """Run phases of (seconds, tuples per second) against a target of 5 s."""
    governor = governor or Governor(latency_seconds=TARGET_SECONDS)
    machine = machine or Machine(cost, noise=noise, seed=seed)
    return Engine(Arrivals.of(*phases), governor, machine, **engine).run()


def between(batches, start, end=float("inf")):
    """Batches that started in [start, end)."""
    return [batch for batch in batches if start <= batch.started_at < end]


def latencies(batches):
    """Arrival to commit of each batch's oldest tuple, in shares of the target."""
    return np.array([batch.latency_seconds for batch in batches]) / TARGET_SECONDS


def kept_share(batches):
    """Share of the offered tuples that survived."""
    return sum(batch.kept for batch in batches) / sum(batch.offered for batch in batches)
