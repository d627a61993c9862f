"""Objects and functions that live in Python alone, and say so to a function that Numba compiles; needs no Numba."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NoReturn

from nbtc.errors import CompilerError


def _refuse(name: str, instead: str) -> NoReturn:
    # not one of Numba's errors, which it would bury in a list of signatures
    raise CompilerError(f"{name} works from Python, not inside functions compiled by Numba: {instead}")


class _NoType:
    """What stands for the type of a function or object: Numba's first question to it is answered by the refusal."""

    def __init__(self, name: str, instead: str) -> None:
        self._refused = name, instead

    def __getattr__(self, name: str) -> Any:
        _refuse(*self._refused)

    def __hash__(self) -> int:  # under python -O, where Numba's assertions ask nothing, the first question is this one
        _refuse(*self._refused)


class PythonOnly:
    """A base whose objects refuse to be arguments or globals of compiled functions, in one line."""

    __slots__ = ()
    _in_compiled_code = ""  # what to do there instead

    @property
    def _numba_type_(self) -> Any:
        """What Numba asks an object for."""
        # not the refusal itself: Numba first asks whether there is such an attribute, and what a property raises then
        # is printed and forgotten from Python 3.13 on
        return _NoType(f"an nbtc {type(self).__name__}", self._in_compiled_code)


def compiled_only(name: str) -> CompilerError:
    """The error of a function that exists in compiled code alone, called from Python."""
    return CompilerError(f"{name} exists in compiled functions only: call it in one")


def refuse_in_compiled_code(functions: Iterable[Any], instead: str) -> None:
    """Functions that work from Python alone: a compiled function that calls one hears so, and what to do instead."""
    for function in functions:
        function._numba_type_ = _NoType(f"{function.__module__}.{function.__qualname__}", instead)
