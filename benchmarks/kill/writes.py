"""Strike at a write: every change of a file under some folders is a place where a process can fail or die.

``Writes.install`` wraps the few functions by which Python changes files, so that places need no list: a place is a
process (driver or worker), a file with its numbers taken out, and what is done to it. As ``spark.python.daemon.module``
this module does the same in every Python worker.
"""

from __future__ import annotations

import builtins
import errno
import fcntl
import io
import json
import os
import re
import shutil
import signal
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa

# Where workers look for what is armed, and which process group dies with a driver that is really killed.
VARIABLE, DRIVER = "PENSTOCK_WRITES", "PENSTOCK_DRIVER"
Killed = SystemExit
BEFORE, AFTER, TORN = "before", "after", "torn"
RAISE, KILL = "raise", "kill"
# What may happen, by moment. A line is torn when a process dies, or the disk is full, in the middle of it.
ALL: Mapping[str, Sequence[str]] = {BEFORE: (RAISE, KILL), AFTER: (RAISE, KILL), TORN: (RAISE, KILL)}


class Writes:
    """What is armed, what was struck and who is dead, in a folder that all processes see.

    A strike is a place, a moment (before or after the write, or in the middle of a line) and what happens. Each is done
    once; after one nothing else is struck until the next :meth:`arm`.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        self._opened: dict[int, tuple[str, str]] = {}
        self._restore: list[tuple[Any, str, Any]] = []
        self._role = "driver"

    def arm(
        self, roots: Sequence[str | Path], *, strikes: Mapping[str, Sequence[str]] = ALL, hidden: bool = True
    ) -> None:
        """Strike at the next write below the roots that was not struck before; files are ``hidden`` until renamed."""
        with self._state() as state:
            state |= {"roots": [str(root) for root in roots], "strikes": dict(strikes), "hidden": hidden}
            state |= {"struck": None, "dead": False}

    def forget(self) -> None:
        """Begin anew: no write was struck yet."""
        with self._state() as state:
            state |= {"done": []}

    def disarm(self) -> None:
        """Let every process write again, and strike no more."""
        with self._state() as state:
            state |= {"roots": [], "struck": None, "dead": False}

    @property
    def struck(self) -> str | None:
        """The strike since the last arming."""
        with self._state() as state:
            return state.get("struck")

    @property
    def killed(self) -> bool:
        """Tell whether the driver died since the last arming."""
        with self._state() as state:
            return bool(state.get("dead"))

    @property
    def done(self) -> list[str]:
        """All strikes so far."""
        with self._state() as state:
            return list(state.get("done", ()))

    def install(self, *, role: str = "driver") -> None:
        """Wrap what changes files in this process."""
        self._role = role
        for module in (io, builtins):
            self._replace(module, "open", self._open)
        self._replace(os, "fsync", self._fsync)
        for name in ("link", "replace", "rename"):
            self._replace(os, name, self._two(name, getattr(os, name)))
        for name in ("unlink", "remove", "rmdir"):
            self._replace(os, name, self._one("remove", getattr(os, name)))
        self._replace(shutil, "rmtree", self._remove_tree)
        self._replace(pa, "OSFile", self._arrow_file)

    def uninstall(self) -> None:
        """Leave this process as it was."""
        while self._restore:
            setattr(*self._restore.pop())

    def _replace(self, owner: Any, name: str, wrapped: Any) -> None:
        self._restore.append((owner, name, getattr(owner, name)))
        setattr(owner, name, wrapped)

    def _open(self, file: Any, mode: str = "r", *more: Any, **options: Any) -> Any:
        if isinstance(file, int) or not set(mode) & set("wax+"):
            return _OPEN(file, mode, *more, **options)
        opened = self._guard("open", file, lambda: _OPEN(file, mode, *more, **options), undo=lambda made: made.close())
        self._opened[opened.fileno()] = os.fspath(file), mode
        return opened

    def _arrow_file(self, path: Any, mode: str = "r", *more: Any) -> Any:
        if "w" not in mode:
            return _ARROW_FILE(path, mode, *more)
        return self._guard("open", path, lambda: _ARROW_FILE(path, mode, *more), undo=lambda made: made.close())

    def _fsync(self, descriptor: int) -> None:
        path, mode = self._opened.get(descriptor, (None, ""))
        if path is None:
            return _FSYNC(descriptor)
        if "a" in mode and (place := self._place("fsync", path)):
            self._heed(place, TORN, lambda: _tear(path))
        return self._guard("fsync", path, lambda: _FSYNC(descriptor))

    def _remove_tree(self, path: Any, ignore_errors: bool = False, **options: Any) -> None:
        try:
            self._guard("remove", path, lambda: _RMTREE(path, ignore_errors, **options))
        except OSError:
            if not ignore_errors:
                raise

    def _two(self, name: str, act: Callable[..., Any]) -> Callable[..., Any]:
        def change(source: Any, target: Any, **options: Any) -> Any:
            return self._guard(name, target, lambda: act(source, target, **options))

        return change

    def _one(self, name: str, act: Callable[..., Any]) -> Callable[..., Any]:
        def change(path: Any, *more: Any, **options: Any) -> Any:
            return self._guard(name, path, lambda: act(path, *more, **options))

        return change

    def _guard(
        self, operation: str, path: Any, act: Callable[[], Any], undo: Callable[[Any], None] | None = None
    ) -> Any:
        place = self._place(operation, path)
        if place is None:
            return act()
        self._heed(place, BEFORE)
        done = act()
        try:
            self._heed(place, AFTER)
        except BaseException:
            if undo is not None:
                undo(done)
            raise
        return done

    def _place(self, operation: str, path: Any) -> str | None:
        """Name a write; None if it is not one of a folder that is armed."""
        named = os.fspath(path)
        if not isinstance(named, str) or not os.path.isabs(named):
            return None
        with self._state() as state:
            roots, hidden = state.get("roots", ()), state.get("hidden", True)
        root = next((root for root in roots if named.startswith(f"{root}/")), None)
        if root is None or (not hidden and os.path.basename(named).startswith(".")):
            return None
        below = re.sub(r"\d+", "N", re.sub(r"[0-9a-f]{8}[0-9a-f-]{7,}", "H", os.path.relpath(named, Path(root).parent)))
        return f"{self._role}: {operation} {below}"

    def _heed(self, place: str, moment: str, first: Callable[[], None] = lambda: None) -> None:
        with self._state() as state:
            dead = state.get("dead", False)
            how = None if dead or state.get("struck") else self._next(state, place, moment)
            if how is not None:
                strike = f"{how} {moment} {place}"
                state |= {"struck": strike, "dead": how == KILL, "done": [*state.get("done", ()), strike]}
        if how is not None:
            first()
        if how == RAISE:
            raise OSError(errno.EIO, f"injected {moment} {place}")
        if dead or how == KILL:
            self._die()

    @staticmethod
    def _next(state: Mapping[str, Any], place: str, moment: str) -> str | None:
        hows = state.get("strikes", {}).get(moment, ())
        return next((how for how in hows if f"{how} {moment} {place}" not in state.get("done", ())), None)

    def _die(self) -> None:
        if driver := os.environ.get(DRIVER):
            os.killpg(int(driver), signal.SIGKILL)
        if self._role == "worker":
            # A worker is in a group of its own.
            os.kill(os.getpid(), signal.SIGKILL)
        thread = threading.current_thread()
        if thread is threading.main_thread() or thread.name.startswith("penstock"):
            # Ends a thread silently, and nothing that catches exceptions goes on.
            raise Killed
        # Called by Java, which would wait for an answer.
        raise OSError(errno.EIO, "this process is dead")

    @contextmanager
    def _state(self) -> Iterator[dict[str, Any]]:
        descriptor = os.open(self.folder / "state.json", os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            text = os.pread(descriptor, 1 << 20, 0).decode()
            state: dict[str, Any] = json.loads(text) if text else {}
            before = json.dumps(state)
            yield state
            if (after := json.dumps(state)) != before:
                # Longer or shorter, never half: whoever dies here has not written anything yet.
                os.pwrite(descriptor, after.encode().ljust(len(text.encode())), 0)
        finally:
            os.close(descriptor)


_OPEN, _FSYNC, _RMTREE, _ARROW_FILE = io.open, os.fsync, shutil.rmtree, pa.OSFile


def _tear(path: str) -> None:
    """Leave half of the last line."""
    data = Path(path).read_bytes()
    last = data.rstrip(b"\n").rfind(b"\n") + 1
    os.truncate(path, last + (len(data) - last) // 2)


if __name__ == "__main__":
    from pyspark import daemon

    from penstock.spark.daemon import preload

    # Workers die often here, and each would import the kernels anew.
    preload()
    Writes(os.environ[VARIABLE]).install(role="worker")
    daemon.manager()
