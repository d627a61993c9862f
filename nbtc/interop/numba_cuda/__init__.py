"""numba-cuda's programs on the CPU: its own code above a CUDA driver whose device is the executor of programs."""

import warnings

from nbtc.interop.extras import need

need("numba_cuda", "cuda")

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # NumPy 2.5 has one for numba-cuda's table of time units
    import numba.cuda  # noqa: F401
