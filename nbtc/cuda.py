"""CUDA on the CPU with a GPU's bits, without a GPU: CUDA C++ compiled to programs, and programs of numba.cuda."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any

from nbtc.compiler.threads import thread_count
from nbtc.executor.profile.result import Profile
from nbtc.executor.program import Module, load
from nbtc.interop.extras import need
from nbtc.interop.nvrtc import source_of, to_ptx
from nbtc.interop.signatures import parameter_names, pointees

__all__ = ["compile", "emulate", "emulated", "install", "register"]


def compile(
    cuda_source: str | os.PathLike[str],
    arch: str | int = "sm_90a",
    options: Sequence[str] = (),
    *,
    names: Sequence[str] = (),
    filename: str | None = None,
) -> Module:
    """A module of CUDA C++, compiled by NVRTC (extra `nbtc[nvrtc]`; no GPU, no CUDA toolkit).

    cuda_source: the text, or the path of a file (a `pathlib.Path`, or a string of one line that ends in .cu, .cuh,
    .cpp, .h or .hpp), whose folder is searched for headers.  arch: the architecture that the compiler may use and whose
    arithmetic the kernels have ("sm_80", "sm_90a", "A100").  options: NVRTC's options, such as "-DTILE=64" or
    "--fmad=false"; CUDA's headers are found without.  names: instances of templates to compile, such as "axpy<float>";
    the module has kernels of these names.  filename: what messages call the source (default: the file's path as given,
    or "source.cu").

    If several NVRTCs are installed, the newest is taken; `nbtc info` names it.  Raises ProgramError with the compiler's
    messages, SourceError if there is no such file, MissingExtraError if the compiler is not installed.

    >>> import numpy as np, nbtc
    >>> source = 'extern "C" __global__ void twice(float *x) { x[threadIdx.x] *= 2; }'
    >>> x = np.arange(4, dtype=np.float32)
    >>> nbtc.cuda.compile(source)["twice"][1, 4](x)                          # doctest: +SKIP
    >>> x.tolist()                                                          # doctest: +SKIP
    [0.0, 2.0, 4.0, 6.0]
    """
    source = source_of(cuda_source)
    include = [f"--include-path={folder}" for folder in source.folders]
    made = to_ptx(source.text, arch, (*include, *options), tuple(names), filename or source.name)
    module = load(made.text, arch)
    module.names.update(made.names)
    module.parameters.update(parameter_names(source.text, module.kernels))
    module.pointees.update(pointees(source.text, module.kernels))
    return module


def emulated(
    arch: str = "sm_90", *, threads: int | None = None, checked: bool = False, profiles: list[Profile] | None = None
) -> AbstractContextManager[Any]:
    """A context in which programs of numba.cuda run on the CPU (extra `nbtc[cuda]`; no GPU, no driver).

    Everything of numba-cuda works as on a GPU of `arch`: `cuda.jit` kernels, `to_device`, `device_array`, streams,
    events, shared, local and constant arrays, atomics, cooperative groups, `reduce`, `vectorize`; numba-cuda's own
    compiler makes the PTX.  Host arrays are passed without copies.  The device of each architecture lasts as long as
    the process, and so do its arrays; outside the context they can be kept, but not used.

    threads: CPU threads for the blocks of a grid.  checked: whether every launch looks for hazards, as `k.checked` of a
    program does.  profiles: a list that gets a `Profile` of every launch.

    The context counts for the whole process.  It replaces Numba's CUDA simulator: it has tensor cores, warps, memory
    spaces and the bits of arithmetic, and code runs compiled.  Raises ArchError for unknown architectures and
    MissingExtraError if numba-cuda is not installed; a bad access raises ProgramError with the place in the kernel.

    >>> import numpy as np, nbtc
    >>> from numba import cuda                                      # doctest: +SKIP
    >>> @cuda.jit                                                   # doctest: +SKIP
    ... def twice(x):
    ...     i = cuda.grid(1)
    ...     if i < x.size:
    ...         x[i] *= 2
    >>> with nbtc.cuda.emulated("sm_80"):                           # doctest: +SKIP
    ...     x = cuda.to_device(np.arange(4.0))
    ...     twice[1, 32](x)
    ...     print(x.copy_to_host())
    [0. 2. 4. 6.]
    """
    register()
    from nbtc.interop.numba_cuda import active

    return active.emulated(arch, threads=threads, checked=checked, profiles=profiles)


def emulate(kernel: Any, arch: str = "sm_90", *, threads: int | None = None) -> Any:
    """A kernel of `numba.cuda` that runs on the CPU whenever it is launched, with the same launch syntax.

    kernel: what `@cuda.jit` returned.  The result takes NumPy arrays, which it writes in place, and arrays of an
    emulated device of the same `arch`; `.on("sm_80")` is the same kernel with another architecture's arithmetic.
    Raises FormatError for anything but a kernel, and what `emulated` raises.

    >>> import numpy as np, nbtc
    >>> twice = nbtc.cuda.emulate(kernel)                           # doctest: +SKIP
    >>> x = np.arange(4.0)                                          # doctest: +SKIP
    >>> twice[1, 32](x)                                             # doctest: +SKIP
    """
    register()
    from nbtc.interop.numba_cuda.program import Emulated

    return Emulated(kernel, arch, threads)


def install(arch: str | None = None, *, checked: bool = False, threads: int | None = None) -> None:
    """Give this process a GPU: nbtc's CUDA driver, for cuda.core, numba-cuda, PyCUDA, Triton and whatever else asks.

    Call it before they are imported; `nbtc run python ...` does the same for a whole process.  (CUDA Driver API; CUDA
    Runtime API.)

    arch: a GPU, such as "H200", or an architecture (default: NBTC_ARCH, otherwise "sm_90", an H100).  checked: whether
    every launch is watched for races and bad accesses.  threads: CPU threads for the blocks of a grid.

    A kernel's fault is printed with its line, and the client gets a CUDA error.  Only for Linux on x86-64: raises
    DeviceError elsewhere, and if a CUDA library is loaded already; OptionError if the process has another GPU;
    ArchError for unknown ones.

    >>> import nbtc
    >>> nbtc.cuda.install("H100")                                   # doctest: +SKIP
    >>> from numba import cuda                                      # doctest: +SKIP
    >>> cuda.get_current_device().compute_capability                # doctest: +SKIP
    (9, 0)
    """
    from nbtc.libcuda.inprocess import install as load_libraries

    if threads is not None:
        thread_count(threads)
    load_libraries(arch, checked, threads)


def register() -> None:
    """Let kernels of `@numba.cuda.jit` call nbtc's functions: `nbtc.wmma`, `ptx`, `wgmma`, `warp`, `dpx`.

    If nbtc is installed, numba-cuda does this by itself when it compiles its first kernel (entry point
    `numba_cuda_extensions`), and so do `emulated` and `emulate`; call it if nbtc's source is only on the path.  The
    functions take what they take in kernels of `nbtc.kernel`: registers belong to a thread, as tuples or local arrays;
    mnemonics, layouts and options are constants.  On a GPU numba-cuda compiles for its architecture, "sm_90a" on
    Hopper; `cuda.compile_ptx(..., cc=(9, 0, "a"))` names another.  PTX that is newer than the driver is given the
    newest version that the driver knows.  Raises MissingExtraError if numba-cuda is not installed.

    >>> import numpy as np, nbtc
    >>> from numba import cuda                                      # doctest: +SKIP
    >>> @cuda.jit                                                   # doctest: +SKIP
    ... def butterfly(x, out):
    ...     out[cuda.laneid] = nbtc.warp.shfl_xor_sync(0xFFFFFFFF, x[cuda.laneid], 1)
    >>> nbtc.cuda.register()                                        # doctest: +SKIP
    """
    need("numba_cuda", "cuda")
    from nbtc.interop.numba_cuda import stubs

    stubs.register()
