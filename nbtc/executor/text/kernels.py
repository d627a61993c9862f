"""Where the bodies of a text's kernels lie, so that a large module can be read kernel by kernel.

Only braces, comments and quoted texts are looked at: a fraction of what reading the instructions takes.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

_SILENT = r'"(?:[^"\\\n]|\\.)*"|//[^\n]*|/\*.*?\*/'  # quoted texts and comments
_PIECES = re.compile(rf"{_SILENT}|\.entry\b|[{{}};]", re.DOTALL)
_OWN = re.compile(rf"{_SILENT}|(?P<variable>(?<![\w.])\.(?:shared|local)\s+\.[^;{{}}]*;)", re.DOTALL)
_NAME = re.compile(r"\.entry\s+(?:\.attribute\s*\([^)]*\)\s*)?(?P<name>[\w$%]+)")
_STATIC = re.compile(r"(?<![\w.])\.(?:global|const)\b")  # a variable that lasts, not a part of an instruction's name


class KernelText(NamedTuple):
    """A kernel's body: from its brace to the one that closes it; `lasts`: it declares variables of the module."""

    name: str
    begin: int
    end: int
    lasts: bool


def kernel_texts(text: str) -> list[KernelText]:
    """The bodies of a text's kernels; none where braces don't match, which reading all of it will tell.

    >>> [k.name for k in kernel_texts(".entry a() { ret; } .func f() { } .visible .entry b() { { } ret; }")]
    ['a', 'b']
    """
    found, depth, begin, name = list[KernelText](), 0, 0, ""
    for piece in _PIECES.finditer(text):
        what = piece[0]
        if what == "{":
            begin = piece.start() if depth == 0 else begin
            depth += 1
        elif what == "}":
            depth -= 1
            if depth < 0:
                return []
            if depth == 0 and name:
                lasts = _STATIC.search(text, begin, piece.end()) is not None
                found.append(KernelText(name, begin, piece.end(), lasts))
                name = ""
        elif depth == 0 and what == ";":
            name = ""
        elif depth == 0 and what == ".entry":
            known = _NAME.match(text, piece.start())
            name = known["name"] if known else ""
    return found if depth == 0 else []


def with_bodies(text: str, kernels: Sequence[KernelText], wanted: str = "") -> str:
    """The text with kernels that do nothing, but for one and for those whose variables last; lines keep their numbers.

    Shared and local variables stay, each in a scope of its own: their bytes are asked of kernels that nobody launches.
    """
    parts, at = [], 0
    for k in kernels:
        if not k.lasts and k.name != wanted:
            parts += [text[at : k.begin], *_emptied(text, k)]
            at = k.end
    return "".join([*parts, text[at:]])


def _emptied(text: str, kernel: KernelText) -> tuple[str, ...]:
    """A body with variables alone."""
    begin, end = kernel.begin, kernel.end
    variables = [found["variable"] for found in _OWN.finditer(text, begin, end) if found["variable"]]
    if any("/" in v for v in variables):  # a comment inside of one, in which its end may lie
        return (text[begin:end],)
    scopes = (f"{{ {' '.join(v.split())} }} " for v in variables)
    return "{ ", *scopes, "ret; }", "\n" * text.count("\n", begin, end)
