"""The `.version` line of PTX texts: reading it, and giving a text another one."""

from __future__ import annotations

import re

_LINE = re.compile(r"^(\s*\.version\s+)(\d+)\.(\d+)", re.MULTILINE)
Version = tuple[int, int]


def version_of(text: str) -> Version | None:
    """The version of the PTX ISA that a text says it is written for, if it says one.

    >>> version_of(".version 8.0\\n.target sm_90")
    (8, 0)
    """
    found = _LINE.search(text)
    return (int(found[2]), int(found[3])) if found else None


def with_version(text: str, version: Version) -> str:
    """The text with another version in that line.

    >>> with_version(".version 8.7\\n.target sm_90", (8, 0))
    '.version 8.0\\n.target sm_90'
    """
    return _LINE.sub(rf"\g<1>{version[0]}.{version[1]}", text, count=1)
