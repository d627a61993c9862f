"""Quotients by constants of the text, and their reciprocals, as ptxas has them.

`div.full` and `div.approx` become a product by the reciprocal rounded to nearest, which is not always what the special
function unit gives, and `rcp.approx` that constant (ptxas 12.8, 13.0 and 13.5 for sm_90a: 160 divisors; from 60 of
them, 3 gave other bits with the unit's reciprocal).
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import pack, unpack

from nbtc.executor.kernel.reads import Reads
from nbtc.executor.text.data import Immediate, Instruction

FURTHEST = (2.0**-126, 2.0**126)  # divisors beyond these are scaled


def approximate_quotient(i: Instruction) -> bool:
    """Whether an instruction is a quotient or reciprocal that isn't rounded."""
    return i.opcode in ("div", "rcp") and i.modifiers[-1] == "f32" and not {"approx", "full"}.isdisjoint(i.modifiers)


def inverted(reads: Reads) -> Iterator[list[Instruction]]:
    """What stands for each of the instructions."""
    for at, i in enumerate(reads.instructions):
        number = reads.number(at, i.operands[-1], "f32") if approximate_quotient(i) else None
        inverse = None if number is None else _inverse(number)
        if inverse is None:
            yield [i]
            continue
        modifiers = tuple(m for m in i.modifiers if m in ("ftz", "f32")) if i.opcode == "div" else ("b32",)
        operands = (*i.operands[:-1], Immediate(inverse, 32))
        yield [i._replace(opcode={"div": "mul", "rcp": "mov"}[i.opcode], modifiers=modifiers, operands=operands)]


def _inverse(bits: int) -> int | None:
    """The reciprocal of an f32, rounded to nearest; None unless both are normal."""
    (value,) = unpack("<f", pack("<I", bits))
    if not FURTHEST[0] <= abs(value) <= FURTHEST[1]:
        return None
    # an f64 has more than twice the digits, so that rounding a quotient to it first changes nothing
    return int.from_bytes(pack("<f", 1 / value), "little")
