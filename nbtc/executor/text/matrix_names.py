"""Names of instructions on matrices as programs spell them: which row of the instruction set each is.

These tables know it without the code that executes such instructions, which takes long to import.
"""

from __future__ import annotations

import re

from nbtc.compiler.cache.added_rows import cached
from nbtc.errors import NbtcError
from nbtc.isa.parse import row as parse_row
from nbtc.isa.spec import Row


@cached
def isa_row(text: str) -> Row | None:
    """The instruction row of a mnemonic as a program spells it, or None."""
    try:
        return parse_row(text)
    except NbtcError:
        return None


def first_version(text: str) -> str:
    """The version of the PTX ISA that a product first stands in, where it is newer than its family; else nothing."""
    row = isa_row(text)
    return row.version if row is not None else ""


def without_space(text: str) -> tuple[str, str]:
    """A mnemonic without its state space, and the space ("" is generic)."""
    spaces = [m for m in text.split(".") if m.split("::")[0] in ("shared", "global")]
    kept = [m for m in text.split(".") if m not in spaces]
    if kept[0] in ("ldmatrix", "stmatrix"):  # older text, CUTLASS's too, names the shape after .x4 and .trans
        kept.sort(key=_place_in_name)
    return ".".join(kept), spaces[0] if spaces else ""


def _place_in_name(modifier: str) -> int:
    """Where ldmatrix and stmatrix have a modifier: the shape after .aligned, then the count, .trans, the types."""
    places = ("ldmatrix|stmatrix", "sync", "aligned", "m[0-9]+n[0-9]+", "x[0-9]", "trans", ".*")
    return next(i for i, pattern in enumerate(places) if re.fullmatch(pattern, modifier))
