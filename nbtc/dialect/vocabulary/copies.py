"""Words of asynchronous copies: what `nbtc.ptx` has for kernels alone.

A place is an array or a part of one (`tile[n:]`): its first element is where the instruction starts.  (PTX ISA,
"cp.async", "cp.async.bulk", "cp.async.bulk.tensor", "mbarrier", "elect.sync", "setmaxnreg", "barrier.cluster".)
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
def cp_async(dst: Any, src: Any, size: int = 16, dst_offset: Any = 0, src_offset: Any = 0) -> None:
    """Copy `size` bytes (4, 8 or 16, a constant) from global to shared memory, both at multiples of that; sm_80.

    dst_offset, src_offset: elements after the arrays' first ones, of contiguous memory.
    The copy is asynchronous: `cp_async_commit_group` and `cp_async_wait_group` wait for those of this thread.
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
    """Initialise an element of a shared uint64 array as a barrier with `count` arrivals in each phase."""


@_in_kernels
def mbarrier_inval(bar: Any) -> None:
    """Invalidate a barrier: its memory may then be used for something else."""


@_in_kernels
def mbarrier_arrive(bar: Any) -> Any:
    """Arrive at a barrier; returns its state before that, uint64."""


@_in_kernels
def mbarrier_arrive_expect_tx(bar: Any, size: Any) -> Any:
    """Arrive, and let the phase wait for `size` more bytes of bulk copies; returns the state before, uint64.  sm_90."""


@_in_kernels
def mbarrier_try_wait(bar: Any, parity: Any) -> Any:
    """Whether the phase of this parity (0, 1, 0 ...) is complete, after waiting for a while.  sm_90."""


@_in_kernels
def mbarrier_wait(bar: Any, parity: Any) -> None:
    """Wait until the phase of this parity is complete.  sm_90."""


@_in_kernels
def fence_mbarrier_init() -> None:
    """Make barriers that this thread has initialised visible to the asynchronous copies of the cluster.  sm_90."""


@_in_kernels
def cp_async_bulk(dst: Any, src: Any, size: Any, bar: Any) -> None:
    """Copy `size` bytes (a multiple of 16) from global to shared memory; a barrier counts them.  One thread; sm_90."""


@_in_kernels
def cp_async_bulk_store(dst: Any, src: Any, size: Any) -> None:
    """Copy `size` bytes (a multiple of 16) from shared to global memory, in a bulk group.  One thread; sm_90."""


@_in_kernels
def cp_async_bulk_commit_group() -> None:
    """Close a group of this thread's bulk copies to global memory.  sm_90."""


@_in_kernels
def cp_async_bulk_wait_group(n: int, read: bool = False) -> None:
    """Wait until at most the last `n` bulk groups (a constant) of this thread are under way; sm_90.

    read (a constant): wait only until they have read shared memory, which may then be written again.
    """


@_in_kernels
def tma_load(dst: Any, tensor_map: Any, coords: Any, bar: Any, multicast: Any = None) -> None:
    """Copy a box of an array, described by an `nbtc.TensorMap` argument, to shared memory; a barrier counts the bytes.

    dst: shared memory at a multiple of 128 bytes, of 1024 if the map has the swizzle "128B".  coords: a tuple with the
    indices of the box's first element, innermost dimension first.  multicast: a mask of the blocks of the cluster that
    get the box, each at the same place.  One thread; sm_90.
    """


@_in_kernels
def tma_store(tensor_map: Any, coords: Any, src: Any) -> None:
    """Copy a box from shared memory to an array, as part of a bulk group.  One thread; sm_90.

    Threads that wrote the box call `nbtc.wgmma.fence_proxy_async()` before the barrier that they share with the thread
    that copies it.
    """


@_in_kernels
def tma_prefetch(tensor_map: Any) -> None:
    """Fetch a tensor map itself before its first use.  One thread; sm_90."""


@_in_kernels
def elect_sync(mask: Any = 0xFFFFFFFF) -> Any:
    """True for one of the threads of `mask`, which all call it.  sm_90."""


@_in_kernels
def setmaxnreg_inc(n: int) -> None:
    """Wait until each thread of the warp has `n` registers, a constant: 24 to 256, a multiple of 8.  sm_90a.

    All warps of a warpgroup call it, in a kernel with `max_threads`.
    """


@_in_kernels
def setmaxnreg_dec(n: int) -> None:
    """Release registers: each thread of the warp keeps `n`, as in `setmaxnreg_inc`.  sm_90a."""


@_in_kernels
def bar_sync(barrier: Any, threads: int) -> None:
    """Wait at barrier 1 to 15 of the block for `threads` threads, a constant multiple of 32."""


@_in_kernels
def cluster_rank() -> Any:
    """The number of this block in its cluster: int32.  sm_90."""


@_in_kernels
def cluster_arrive() -> None:
    """Arrive at the cluster's barrier; what this thread stored before is seen after `cluster_wait`.  sm_90."""


@_in_kernels
def cluster_wait() -> None:
    """Wait for all threads of the cluster at its barrier.  sm_90."""


@_in_kernels
def mbarrier_arrive_cluster(bar: Any, rank: Any, release: bool = True) -> None:
    """Arrive at the barrier that lies at the same place in block `rank` of the cluster.  sm_90.

    release (a constant): what this thread stored before is seen by those that wait there; False costs an H100 much less
    time, and does where this thread has only read what the others will write.
    """
