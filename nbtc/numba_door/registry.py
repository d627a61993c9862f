"""What compiled code knows of nbtc: functions, even in a compilation that is under way.

Rooms of nbtc load on first use, and the first use of `nbtc.dpx` may be inside a function that Numba is just typing.
Numba reads newly registered functions only when a compilation starts, and would report the name as unknown.
"""

from __future__ import annotations

from numba.core.registry import cpu_target


def refresh_numba_registry() -> None:
    """Called once by a module, after it has registered its functions."""
    cpu_target.typing_context.refresh()
    cpu_target.target_context.refresh()
