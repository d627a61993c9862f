"""What goes before NVIDIA's run-time compilers: who asks for machine code gets PTX.

Every other function is the installed library's own; none of it is changed or shipped.  nvJitLink's functions are
replaced as a whole, since it can't take PTX and give PTX: what it links is put together as text, and its own is called
for LTO-IR, which it does turn into PTX.
"""

from __future__ import annotations

from nbtc.libcuda.compilers.find import INTERNAL_ERROR, real
from nbtc.libcuda.compilers.linker import LINKER
from nbtc.libcuda.compilers.nvrtc import NVRTC
from nbtc.libcuda.registry import Implementation

__all__ = ["INTERNAL_ERROR", "instead", "real"]


def instead(name: str) -> Implementation | None:
    """What stands for a function, where it isn't the library's own."""
    return NVRTC.get(name) or LINKER.get(name)
