"""Kernels of CuTe DSL on the CPU: its compiler's host code runs as it is, and launches programs instead of a driver."""

from nbtc.interop.extras import need

need("cutlass", "cute")
