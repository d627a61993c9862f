"""What a command gives back."""

from __future__ import annotations

from typing import Any, NamedTuple

FINE, MISMATCH, WRONG_USE = 0, 1, 2


class Result(NamedTuple):
    """What a command has to say."""

    data: Any
    text: str
    code: int = FINE
