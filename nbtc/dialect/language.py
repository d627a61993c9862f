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
    """A word that changes an element of an array, at once for all other threads, and returns the element before.

    index: an integer, or a tuple of one for each dimension.
    """

    def __call__(self, array: Any, index: Any, value: Any) -> Any: ...


def _atomic(name: str, does: str) -> Atomic:
    def word(array: Any, index: Any, value: Any) -> Any: ...

    word.__name__ = word.__qualname__ = name
    word.__doc__ = f"{does}, at once for all other threads; the element before.  index: an integer, or a tuple."
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
    """Wait for all threads of the block; what they stored before is seen by all."""


@_word
def syncthreads_count(predicate: Any) -> Any:
    """`syncthreads`, and for how many threads of the block `predicate` holds: int32."""


@_word
def syncthreads_and(predicate: Any) -> Any:
    """`syncthreads`, and whether `predicate` holds for all threads of the block: int32, 0 or 1."""


@_word
def syncthreads_or(predicate: Any) -> Any:
    """`syncthreads`, and whether `predicate` holds for some thread of the block: int32, 0 or 1."""


@_word
def syncwarp(mask: Any = WHOLE_WARP) -> None:
    """Wait for the threads of the warp that are in `mask`; what they stored before is seen by them."""


@_word
def where(condition: Any, x: Any, y: Any) -> Any:
    """`x` where the condition holds, else `y`, as one value of the type that both fit; no branch."""


@_word
def unroll(start: int, stop: int | None = None, step: int = 1) -> Any:
    """`range` of constants for a loop that is unrolled whole: local arrays that its index chooses from live in
    registers."""


@_word
def threadfence() -> None:
    """This thread's stores before are seen by all threads of the device before its stores after (`membar.gl`)."""


@_word
def threadfence_block() -> None:
    """The same for the threads of the block (`membar.cta`)."""


@_word
def threadfence_system() -> None:
    """The same for all threads of the system (`membar.sys`)."""


@_word
def nanosleep(ns: Any) -> None:
    """Let other threads go first for about `ns` nanoseconds."""


@_word
def shared(shape: Any, format: Any, align: Any = None) -> Any:
    """An array in the block's shared memory, not initialised.

    shape: constants, or None for the dynamic part, whose size the launch gives (`k[grid, block, stream, shared_bytes]`)
    and of which there is one: every shared(None, ...) begins at its start.  format: a number format or a dtype.  align:
    bytes, a constant power of two (default: 16).
    """


@_word
def local(shape: Any, format: Any) -> Any:
    """An array of this thread's own, not initialised; small ones with constant indices live in registers."""


atomic_add: Atomic = _atomic("atomic_add", "Add to an element")
atomic_sub: Atomic = _atomic("atomic_sub", "Subtract from an element")
atomic_and: Atomic = _atomic("atomic_and", "And of an integer element's bits with `value`'s")
atomic_or: Atomic = _atomic("atomic_or", "Or of an integer element's bits with `value`'s")
atomic_xor: Atomic = _atomic("atomic_xor", "Exclusive or of an integer element's bits with `value`'s")
atomic_min: Atomic = _atomic("atomic_min", "The lesser of an element and `value` (a number rather than a NaN)")
atomic_max: Atomic = _atomic("atomic_max", "The greater of an element and `value` (a number rather than a NaN)")
atomic_inc: Atomic = _atomic("atomic_inc", "Count an unsigned element up, to 0 after `value`")
atomic_dec: Atomic = _atomic("atomic_dec", "Count an unsigned element down, to `value` after 0 or from above it")
atomic_exch: Atomic = _atomic("atomic_exch", "Set an element")


@_word
def atomic_cas(array: Any, index: Any, expected: Any, value: Any) -> Any:
    """Set an element if its bits are `expected`'s; the element before."""
