"""The words of kernels: what each means, in the order of the CUDA C++ Programming Guide.

All of them stand for device code: inside `@nbtc.kernel` and `@nbtc.device` functions they are compiled, anywhere else
they raise.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, NoReturn, Protocol, TypeVar, cast

from nbtc.errors import CompilerError

F = TypeVar("F", bound=Callable[..., Any])
WHOLE_WARP = 0xFFFFFFFF


def _outside(name: str) -> NoReturn:
    raise CompilerError(
        f"nbtc.{name} exists for the threads of a kernel: call it inside a function under @nbtc.kernel or @nbtc.device"
    )


def _word(function: F) -> F:
    """A function of kernels alone."""

    @wraps(function)
    def outside(*_: Any, **__: Any) -> NoReturn:
        _outside(function.__name__)

    return cast(F, outside)


class Atomic(Protocol):
    """A function that changes an element of an array in one step that no other thread can interrupt, and returns its
    old value.

    index: an integer, or a tuple of one for each dimension.
    """

    def __call__(self, array: Any, index: Any, value: Any) -> Any: ...


def _atomic(name: str, does: str) -> Atomic:
    def word(array: Any, index: Any, value: Any) -> Any: ...

    word.__name__ = word.__qualname__ = name
    word.__doc__ = (
        f"{does}, atomically; returns the old value.  index: an integer, or a tuple of one for each dimension."
    )
    return _word(word)


class Index3:
    """Three extents or indices: `.x`, `.y`, `.z` are int32 inside kernels."""

    name: str
    register: str

    def __init__(self, name: str, register: str) -> None:
        self.name, self.register = name, register

    def __getattr__(self, axis: str) -> NoReturn:
        if axis in ("x", "y", "z"):
            _outside(f"{self.name}.{axis}")
        raise AttributeError(f"nbtc.{self.name} has .x, .y and .z, not .{axis}")

    def __repr__(self) -> str:
        return f"nbtc.{self.name}"


thread_idx: Index3 = Index3("thread_idx", "tid")
block_idx: Index3 = Index3("block_idx", "ctaid")
block_dim: Index3 = Index3("block_dim", "ntid")
grid_dim: Index3 = Index3("grid_dim", "nctaid")


@_word
def grid(ndim: int) -> Any:
    """This thread's place in the whole grid: int64 for ndim 1, a tuple (x, y) or (x, y, z) for 2 and 3."""


@_word
def warp_idx() -> Any:
    """The number of this thread's warp in its block: int32."""


@_word
def lane_id() -> Any:
    """The number of this thread in its warp, 0 to 31: int32."""


@_word
def syncthreads() -> None:
    """Wait for all threads of the block; afterwards all of them see what any of them has stored before."""


@_word
def syncthreads_count(predicate: Any) -> Any:
    """`syncthreads`; returns the number of threads of the block for which `predicate` holds: int32."""


@_word
def syncthreads_and(predicate: Any) -> Any:
    """`syncthreads`; returns whether `predicate` holds for all threads of the block: int32, 0 or 1."""


@_word
def syncthreads_or(predicate: Any) -> Any:
    """`syncthreads`; returns whether `predicate` holds for at least one thread of the block: int32, 0 or 1."""


@_word
def syncwarp(mask: Any = WHOLE_WARP) -> None:
    """Wait for the threads of the warp that are in `mask`; afterwards they see what any of them has stored before."""


@_word
def where(condition: Any, x: Any, y: Any) -> Any:
    """`x` if the condition holds, otherwise `y`, without a branch; of a type that can hold both."""


@_word
def unroll(start: int, stop: int | None = None, step: int = 1) -> Any:
    """A `range` with constant bounds for a loop that is fully unrolled: local arrays that it indexes live in
    registers."""


@_word
def threadfence() -> None:
    """All threads of the device see this thread's stores before the fence before those after it (`membar.gl`)."""


@_word
def threadfence_block() -> None:
    """The same for the threads of the block (`membar.cta`)."""


@_word
def threadfence_system() -> None:
    """The same for all threads of the system (`membar.sys`)."""


@_word
def nanosleep(ns: Any) -> None:
    """Pause this thread for about `ns` nanoseconds and let others run."""


@_word
def shared(shape: Any, format: Any, align: Any = None) -> Any:
    """An array in the block's shared memory, not initialised.

    shape: constants, or None for the dynamic part, whose size the launch sets (`k[grid, block, stream, shared_bytes]`);
    there is only one, and every shared(None, ...) begins at its start.  format: a number format or a dtype.  align:
    bytes, a constant power of two (default: 16).
    """


@_word
def local(shape: Any, format: Any) -> Any:
    """An array that belongs to this thread, not initialised; small ones with constant indices live in registers."""


atomic_add: Atomic = _atomic("atomic_add", "Add to an element")
atomic_sub: Atomic = _atomic("atomic_sub", "Subtract from an element")
atomic_and: Atomic = _atomic("atomic_and", "Set an integer element to its bitwise and with `value`")
atomic_or: Atomic = _atomic("atomic_or", "Set an integer element to its bitwise or with `value`")
atomic_xor: Atomic = _atomic("atomic_xor", "Set an integer element to its bitwise exclusive or with `value`")
atomic_min: Atomic = _atomic("atomic_min", "Set an element to the minimum of it and `value`, ignoring a NaN")
atomic_max: Atomic = _atomic("atomic_max", "Set an element to the maximum of it and `value`, ignoring a NaN")
atomic_inc: Atomic = _atomic("atomic_inc", "Count an unsigned element up, from `value` on to 0")
atomic_dec: Atomic = _atomic("atomic_dec", "Count an unsigned element down, from 0 or above `value` to `value`")
atomic_exch: Atomic = _atomic("atomic_exch", "Set an element")


@_word
def atomic_cas(array: Any, index: Any, expected: Any, value: Any) -> Any:
    """Set an element to `value` if its bits are those of `expected`, atomically; returns the old value.

    index: an integer, or a tuple of one for each dimension.
    """
