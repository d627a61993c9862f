"""PTX's scalar instructions in Python integers: slow, one thread at a time, nothing shared with the emitters.

`REFERENCE[opcode](op, *bits)` takes and gives bits as unsigned integers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from nbtc.testing.reference import bits, compare, integers

REFERENCE: dict[str, Callable[..., Any]] = {
    **integers.REFERENCE,
    **bits.REFERENCE,
    **compare.REFERENCE,
}
