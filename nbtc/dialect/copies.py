"""Words of asynchronous copies: what `nbtc.ptx` has for kernels alone.

A place is an array or a part of one (`tile[n:]`): its first element is where the instruction starts.  (PTX ISA,
"cp.async", "cp.async.bulk", "mbarrier".)
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, NoReturn, TypeVar, cast

from nbtc.errors import CompilerError

F = TypeVar("F", bound=Callable[..., Any])


def _in_kernels(function: F) -> F:
    """A function of kernels alone."""

    @wraps(function)
    def outside(*_: Any, **__: Any) -> NoReturn:
        raise CompilerError(f"nbtc.ptx.{function.__name__} exists for the threads of a kernel: call it in one")

    return cast(F, outside)


@_in_kernels
def cp_async(dst: Any, src: Any, size: int = 16) -> None:
    """Copy `size` bytes (4, 8 or 16, a constant) from global to shared memory, both at multiples of that; sm_80.

    It runs on its own: `cp_async_commit_group` and `cp_async_wait_group` tell when it is done, for this thread.
    """


@_in_kernels
def cp_async_commit_group() -> None:
    """Close a group of this thread's copies."""


@_in_kernels
def cp_async_wait_group(n: int) -> None:
    """Wait until at most the last `n` groups (a constant) of this thread's copies are under way."""


@_in_kernels
def cp_async_wait_all() -> None:
    """Wait for all copies of this thread."""


@_in_kernels
def mbarrier_init(bar: Any, count: Any) -> None:
    """Make a barrier for `count` arrivals a phase of an element of a shared uint64 array."""


@_in_kernels
def mbarrier_inval(bar: Any) -> None:
    """End the life of a barrier: its memory may be used for something else."""


@_in_kernels
def mbarrier_arrive(bar: Any) -> Any:
    """Arrive at a barrier; its state before, uint64."""


@_in_kernels
def mbarrier_arrive_expect_tx(bar: Any, size: Any) -> Any:
    """Arrive, and let the phase wait for `size` more bytes of bulk copies; the state before, uint64.  sm_90."""


@_in_kernels
def mbarrier_try_wait(bar: Any, parity: Any) -> Any:
    """Whether the phase of this parity (0, 1, 0 ...) is over, after waiting for a while.  sm_90."""


@_in_kernels
def mbarrier_wait(bar: Any, parity: Any) -> None:
    """Wait until the phase of this parity is over.  sm_90."""


@_in_kernels
def fence_mbarrier_init() -> None:
    """Barriers that this thread has made are seen by the asynchronous copies of the cluster.  sm_90."""


@_in_kernels
def cp_async_bulk(dst: Any, src: Any, size: Any, bar: Any) -> None:
    """Copy `size` bytes (a multiple of 16) from global to shared memory; a barrier counts them.  One thread; sm_90."""
