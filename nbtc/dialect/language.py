"""The words of kernels: what each means, in the order of the CUDA C++ Programming Guide.

All of them stand for device code: inside `@nbtc.kernel` and `@nbtc.device` functions they are compiled, anywhere else
they raise.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, NoReturn, TypeVar, cast

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


class Index3:
    """Three extents or indices: `.x`, `.y`, `.z` are int32 inside kernels."""

    def __init__(self, name: str, register: str) -> None:
        self.name, self.register = name, register

    def __getattr__(self, axis: str) -> NoReturn:
        if axis in ("x", "y", "z"):
            _outside(f"{self.name}.{axis}")
        raise AttributeError(f"nbtc.{self.name} has .x, .y and .z, not .{axis}")

    def __repr__(self) -> str:
        return f"nbtc.{self.name}"


thread_idx = Index3("thread_idx", "tid")
block_idx = Index3("block_idx", "ctaid")
block_dim = Index3("block_dim", "ntid")
grid_dim = Index3("grid_dim", "nctaid")


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
