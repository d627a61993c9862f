"""How much shared memory a launch may ask for, and may touch."""

from __future__ import annotations

from nbtc.errors import OptionError, shown, whole_number

MOST_SHARED = 227 << 10  # bytes of a block on sm_90 (CUDA C++ Programming Guide, "Compute Capabilities")
# Bytes of the widest load.  LLVM widens loads of dynamic shared memory, whose size it doesn't know, to whole ones: of
# seven ints the last three are loaded as four (numba-cuda's tests of slices, compiled by NVVM 13.5).  A GPU hands out
# units of 128 bytes, so nothing faults there.
LOADED_AT_ONCE = 16


def reached_bytes(own: int, dynamic: int, exact: bool) -> int:
    """What a block may touch; exact: what was asked for alone, as checked launches have it."""
    size = own + dynamic
    return size if exact or not dynamic else -(-size // LOADED_AT_ONCE) * LOADED_AT_ONCE


def dynamic_bytes(name: str, shared: object, own: int) -> int:
    """A launch's dynamic shared memory, checked; own: what the kernel declares itself."""
    if own > MOST_SHARED:
        raise OptionError(
            f"{name} declares {own} bytes of shared memory, but a block has {MOST_SHARED} at most: declare less, or "
            "keep the rest in global memory"
        )
    size = whole_number(shared)
    if size is None or not 0 <= size <= MOST_SHARED - own:
        raise OptionError(
            f"shared={shown(shared)}: {name} may have 0 to {MOST_SHARED - own} bytes of dynamic shared memory"
        )
    return size
