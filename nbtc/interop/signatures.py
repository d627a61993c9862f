"""Names of kernels' parameters, from their source: PTX numbers them."""

from __future__ import annotations

import re
from collections.abc import Iterable

from nbtc.executor.text.names import plain_name

_COMMENTS = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_KERNEL = re.compile(r"__global__\b(?:[^;{}()]|__launch_bounds__\s*\([^)]*\))*?\b(?!__launch_bounds__)(\w+)\s*\(")
_NAME = re.compile(r"(\w+)\s*(?:\[[^\]]*\]\s*)*$")


def parameter_names(source: str, kernels: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """Of the kernels (by the names that they have in PTX) whose definitions the text itself has, one each.

    What headers and macros define is not seen, and kernels of one name with different names of parameters are left out:
    messages number those.

    >>> parameter_names("__global__ void add(const float *x, int n = 4) {}", ["_Z3addPKfi"])
    {'_Z3addPKfi': ('x', 'n')}
    """
    found: dict[str, set[tuple[str, ...]]] = {}
    text = _COMMENTS.sub(" ", source)
    for match in _KERNEL.finditer(text):
        names = [_NAME.search(part.partition("=")[0].strip()) for part in _parameters(text, match.end())]
        found.setdefault(match[1], set()).add(tuple(m[1] if m else "" for m in names))
    single = {name: next(iter(lists)) for name, lists in found.items() if len(lists) == 1}
    return {
        k: single[plain_name(k).rpartition("::")[2]] for k in kernels if plain_name(k).rpartition("::")[2] in single
    }


def _parameters(text: str, begin: int) -> list[str]:
    """What stands between the commas of a list of parameters that begins here; commas within brackets count not."""
    parts, depth, start = [], 0, begin
    for at in range(begin, len(text)):
        c = text[at]
        if c in "([{<":
            depth += 1
        elif (c == "," and depth == 0) or (c == ")" and depth == 0):
            parts.append(text[start:at])
            start = at + 1
            if c == ")":
                break
        elif c in ")]}>":
            depth -= 1
    return [part for part in parts if part.strip() not in ("", "void")]
