"""Operators of libraries that have a kernel in Python for tensors of CUDA alone: the CPU's take that kernel.

| private name of PyTorch | why |
|---|---|
| `torch.library._impls` | the kernels that were registered from Python, by operator and dispatch key; those in C++ \
run on a GPU alone |
| `OpOverload._op_dk` | calls the kernel of a dispatch key |

Tested with torch 2.11.
"""

from __future__ import annotations

from typing import Any

import torch
from torch._ops import OpOverload, OpOverloadPacket


class Operators:
    """Registers kernels for the CPU as operators are called, until it is closed."""

    def __init__(self) -> None:
        self._libraries: dict[str, torch.library.Library] = {}
        self._seen: set[Any] = set()

    def route(self, func: Any) -> None:
        """Let an operator that is for CUDA alone take tensors of the CPU."""
        if func in self._seen:
            return
        self._seen.add(func)
        if isinstance(func, OpOverloadPacket):
            for overload in func.overloads():
                self.route(getattr(func, overload))
            return
        name = func._schema.name + (f".{func._schema.overload_name}" if func._schema.overload_name else "")
        namespace, _, own = name.partition("::")
        if f"{namespace}/{own}/CUDA" not in torch.library._impls:
            return
        if not any(map(func.has_kernel_for_dispatch_key, (torch._C.DispatchKey.CPU, *COMPOSITE))):
            library = self._libraries.setdefault(namespace, torch.library.Library(namespace, "FRAGMENT"))
            library.impl(own, lambda *args, **kwargs: func._op_dk(torch._C.DispatchKey.CUDA, *args, **kwargs), "CPU")

    def close(self) -> None:
        """The operators are for CUDA alone again."""
        for library in self._libraries.values():
            library._destroy()
        self._libraries.clear()


COMPOSITE = (torch._C.DispatchKey.CompositeExplicitAutograd, torch._C.DispatchKey.CompositeImplicitAutograd)
OPERATORS = (OpOverload, OpOverloadPacket)
