"""What a DPX function computes: one table of rows and one piece of lane arithmetic that all of them share.

A row says which operands meet (two, three, or a sum and a third), which of them wins, in which lane type, and whether a
negative result becomes zero.  Everything is done on unsigned 32-bit words; a packed word is two lanes without a carry
between them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from nbtc.compiler.jit import jit

_INT, _WORD = np.dtype(np.int32), np.dtype(np.uint32)
TWO, THREE, ADD = 2, 3, 4  # max(a, b); max(a, b, c); max(a + b, c)


@dataclass(frozen=True, slots=True, eq=False)  # a row is equal to itself only, which makes it a quick key
class DpxRow:
    """One function: operand scheme, winner ("max" or "min"), lane type, and what is added to the plain result."""

    name: str
    scheme: int
    pick: str
    format: str  # s32 u32 s16x2 u16x2
    relu: bool = False
    predicate: bool = False

    @property
    def signed(self) -> bool:
        return self.format.startswith("s")

    @property
    def packed(self) -> bool:
        return self.format.endswith("x2")

    @property
    def arity(self) -> int:
        return 2 if self.scheme == TWO else 3

    @property
    def dtype(self) -> np.dtype[np.int32] | np.dtype[np.uint32]:
        """Type of operands and value: int for s32, unsigned words for the rest, as in CUDA C++."""
        return _INT if self.format == "s32" else _WORD

    @property
    def predicates(self) -> int:
        """Number of booleans returned after the value: one a lane, or none."""
        return (1 + self.packed) if self.predicate else 0

    @property
    def codes(self) -> tuple[np.int32, ...]:
        """The row as the integers that `word` and `wins` take: scheme, least, bits, signed, relu.

        They are NumPy integers because Numba would compile the helpers anew for each value of a Python int.
        """
        bits = 16 if self.packed else 32
        return tuple(np.int32(x) for x in (self.scheme, self.pick == "min", bits, self.signed, self.relu))


_PLAIN = ("s32", "s16x2", "u32", "u16x2")
_RELU = ("s32", "s16x2")
_FAMILIES = (  # name stem, scheme, lane types, lane types of the _relu variant, predicate
    ("vi{}", TWO, (), _RELU, False),
    ("vi{}3", THREE, _PLAIN, _RELU, False),
    ("viadd{}", ADD, _PLAIN, _RELU, False),
    ("vib{}", TWO, _PLAIN, (), True),
)


def _rows() -> dict[str, DpxRow]:
    rows = {}
    for stem, scheme, plain, relu, predicate in _FAMILIES:
        for pick in ("max", "min"):
            for fmt, clamp in [(f, False) for f in plain] + [(f, True) for f in relu]:
                name = f"{stem.format(pick)}_{fmt}" + "_relu" * clamp
                rows[name] = DpxRow(name, scheme, pick, fmt, clamp, predicate)
    return rows


ROWS = _rows()


@jit(inline=True)
def ordered(word, bits, signed):
    """The low `bits` of a word as an int32 that compares as the lane's type does."""
    if bits == 16:
        if signed:
            return np.int32(np.int16(word))
        return np.int32(word & np.uint32(0xFFFF))
    if signed:
        return np.int32(word)
    return np.int32(word ^ np.uint32(0x80000000))  # moves 0..2^32-1 onto the signed range, order kept


@jit(inline=True)
def better(x, y, least):
    """The smaller or the larger of two ordered lanes."""
    return min(x, y) if least else max(x, y)


@jit(inline=True)
def lane(a, b, c, scheme, least, bits, signed, relu):
    """One lane's result, in the low `bits` of a word; what lies above them in a, b and c has no influence."""
    if scheme == ADD:
        # the sum wraps in the lane's width before it is compared
        best = better(ordered(np.uint32(a + b), bits, signed), ordered(c, bits, signed), least)
    else:
        best = better(ordered(a, bits, signed), ordered(b, bits, signed), least)
    if scheme == THREE:
        best = better(best, ordered(c, bits, signed), least)
    if relu:
        best = max(best, np.int32(0))
    if bits == 16:
        return np.uint32(best) & np.uint32(0xFFFF)
    if signed:
        return np.uint32(best)
    return np.uint32(best) ^ np.uint32(0x80000000)


@jit(inline=True)
def word(a, b, c, scheme, least, bits, signed, relu):
    """The function on whole words: one lane of 32 bits or two of 16."""
    low = lane(a, b, c, scheme, least, bits, signed, relu)
    if bits == 32:
        return low
    upper = np.uint32(16)
    high = lane(np.uint32(a >> upper), np.uint32(b >> upper), np.uint32(c >> upper), scheme, least, bits, signed, relu)
    return np.uint32(high << upper) | low


@jit(inline=True)
def wins(a, b, least, bits, signed):
    """The predicate of the low lane: a is taken, ties included."""
    x, y = ordered(a, bits, signed), ordered(b, bits, signed)
    return x <= y if least else x >= y
