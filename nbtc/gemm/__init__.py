"""Large matrix products: `matmul`, `gemm`, `plan`."""

import sys
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nbtc.compiler.python_only import refuse_in_compiled_code
from nbtc.gemm.cublas.orders import Library, library
from nbtc.gemm.orders import Order, order
from nbtc.gemm.problem import Plan
from nbtc.gemm.run import gemm, matmul, plan

__all__ = ["Library", "Order", "Plan", "gemm", "library", "matmul", "order", "plan"]


class _Callable(ModuleType):
    """`nbtc.gemm` is this package once anything has imported it, and a function to its users: it is both."""

    def __call__(self, *args: Any, **more: Any) -> NDArray[np.generic]:
        return gemm(*args, **more)


sys.modules[__name__].__class__ = _Callable
refuse_in_compiled_code((gemm, matmul, plan), "call it before or after, or nbtc.ptx.mma_sync on register images there")
