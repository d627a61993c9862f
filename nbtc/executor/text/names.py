"""C++ names: what a mangled one says (Itanium C++ ABI), by the C++ library of the system where there is one."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable
from functools import cache, partial
from typing import Any


def plain_name(name: str) -> str:
    """The function's own name, without its parameters and scopes; what is no mangled name stays as it is.

    >>> plain_name("_Z4gemmPKfS0_Pfi"), plain_name("_ZN2ns3addEPf"), plain_name("add")
    ('gemm', 'add', 'add')
    """
    if not name.startswith("_Z"):
        return name
    at = 3 if name[2:3] == "N" else 2
    nested, found = at == 3, name
    while match := re.match(r"[KVrRO]*(\d+)", name[at:]):
        begin = at + match.end()
        end = begin + int(match.group(1))
        if end > len(name):
            break
        found, at = name[begin:end], end
        if name[at : at + 1] == "I":  # template arguments
            break
        if name[at : at + 1] == "B":  # Numba's version tags
            break
        if not nested:
            break
    return found


def signature(name: str) -> str:
    """What a mangled name says: scope, template arguments and the types of parameters.

    >>> signature("_Z4axpyIfEvT_PKS0_PS0_i"), signature("add")
    ('axpy<float>(float, float const*, float*, int)', 'add')
    """
    found = _demangle()(name) if name.startswith("_Z") else name
    return ABI_TAG.sub("", found).removeprefix("void ").replace(", C, mutable, aligned>", ", C>")


def full_name(name: str) -> str:
    """The same without the types of parameters, which tells the instances of a template apart.

    >>> full_name("_ZN2ns4axpyIfEEvT_PKS1_PS1_i")
    'ns::axpy<float>'
    """
    text = signature(name)
    if not text.endswith(")"):
        return text
    depth = 0
    for at in range(len(text) - 1, -1, -1):
        depth += (text[at] == ")") - (text[at] == "(")
        if depth == 0:
            return text[:at]
    return text


ABI_TAG = re.compile(r"\[abi:[^\]]*\]")  # Numba's: versions of a function, and its flags in an alphabet of its own
LIBRARIES = ("libstdc++.so.6", "libc++.1.dylib", "libc++abi.1.dylib")


@cache
def _demangle() -> Callable[[str], str]:
    """The C++ library's demangler; where there is none, names without their types."""
    for library in LIBRARIES:
        try:
            function = ctypes.CDLL(library).__cxa_demangle
            free = ctypes.CDLL(None).free
        except (OSError, AttributeError, TypeError):  # TypeError: Windows has no CDLL(None)
            continue
        function.restype, free.argtypes = ctypes.c_void_p, (ctypes.c_void_p,)
        return partial(_by_library, function, free)
    return plain_name


def _by_library(function: Any, free: Any, name: str) -> str:
    """The text that the library allocates, in memory of our own; what is no mangled name has none."""
    status = ctypes.c_int()
    found = function(name.encode(), None, None, ctypes.byref(status))
    if not found:
        return plain_name(name)
    try:
        return ctypes.string_at(found).decode()
    finally:
        free(found)
