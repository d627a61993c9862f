"""Names that keep the machine code of one factory's kernels apart.

Numba links by symbol, and makes the symbols of closures differ only by a counter of the process.  Kernels that come
from the cache were compiled by several processes: two of one name would be taken for the same function.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])


def distinct(*constants: object) -> Callable[[F], F]:
    """A decorator that adds what a kernel is made for to its name; goes below `jit`.

    >>> distinct("f16", 8)(lambda: 0).__qualname__
    '<lambda>_f16_8'
    """

    def rename(function: F) -> F:
        function.__qualname__ = "_".join([function.__qualname__, *map(str, constants)])
        return function

    return rename
