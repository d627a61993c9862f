"""C++ names: the plain one inside a mangled one (Itanium C++ ABI, the part that kernels need)."""

from __future__ import annotations

import re


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
