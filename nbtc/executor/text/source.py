"""PTX text from whoever has it."""

from __future__ import annotations

import os
from pathlib import Path

from nbtc.errors import FormatError, SourceError, shown


def text_of(source: str | os.PathLike[str]) -> str:
    """PTX text itself, or what a file of this path holds; raises SourceError where there is none."""
    if isinstance(source, str) and (any(mark in source for mark in ("\n", "{", ".version")) or not source.strip()):
        return source
    if not isinstance(source, str | os.PathLike):
        raise FormatError(f"{shown(source)} is not PTX: pass its text, or the path of a file of it")
    try:
        return Path(source).read_text(encoding="utf-8", errors="replace")
    except (OSError, ValueError) as error:
        raise SourceError(
            f"{shown(source)} is neither PTX, which begins with .version, nor the path of a file that can be read "
            f"({getattr(error, 'strerror', None) or error}): pass the text itself, or a path such as 'kernel.ptx'"
        ) from error
