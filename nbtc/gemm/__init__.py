"""Large matrix products: `matmul`, `gemm`, `plan`."""

from nbtc.gemm.plan import Plan
from nbtc.gemm.run import gemm, matmul, plan

__all__ = ["Plan", "gemm", "matmul", "plan"]
