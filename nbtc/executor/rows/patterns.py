"""Patterns of instructions' names in tables: compiled when a name begins as they do.

A program has a few names, and the tables hundreds of patterns: to compile all took a sixth of a second in each process.
"""

from __future__ import annotations

import re
from functools import cache

_LITERAL = re.compile(r"(?:[\w%:]|\\\.)*")


def literal_start(pattern: str) -> str:
    r"""What every name that a pattern matches begins with.

    >>> [literal_start(p) for p in (r"cp\.async(\.bulk)?\..*", "ab?c", "add|sub", "a(b|c)")]
    ['cp.async', 'a', '', 'a']
    """
    depth = 0
    for character in re.sub(r"\\.", "", pattern):
        depth += (character in "([") - (character in ")]")
        if character == "|" and not depth:
            return ""
    found = _LITERAL.match(pattern)
    start = found[0] if found else ""
    if pattern[len(start) :][:1] in ("?", "*", "{"):  # of the last character there may be none
        start = start[: -2 if start.endswith("\\.") else -1]
    return start.replace("\\.", ".")


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern)


class Pattern:
    """A pattern, and what a name has to begin with."""

    __slots__ = ("start", "text")

    def __init__(self, text: str) -> None:
        self.text, self.start = text, literal_start(text)

    def fullmatch(self, name: str) -> re.Match[str] | None:
        """As of the compiled pattern."""
        return _compiled(self.text).fullmatch(name) if name.startswith(self.start) else None
