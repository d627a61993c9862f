"""CUDA C++ as programs: compiled to PTX without a GPU, run on the CPU with a GPU's bits."""

from __future__ import annotations

from collections.abc import Sequence

from nbtc.executor.program import Module, load
from nbtc.interop.nvrtc import to_ptx

__all__ = ["compile"]


def compile(
    cuda_source: str,
    arch: str = "sm_90a",
    options: Sequence[str] = (),
    *,
    names: Sequence[str] = (),
    filename: str = "source.cu",
) -> Module:
    """A module of CUDA C++, compiled by NVRTC (extra `nbtc[nvrtc]`; no GPU, no CUDA toolkit).

    arch: what the compiler may use, and whose arithmetic the kernels have ("sm_80", "sm_90a").  options: of NVRTC, such
    as "-DTILE=64" or "--fmad=false"; CUDA's headers are found.  names: instances of templates that the module shall
    hold, such as "axpy<float>": kernels under these names.  filename: what messages call the source.  Raises
    ProgramError with the compiler's messages, MissingExtraError where the compiler is not installed.

    >>> import numpy as np, nbtc
    >>> source = 'extern "C" __global__ void twice(float *x) { x[threadIdx.x] *= 2; }'
    >>> x = np.arange(4, dtype=np.float32)
    >>> nbtc.cuda.compile(source)["twice"][1, 4](x)                          # doctest: +SKIP
    >>> x.tolist()                                                          # doctest: +SKIP
    [0.0, 2.0, 4.0, 6.0]
    """
    made = to_ptx(cuda_source, arch, tuple(options), tuple(names), filename)
    module = load(made.text, arch)
    module.names.update(made.names)
    return module
