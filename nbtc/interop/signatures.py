"""Names of kernels' parameters and what their pointers point to, from the source: PTX has numbers and no types."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

from nbtc.executor.launch.arguments import NUMBERS
from nbtc.executor.text.names import plain_name

_COMMENTS = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_KERNEL = re.compile(r"__global__\b(?:[^;{}()]|__launch_bounds__\s*\([^)]*\))*?\b(?!__launch_bounds__)(\w+)\s*\(")
_POINTER = re.compile(r"\s*(?:const\b|__restrict__\b|__restrict\b|\s)*\w*\s*")  # one `*`, and not an array of them
_NAME = re.compile(r"(\w+)\s*(?:\[[^\]]*\]\s*)*$")


def parameter_names(source: str, kernels: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """Of the kernels (by the names that they have in PTX) whose definitions the text itself has, one each.

    What headers and macros define is not seen, and kernels of one name with different names of parameters are left out:
    messages number those.

    >>> parameter_names("__global__ void add(const float *x, int n = 4) {}", ["_Z3addPKfi"])
    {'_Z3addPKfi': ('x', 'n')}
    """

    def name(parameter: str) -> str:
        found = _NAME.search(parameter.partition("=")[0].strip())
        return found[1] if found else ""

    return _of_each(source, kernels, name)


def pointees(source: str, kernels: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """What each parameter of the same kernels points to, where that is a number of C: "" for all else.

    >>> pointees("__global__ void add(const float *x, float4 *y, int n) {}", ["_Z3addPKfP6float4i"])
    {'_Z3addPKfP6float4i': ('float', '', '')}
    """

    def pointee(parameter: str) -> str:
        before, star, after = parameter.partition("=")[0].partition("*")
        kind = " ".join(w for w in before.split() if w not in ("const", "volatile"))
        return kind if star and kind in NUMBERS and _POINTER.fullmatch(after) else ""

    return _of_each(source, kernels, pointee)


def _of_each(source: str, kernels: Iterable[str], read: Callable[[str], str]) -> dict[str, tuple[str, ...]]:
    found: dict[str, set[tuple[str, ...]]] = {}
    text = _COMMENTS.sub(" ", source)
    for match in _KERNEL.finditer(text):
        found.setdefault(match[1], set()).add(tuple(map(read, _parameters(text, match.end()))))
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
