"""Let Python workers start with the kernels loaded: ``spark.python.daemon.module = penstock.spark.daemon``.

Spark forks its Python workers from a daemon. A worker that has to import numba and load the compiled kernels by itself
takes a second of CPU time before its first tuple; a fork of a daemon that has them takes none.
"""

from __future__ import annotations

import numpy as np
from pyspark import daemon

from penstock.policy.rows.constraint import AverageLatency
from penstock.policy.rows.density import Density
from penstock.policy.rows.load_aware import LoadAware
from penstock.policy.rows.sequence import TuplePolicy, decide
from penstock.sketch.cost_pair import CostPair
from penstock.spark.work import task as worktask  # noqa: F401 - for the workers that are forked from here


def preload() -> None:
    """Run every kernel of a task once, on a handful of tuples."""
    policies: tuple[TuplePolicy, ...] = (LoadAware(), Density())
    items, nothing = np.arange(8, dtype=np.uint64), np.zeros(8)
    for policy in policies:
        shedder = policy.shedder(AverageLatency(seconds=1.0))
        decide(policy.RULE, shedder, np.zeros(0), nothing, nothing, nothing + 1, np.uint64(0), 0)
    pair = CostPair(policies[0].learning.shape)
    pair.update(items, nothing)
    pair.estimate(items)


SETTINGS = {"spark.python.daemon.module": "penstock.spark.daemon"}

if __name__ == "__main__":
    preload()
    daemon.manager()
