"""One life of a job in a process of its own: ``python -m benchmarks.kill.driver KIND FOLDER LIFE``.

Prints a line when the job runs. With the folder of a switch in the environment it goes on until a write is struck,
which may kill the whole process group, or until it has gone through some batches; without, until it is killed.
"""

from __future__ import annotations

import os
import sys

from benchmarks.kill.jobs import Life, pruning_often
from benchmarks.kill.kinds import KINDS
from benchmarks.kill.walk import live_here
from benchmarks.kill.writes import DRIVER, VARIABLE, Writes
from penstock.spark.session import local_session


def main(kind: str, folder: str, life: Life) -> None:
    control = os.environ.get(VARIABLE)
    if control is not None:
        # Inherited by the workers: whoever is struck kills all of this.
        os.environ[DRIVER] = str(os.getpgid(0))
        switch = Writes(control)
        switch.install()
        spark = local_session(settings={"spark.python.daemon.module": "benchmarks.kill.writes"})
        live_here(KINDS[kind](spark, folder), life, switch)
        return
    job = KINDS[kind](local_session(), folder)
    print("running", flush=True)
    run = job.start(life)
    if run is not None:
        run.await_termination()


if __name__ == "__main__":
    with pruning_often():
        main(sys.argv[1], sys.argv[2], Life(int(sys.argv[3])))
