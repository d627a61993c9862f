"""numba.cuda: its programs on the CPU above an emulated driver, and nbtc's functions inside of its kernels."""

import warnings

import numpy as np

from nbtc.interop.extras import need

need("numba_cuda", "cuda")

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # NumPy 2.5 has one for numba-cuda's table of time units
    import numba.cuda  # noqa: F401

    if not hasattr(np, "row_stack"):  # NumPy takes it out, but numba-cuda 0.30 asks for it when it compiles
        np.row_stack = np.vstack
