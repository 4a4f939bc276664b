"""The handle on a running query: what it did, how it stands, how to stop it."""

from __future__ import annotations

import re
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from penstock.control.controller import Controller
from penstock.model import errors
from penstock.model.batch import Batch
from penstock.model.errors import InvalidInputError, NotSupportedError, PenstockError
from penstock.spark.classic import catches_up
from penstock.spark.plan.planner import Planner
from penstock.spark.run.control import Control
from penstock.spark.run.gaps import Gap, Gaps, Recount
from penstock.spark.run.learner import CostLearner, Learner
from penstock.spark.run.lease import Lease
from penstock.spark.run.ledger import Ledger
from penstock.spark.run.progress import skewed_partition
from penstock.spark.run.reports import Reports
from penstock.spark.store.folder import folder_at, require_exclusive
from penstock.spark.store.paths import AnyPath, spark_address

if TYPE_CHECKING:
    from penstock.spark.run.network import NetworkLearner
    from penstock.spark.run.operator_learner import OperatorLearner

REMEMBERED_BATCHES = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """What a person wants to know of a running query, at one glance."""

    active: bool
    controlled: bool
    batches: int
    offered: int
    kept: int
    shed: int
    last: Batch | None
    note: str

    def __str__(self) -> str:
        last = self.last
        state = "running" if self.active else "stopped"
        lines = [
            f"{state}: {self.batches:,} batches, {self.offered:,} offered = {self.kept:,} kept + {self.shed:,} shed"
        ]
        if last is not None:
            latency = "unknown" if last.latency_seconds is None else f"{last.latency_seconds:.2f} s"
            lines.append(f"batch {last.batch_id}: keep {last.keep:.3f}, latency {latency}; {last.reason}")
            if skew := skewed_partition(last):
                lines.append(skew)
        if self.note:
            lines.append(self.note)
        return "\n".join(lines)


def start_run(
    *,
    spark: SparkSession,
    writer: DataStreamWriter,
    planner: Planner,
    recount: Recount,
    compose: Callable[[CostLearner], Mapping[str, Learner]] = lambda costs: {"costs": costs},
    tidy: Callable[[int], None] | None = None,
    start: Callable[[DataStreamWriter], StreamingQuery] = lambda writer: writer.start(),
) -> Run:
    """Take the checkpoint over, close the gaps of the ledger, start the query, and control it.

    ``compose`` gives the learners by name, in the order in which they learn; ``costs`` is one of them.
    """
    log = planner.log
    require_exclusive(log.path)

    def heard_at() -> float | None:
        guidance = log.guidance()
        return guidance.published_at if guidance is not None and not guidance.stopped else None

    lease = Lease.take(log.path / "epochs", heard_at=heard_at)
    try:
        # Read under the lease: until then another driver may have written.
        learners = compose(CostLearner(Controller(planner.target, resume=planner.resume())))
        gaps = Gaps(planner=planner, ledger=Ledger(log.path / "ledger"), recount=recount)
        control = partial(
            Control,
            planner=planner,
            lease=lease,
            gaps=gaps,
            learners=learners,
            catch_up=catches_up(writer),
            tidy=tidy,
        )
        run = Run(spark=spark, planner=planner, control=control)
        run.begin(partial(start, writer.option("checkpointLocation", spark_address(planner.checkpoint))))
    except BaseException:
        lease.release()
        raise
    return run


class Run:
    """A started query under control; made by :meth:`Shedder.start <penstock.spark.shed.Shedder.start>`.

    Leaving its ``with`` block stops the query. Nothing but the end of the query ends the control: what fails is said in
    :attr:`status` and tried again. While it cannot be mended the query goes on: with the last guidance for the
    target's ``grace_seconds``, then keeping all.
    """

    query: StreamingQuery

    def __init__(
        self,
        *,
        spark: SparkSession,
        planner: Planner,
        control: Callable[..., Control],
    ) -> None:
        self._spark = spark
        self._planner = planner
        self._batches: deque[Batch] = deque(maxlen=REMEMBERED_BATCHES)
        self._totals = (0, 0, 0)
        self._handled = 0
        self._changed = threading.Condition(threading.RLock())
        self._control = control(finished=self._remember)
        self._thread = threading.Thread(target=self._go, name="penstock-controller", daemon=True)

    def begin(self, start: Callable[[], StreamingQuery]) -> None:
        """Start the query and then its control; once, by :func:`start_run`."""
        last_id = self._control.prepare()
        self.query = start()
        try:
            require_visible(self._planner.checkpoint)
        except PenstockError:
            self.query.stop()
            raise
        self._reports = Reports(self.query, self._planner.checkpoint, last_id=last_id)
        self._thread.start()

    def _go(self) -> None:
        self._control.run(self.query, self._reports)
        with self._changed:
            self._changed.notify_all()

    def __enter__(self) -> Run:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def batches(self) -> list[Batch]:
        """Batches that this run has finished, oldest first."""
        with self._changed:
            return list(self._batches)

    @property
    def status(self) -> Status:
        """How the query stands now."""
        with self._changed:
            offered, kept, shed = self._totals
            return Status(
                active=self.query.isActive,
                controlled=self._thread.is_alive() and self._control.lost is None and not self._control.silent,
                batches=self._handled,
                offered=offered,
                kept=kept,
                shed=shed,
                last=self._batches[-1] if self._batches else None,
                note=self._control.note,
            )

    @property
    def gaps(self) -> list[Gap]:
        """Committed batches that have no entry in the ledger, and that nobody can count again."""
        return self._control.gaps.named

    @property
    def network(self) -> NetworkLearner:
        """What is known of a network, and what its outputs get; for a run that :meth:`Network.start` has made."""
        return cast("NetworkLearner", self._part("network"))

    @property
    def operator(self) -> OperatorLearner:
        """What is known of an operator; for a run that :meth:`Operator.start` has made."""
        return cast("OperatorLearner", self._part("operator"))

    def _part(self, name: str) -> Learner:
        if name not in self._control.learners:
            raise InvalidInputError(f"this run has no part {name!r}; it has {', '.join(self._control.learners)}")
        return self._control.learners[name]

    def watch(self) -> Iterator[Batch]:
        """Yield batches as they finish, until the query stops; raise what it failed with."""
        seen = 0
        while True:
            with self._changed:
                if self._handled == seen and self._thread.is_alive():
                    self._changed.wait(timeout=0.5)
                fresh = list(self._batches)[-(self._handled - seen) :] if self._handled > seen else []
                seen = self._handled
            yield from fresh
            if not fresh and not self._thread.is_alive():
                self._raise_failure()
                return

    def ledger(self, *, last: int | None = None) -> DataFrame:
        """The ledger of all runs on this checkpoint, as a DataFrame, or the ``last`` so many batches of it.

        It holds what was entered when it was made, and can be read for ten minutes: then make a new one.
        """
        return self._control.gaps.ledger.frame(self._spark, last=last)

    @property
    def ledger_path(self) -> str:
        """Folder of the ledger's files."""
        return str(self._control.gaps.ledger.path)

    def await_termination(self, timeout_seconds: float | None = None) -> bool:
        """Wait until the query ends, and raise what it failed with; False if it still runs after the time."""
        self._thread.join(timeout_seconds)
        if self._thread.is_alive():
            return False
        self._raise_failure()
        return True

    def stop(self) -> None:
        """Stop the query and enter what it still finished."""
        self.query.stop()
        self._thread.join()
        self._control.end()

    def _raise_failure(self) -> None:
        if self._control.lost is not None:
            raise self._control.lost
        failure = self.query.exception()
        if failure is not None:
            raise own_error(failure) or failure from failure

    def _remember(self, batch: Batch) -> None:
        with self._changed:
            self._batches.append(batch)
            self._handled += 1
            offered, kept, shed = self._totals
            self._totals = (offered + batch.offered, kept + batch.kept, shed + batch.shed)
            self._changed.notify_all()

    def _repr_html_(self) -> str | None:
        """Draw a network with what its outputs get; notebooks show other runs as text."""
        return self.network.html() if "network" in self._control.learners else None


def require_visible(checkpoint: AnyPath, *, wait_seconds: float = 5.0) -> None:
    """Refuse a checkpoint that Spark has written to and this process does not see."""
    ends_at = time.monotonic() + wait_seconds
    while not folder_at(checkpoint).exists("metadata"):
        if time.monotonic() > ends_at:
            raise NotSupportedError(
                f"the query has started, but its checkpoint {checkpoint} is not seen from here: driver and executors "
                "(with Spark Connect: server and client) must share that folder under this path; mount it here too"
            )
        time.sleep(0.05)


def own_error(failure: Exception) -> PenstockError | None:
    """Find the error that Penstock raised in a worker inside what Spark wrapped around it."""
    cause: Any = failure
    while cause is not None:
        found = re.search(r"penstock\.model\.errors\.(\w+): (.+)", f"{cause}\n{getattr(cause, '_stackTrace', '')}")
        if found is not None:
            kind = getattr(errors, found.group(1), PenstockError)
            error: PenstockError = kind(found.group(2).strip())
            return error
        cause = getattr(cause, "_cause", None)
    return None
