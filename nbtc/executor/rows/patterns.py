"""Patterns of instructions' names in tables: compiled when a name begins as they do and has in it what they want.

A program has a few names, and the tables hundreds of patterns: to compile all took a sixth of a second in each process,
and those that only begin as its names do still 13 ms for a product of matrices, now 4.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from functools import cache
from typing import Generic, TypeVar

T = TypeVar("T")
_LITERAL = re.compile(r"(?:[\w%:]|\\\.)*")
_PIECE = re.compile(r"\\.|\[[^\]]*\]|.")
MAY_BE_ABSENT = ("?", "*", "{")  # after a character or group of which there may be none


def literal_starts(pattern: str) -> tuple[str, ...]:
    r"""Every name that a pattern matches begins with one of these.

    >>> [literal_starts(p) for p in (r"cp\.async(\.bulk)?\..*", "ab?c", "add|sub", r"a(b|c)\.d", "(a|b.)c")]
    [('cp.async',), ('a',), ('add', 'sub'), ('ab.d', 'ac.d'), ('ac', 'b')]
    """
    parts = _alternatives(pattern)
    if len(parts) > 1:
        return tuple(start for part in parts for start in literal_starts(part))
    head, rest = _literal(pattern)
    if not rest.startswith("(") or rest.startswith("(?"):
        return (head,)
    group, after = _group(rest)
    if after.startswith(MAY_BE_ABSENT):
        return (head,)
    follows = _literal(after)[0]
    return tuple(
        head + start + (follows if start == part.replace("\\.", ".") else "")
        for part in _alternatives(group)
        for start in literal_starts(part)
    )


def literal_part(pattern: str) -> str:
    r"""The longest text that stands in every name that a pattern matches.

    >>> [literal_part(p) for p in (r"(ld|st)\..*L1::.*", r".*\.f16(x2)?", "ab?c", "add|sub", "(?!ab)c[de]")]
    ['L1::', '.f16', 'a', '', 'c']
    """
    if len(_alternatives(pattern)) > 1:
        return ""
    runs, depth = [""], 0
    for piece in _PIECE.findall(pattern):
        depth += (piece == "(") - (piece == ")")
        if not depth and _LITERAL.fullmatch(piece):
            runs[-1] += piece[-1]
            continue
        if piece in MAY_BE_ABSENT:
            runs[-1] = runs[-1][:-1]
        runs.append("")
    return max(runs, key=len)


def _alternatives(pattern: str) -> list[str]:
    """What stands between the `|` outside of all groups."""
    if "|" not in pattern:
        return [pattern]
    found, depth = [""], 0
    for piece in _PIECE.findall(pattern):
        depth += (piece == "(") - (piece == ")")
        if piece == "|" and not depth:
            found.append("")
        else:
            found[-1] += piece
    return found


def _literal(pattern: str) -> tuple[str, str]:
    """What each name begins with that a pattern without alternatives matches, and the rest of the pattern."""
    found = _LITERAL.match(pattern)
    start = found[0] if found else ""
    if pattern[len(start) :].startswith(MAY_BE_ABSENT):
        start = start[: -2 if start.endswith("\\.") else -1]
    return start.replace("\\.", "."), pattern[len(start) :]


def _group(pattern: str) -> tuple[str, str]:
    """The inside of the group that a pattern begins with, and what follows."""
    depth, inside = 0, ""
    for piece in _PIECE.findall(pattern):
        depth += (piece == "(") - (piece == ")")
        if not depth:
            break
        inside += piece
    return inside[1:], pattern[len(inside) + 1 :]


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern)


_part = cache(literal_part)


class Pattern:
    """A pattern, and what a name may begin with, which may be all that counts."""

    __slots__ = ("any_end", "starts", "text")

    def __init__(self, text: str) -> None:
        self.text, self.starts = text, literal_starts(text)
        self.any_end = _literal(text)[1] == ".*" and len(self.starts) == 1

    def matches(self, name: str) -> bool:
        """Whether the compiled pattern matches all of a name."""
        if self.any_end or not name.startswith(self.starts):
            return name.startswith(self.starts)
        return _part(self.text) in name and _compiled(self.text).fullmatch(name) is not None


class PatternTable(Generic[T]):
    """Rows by the patterns of names that they are for; a name is looked up among those that its first word allows."""

    def __init__(self, rows: Iterable[tuple[str, T]]) -> None:
        self.rows = [(Pattern(text), row) for text, row in rows]
        self._whole: dict[str, set[int]] = defaultdict(set)  # by a first word, numbers of rows
        self._begun: dict[str, set[int]] = defaultdict(set)  # by what a first word may begin with
        for n, (pattern, _) in enumerate(self.rows):
            for start in pattern.starts:
                word, dot, _ = start.partition(".")
                (self._whole if dot else self._begun)[word].add(n)

    def matching(self, name: str) -> Iterator[T]:
        """Rows whose pattern matches a name, in their order."""
        word = name.partition(".")[0]
        begun = (self._begun[word[:n]] for n in range(len(word) + 1) if word[:n] in self._begun)
        for n in sorted(self._whole.get(word, set()).union(*begun)):
            pattern, row = self.rows[n]
            if pattern.matches(name):
                yield row
