"""Objects that live in Python alone, and say so to a function that Numba compiles."""

from __future__ import annotations

from typing import Any

from nbtc.errors import CompilerError


class PythonOnly:
    """A base whose objects refuse to be arguments or globals of compiled functions, in one line; needs no Numba."""

    __slots__ = ()
    _in_compiled_code = ""  # what to do there instead

    @property
    def _numba_type_(self) -> Any:
        """What Numba asks an object for."""
        raise CompilerError(
            f"an nbtc {type(self).__name__} works from Python, not inside functions compiled by Numba: "
            f"{self._in_compiled_code}"
        )
