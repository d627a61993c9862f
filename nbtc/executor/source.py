"""PTX text from whoever has it."""

from __future__ import annotations

import os
from pathlib import Path


def text_of(source: str | os.PathLike[str]) -> str:
    """PTX text itself, or what a file of this path holds."""
    if isinstance(source, str) and (any(mark in source for mark in ("\n", "{", ".version")) or not source.strip()):
        return source
    return Path(source).read_text(encoding="utf-8", errors="replace")
