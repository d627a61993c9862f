"""What compiled code knows of nbtc: functions, even in a compilation that is under way, and refusals with a reason.

Rooms of nbtc load on first use, and the first use of `nbtc.dpx` may be inside a function that Numba is just typing.
Numba reads newly registered functions only when a compilation starts, and would report the name as unknown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from numba.core.registry import cpu_target
from numba.extending import overload

from nbtc.errors import CompilerError


def refresh_numba_registry() -> None:
    """Called once by a module, after it has registered its functions."""
    cpu_target.typing_context.refresh()
    cpu_target.target_context.refresh()


def refuse_in_compiled_code(functions: Iterable[Any], instead: str) -> None:
    """Functions and classes that work from Python alone (other objects are passed over); callers hear so."""
    for function in functions:
        if callable(function):
            _refuse(function, instead)


def _refuse(function: Callable[..., Any], instead: str) -> None:
    name = f"{function.__module__}.{function.__qualname__}"

    @overload(function)
    def refused(*args: Any, **options: Any) -> None:
        # not one of Numba's errors, which it would bury in a list of signatures
        raise CompilerError(f"{name} works from Python, not inside functions compiled by Numba: {instead}")
