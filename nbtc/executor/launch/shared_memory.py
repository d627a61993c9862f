"""How much shared memory a launch may ask for."""

from __future__ import annotations

from nbtc.errors import OptionError, shown, whole_number

MOST_SHARED = 227 << 10  # bytes of a block on sm_90 (CUDA C++ Programming Guide, "Compute Capabilities")


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
