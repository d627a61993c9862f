"""Triton's kernels on the CPU: a driver of Triton's own interface whose device is the executor of programs."""

from nbtc.interop.extras import need

need("triton", "triton")
