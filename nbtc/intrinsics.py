"""Fast functions of CUDA C++ under their own names, `__expf` to `__fdividef`: the special function unit in kernels.

Each is what CUDA's headers make of it (CUDA Math API, "Single Precision Intrinsics", without `-use_fast_math`): one or
two approximate instructions and products rounded to nearest.  They work

* from Python on float32 arrays and numbers of any shapes that broadcast;
* inside `@nbtc.kernel` functions, on numbers, on the CPU and on a GPU.

Both have the bits of an H200's special function unit.  The functions of `math` and NumPy are accurate in kernels
instead, and take several times as long.  Where CUDA C++ may fuse a product with an addition that follows, these never
do: the result depends on the operands alone.

>>> import numpy as np, nbtc
>>> from nbtc import intrinsics
>>> intrinsics.__expf(np.float32([0.0, 1.0, -1.0]))
array([1.        , 2.7182817 , 0.36787945], dtype=float32)
>>> @nbtc.kernel
... def weights(x, out):
...     i = nbtc.grid(1)
...     out[i] = intrinsics.__expf(x[i]) if x[i] < 0 else intrinsics.__fdividef(x[i], x[i] + np.float32(1))
>>> out = np.zeros(4, np.float32)
>>> weights[1, 4](np.float32([-1, 0, 1, 3]), out)
>>> out
array([0.36787945, 0.        , 0.5       , 0.75      ], dtype=float32)
"""

from nbtc.dialect.intrinsics import (
    __cosf,
    __exp10f,
    __expf,
    __fdividef,
    __log2f,
    __log10f,
    __logf,
    __powf,
    __sinf,
    __tanf,
    __tanhf,
)

__all__ = [
    "__cosf",
    "__exp10f",
    "__expf",
    "__fdividef",
    "__log2f",
    "__log10f",
    "__logf",
    "__powf",
    "__sinf",
    "__tanf",
    "__tanhf",
]
