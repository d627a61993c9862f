"""Triton kernels on the CPU with a GPU's bits, from their Python source (extra `nbtc[triton]`).

Triton itself compiles them to PTX; nothing of it needs a GPU, and nothing needs torch.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

from nbtc.executor.launch.process_wide import launches
from nbtc.executor.profile.result import Profile
from nbtc.interop.extras import need

need("triton", "triton")

from nbtc.triton import active  # noqa: E402
from nbtc.triton.tensors import Tensor  # noqa: E402
from nbtc.triton.tensors import tensor as _tensor  # noqa: E402

__all__ = ["emulated", "tensor"]


def emulated(
    arch: str | int = "sm_90",
    *,
    threads: int | None = None,
    autotune: str = "time",
    torch_cuda: bool = False,
    checked: bool = False,
    profiles: list[Profile] | None = None,
) -> AbstractContextManager[Any]:
    """A context in which `@triton.jit` kernels run on the CPU, as `arch` computes them.

    Kernels take NumPy arrays (ml_dtypes for bf16 and fp8) and torch's CPU tensors, which they write in place.  Launch
    syntax, `autotune`, `heuristics`, `warmup`, device functions and tensor descriptors are Triton's own.

    arch: the architecture that Triton compiles for and whose bits tensor cores have, "sm_80", "sm_90", ...; for
    Triton's caches and the autotuner's choices each is a device of its own.  threads: CPU threads for the programs of a
    grid (default: as many as there are).  autotune: "time" runs and times every configuration of `triton.autotune`, as
    on a GPU; "first" takes the first one that pruning leaves and the device can run, compiles none after it, and never
    resets the arguments of a tuner.  torch_cuda: whether code that asks torch for a GPU, as libraries of kernels and
    their tests do, finds one: tensors on "cuda" are the CPU's, but `x.is_cuda` and `x.device` say otherwise,
    `torch.cuda` has one device of the architecture with one stream, and functions that torch would compile run
    uncompiled; all of the thread's tensors count as on the GPU, `x.cpu()` is a copy and `x.cuda()` the tensor itself.
    checked: whether every launch looks for hazards, as `k.checked` of a program does.  profiles: a list that gets a
    `Profile` of every launch, in their order.

    Programs may touch the memory that their arguments belong to, whole allocations as on a GPU; other accesses raise
    ProgramError.  If an argument holds addresses (a table of pointers in an int64 array), programs may also touch the
    process's mappings that those lie in; on hosts that do not list them accesses are then not checked.  Kernels that
    make descriptors on the device need no `triton.set_allocator`.  The context counts for the whole process, all its
    threads.  Raises ArchError for an architecture without Triton, OptionError for another `autotune`,
    MissingExtraError if Triton, or torch for `torch_cuda`, is not installed.

    >>> import numpy as np, nbtc, triton, triton.language as tl      # doctest: +SKIP
    >>> @triton.jit                                                 # doctest: +SKIP
    ... def double(x, n, BLOCK: tl.constexpr):
    ...     i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    ...     tl.store(x + i, 2 * tl.load(x + i, mask=i < n), mask=i < n)
    >>> x = np.arange(5, dtype=np.float32)                          # doctest: +SKIP
    >>> with nbtc.triton.emulated("sm_90"):                         # doctest: +SKIP
    ...     double[(1,)](x, 5, BLOCK=128)
    >>> x.tolist()                                                  # doctest: +SKIP
    [0.0, 2.0, 4.0, 6.0, 8.0]
    """
    return active.emulated(arch, threads, autotune, torch_cuda, launches(checked, profiles))


def tensor(x: Any) -> Tensor:
    """A NumPy array with the methods of a tensor (`data_ptr`, `stride`, `clone`, ...), for launch code that calls them.

    It shares the array's memory and is an array itself.

    >>> import numpy as np, nbtc                                    # doctest: +SKIP
    >>> nbtc.triton.tensor(np.zeros((3, 4), np.float32)).stride(0)  # doctest: +SKIP
    4
    """
    found: Tensor = _tensor(x)
    return found
