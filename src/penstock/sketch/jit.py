"""One way to compile a kernel."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar, cast

import numba

Kernel = TypeVar("Kernel", bound=Callable[..., object])


def compiled(function: Kernel) -> Kernel:
    """Compile a function with numba when it is first called, and keep the machine code on disk.

    Workers of Spark start often: with the cache they load a kernel in milliseconds. The cache of a kernel knows when
    its own file changes, not when a kernel that it calls does: after such a change, ``make clean``.
    """
    return cast(Kernel, numba.njit(cache=True, nogil=True, error_model="numpy")(function))


def inlined(function: Kernel) -> Kernel:
    """Compile a step that is written into every kernel that takes it.

    A call between kernels counts references to each array it passes; in a step of nanoseconds that is most of the time.
    """
    return cast(Kernel, numba.njit(inline="always", error_model="numpy")(function))
