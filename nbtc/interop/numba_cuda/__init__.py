"""numba-cuda's programs on the CPU: its own code above a CUDA driver whose device is the executor of programs."""

from nbtc.interop.extras import need

need("numba_cuda", "cuda")
