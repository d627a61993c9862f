"""Kernels of CuTe DSL on the CPU with a GPU's bits, from their Python source (extra `nbtc[cute]`).

CuTe DSL compiles them to PTX and host code; nothing of that needs a GPU or a driver.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from nbtc.interop.extras import need

need("cutlass", "cute")

from nbtc.cute.emulated import Emulated  # noqa: E402
from nbtc.cute.tensors import tensor as _tensor  # noqa: E402

__all__ = ["Emulated", "emulate", "tensor"]


def emulate(
    compiled: Any, arch: str | int | None = None, *, threads: int | None = None, memory: Sequence[Any] = ()
) -> Emulated:
    """A function of CuTe DSL that runs on the CPU whenever it is called, with the arguments that CuTe DSL takes.

    compiled: what `cute.compile(..., options="--keep-ptx --gpu-arch sm_90a")` returned.  arch: the architecture whose
    arithmetic kernels have ("sm_80"; default: the one compiled for).  threads: CPU threads for the blocks of a grid.
    memory: arrays that bare pointers lead to.

    The result takes NumPy arrays and torch's CPU tensors, which its kernels write in place, tensors of
    `nbtc.cute.tensor`, numbers, and streams, of which there is only one.  Host code runs as compiled: it computes
    grids, makes tensor maps and launches kernels, each of which has ended when its launch returns.  Kernels may touch
    the memory of tensors and `memory`; anything else raises ProgramError with the line.  `emulate(f).checked(...)` also
    watches for hazards, as `k.checked` of a program does.

    Raises OptionError for a function compiled without its PTX, ShapeError for a tensor with other dynamic extents than
    compiled for, UnsupportedInstructionError for host code that calls other functions of the CUDA runtime, and for
    tensor maps of im2col copies; MissingExtraError if CuTe DSL is not installed.

    >>> f = cute.compile(add, a, b, c, options="--keep-ptx --gpu-arch sm_90a")  # doctest: +SKIP
    >>> nbtc.cute.emulate(f)(x, y, z)                                           # doctest: +SKIP
    """
    return Emulated(compiled, arch, threads, memory)


def tensor(x: Any, *, assumed_align: int | None = None) -> Any:
    """A host array as a tensor of CuTe DSL in global memory, to compile for and to call with.

    Like `cute.runtime.from_dlpack`, for which host arrays are another kind of memory.  bfloat16, float8_e4m3fn and
    float8_e5m2 of ml_dtypes keep their types.

    assumed_align: bytes that the address is a multiple of (default: an element's size); the compiler relies on it.

    >>> nbtc.cute.tensor(np.zeros((4, 8), np.float16), assumed_align=16)        # doctest: +SKIP
    """
    return _tensor(x, assumed_align)
