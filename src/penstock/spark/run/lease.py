"""The lease on a checkpoint: of two drivers, only the one that started last may write beside it."""

from __future__ import annotations

import json
import logging
import os
import platform
import time
from collections.abc import Callable

from penstock.model.errors import LeaseLostError
from penstock.spark.store.folder import folder_at
from penstock.spark.store.paths import AnyPath

LOGGER = logging.getLogger(__name__)

ENDING = ".json"
# A driver renews its guidance every second. One that was heard of in this time may be alive, and is given a moment to
# see that it was relieved: until then both would commit, and Spark would stop either of them.
HEARD_SECONDS = 3.0
WAIT_SECONDS = 10.0
WAIT_STEP_SECONDS = 0.05


class Lease:
    """A number that is higher than that of every driver before; whoever holds the highest may write.

    Each number is a file in ``epochs/``, created atomically, so two drivers that start at once get two numbers. The
    highest file is never removed: a number is given once. Made by :meth:`take`.
    """

    def __init__(self, path: AnyPath, epoch: int) -> None:
        self.path = path
        self.epoch = epoch
        self._folder = folder_at(path)

    @staticmethod
    def take(path: AnyPath, *, heard_at: Callable[[], float | None]) -> Lease:
        """Take the next number, and let a driver that still runs see that first.

        ``heard_at`` tells when the driver before gave a sign of life. One that crashed longer ago than a few seconds is
        not waited for.
        """
        folder = folder_at(path)
        before = max(folder.ids(suffix=ENDING), default=0)
        epoch, text = before, json.dumps({"by": this_driver(), "released": False})
        while epoch == before or max(folder.ids(suffix=ENDING), default=0) != epoch:
            # A number that came free because others went on from it is no good: the highest counts.
            epoch = max([epoch, *folder.ids(suffix=ENDING)]) + 1
            while not folder.create(f"{epoch}{ENDING}", text):
                epoch += 1
        lease = Lease(path, epoch)
        if before:
            lease._wait_for(before, heard_at)
        for number in folder.ids(suffix=ENDING):
            if number < epoch:
                folder.remove(f"{number}{ENDING}")
        return lease

    def check(self) -> None:
        """Raise :class:`LeaseLostError` if another driver has started since; one look at a small folder."""
        newest = max(self._folder.ids(suffix=ENDING), default=0)
        if newest == self.epoch:
            return
        by, _ = self._read(newest)
        raise LeaseLostError(
            f"this driver ({this_driver()}, epoch {self.epoch}) has lost the checkpoint (see {self.path}): "
            f"{by or 'another driver'} has started the same query there since (epoch {newest}). Two drivers would plan "
            "and count the same batches, so this one has stopped its query and writes nothing more. Do not start it "
            "again beside the other one; a query of its own needs a checkpoint of its own"
        )

    def release(self) -> None:
        """Say that this driver writes nothing more, so that the next one need not wait for it."""
        self._folder.replace(f"{self.epoch}{ENDING}", json.dumps({"by": this_driver(), "released": True}))

    def _wait_for(self, before: int, heard_at: Callable[[], float | None]) -> None:
        """Wait until the driver before has let go, as long as it gives signs of life."""
        ends_at = time.monotonic() + WAIT_SECONDS
        while time.monotonic() < ends_at:
            by, released = self._read(before)
            if released:
                return
            heard = heard_at()
            # Clocks may differ: what was heard in the time to come is no sign of life either.
            if heard is None or abs(time.time() - heard) > HEARD_SECONDS:
                break
            time.sleep(WAIT_STEP_SECONDS)
        LOGGER.info("%s did not stop in good order; if it still runs, it stops now", by or "the driver before")

    def _read(self, epoch: int) -> tuple[str, bool]:
        """Read who holds a number, and whether it was let go; files that are gone or half written say nothing."""
        try:
            fields = json.loads(self._folder.read(f"{epoch}{ENDING}") or "{}")
            return str(fields.get("by", "")), bool(fields.get("released", False))
        except ValueError:
            return "", False


def this_driver() -> str:
    """Name this process: host and number."""
    return f"{platform.node()}:{os.getpid()}"
