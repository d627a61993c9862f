"""What compiled code knows of nbtc: functions, even in a compilation that is under way.

Modules of nbtc load on first use, and the first use of `nbtc.dpx` may be inside a function that Numba is just typing.
Numba reads newly registered functions only when a compilation starts, and would report the name as unknown.
"""

from __future__ import annotations

from numba.core.compiler_lock import global_compiler_lock
from numba.core.registry import cpu_target


def refresh_numba_registry() -> None:
    """Called once by a module, after it has registered its functions; does nothing where nothing is being compiled.

    A first look at the registries imports a good part of Numba, which a program without compilations does not need.
    """
    if not global_compiler_lock.is_locked():
        return
    cpu_target.typing_context.refresh()
    cpu_target.target_context.refresh()
