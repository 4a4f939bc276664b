"""Faults that are switched on by a file: a slow or full disk, a clock that is off, a controller that fails.

``install`` puts them into a Python process. As ``spark.python.daemon.module`` this module puts them into every Python
worker of an executor, where plans are made.
"""

from __future__ import annotations

import errno
import os
import time
from pathlib import Path

SLOW_DISK, FULL_DISK, CLOCK, CONTROLLER = "slow-disk", "full-disk", "clock", "controller"
SLOW_SECONDS = 1.0
# Where workers look; the session passes it on to them.
VARIABLE = "PENSTOCK_SWITCHES"


class Switches:
    """Switches in a folder that all processes see; who acts on one leaves a note beside it."""

    def __init__(self, folder: str | Path) -> None:
        self._folder = Path(folder)
        self._folder.mkdir(parents=True, exist_ok=True)

    def turn(self, name: str, value: str | None) -> None:
        """Set a switch, or take it away."""
        if value is None:
            (self._folder / name).unlink(missing_ok=True)
        else:
            aside = self._folder / f".{name}"
            aside.write_text(value)
            aside.replace(self._folder / name)

    def value(self, name: str) -> str | None:
        """What a switch is set to; None if it is not."""
        try:
            return (self._folder / name).read_text()
        except FileNotFoundError:
            return None

    def acted(self, name: str) -> bool:
        """Tell whether any process acted on a switch."""
        return (self._folder / f"{name}.acted").exists()

    def note(self, name: str) -> None:
        """Say that this process acted on a switch."""
        (self._folder / f"{name}.acted").touch()


def install(folder: str | Path) -> Switches:
    """Let this process heed the switches of a folder."""
    switches = Switches(folder)
    fsync, clock = os.fsync, time.time

    def faulty_fsync(descriptor: int) -> None:
        if switches.value(FULL_DISK) is not None:
            switches.note(FULL_DISK)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        if switches.value(SLOW_DISK) is not None:
            switches.note(SLOW_DISK)
            time.sleep(SLOW_SECONDS)
        fsync(descriptor)

    def faulty_clock() -> float:
        ahead_seconds = switches.value(CLOCK)
        if ahead_seconds is None:
            return clock()
        switches.note(CLOCK)
        return clock() + float(ahead_seconds)

    os.fsync = faulty_fsync  # type: ignore[assignment]
    time.time = faulty_clock
    return switches


if __name__ == "__main__":
    from pyspark import daemon

    install(os.environ[VARIABLE])
    daemon.manager()
