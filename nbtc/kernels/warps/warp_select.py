"""The elements of B that a sparse A meets, chosen by its metadata: a shuffle of bytes within 128-bit lanes.

Whatever the format, a word of stored elements of A belongs to two words of a column of B, and metadata says which of
their eight bytes it meets.  A lane holds those two words of two columns; the result is in the order of C's image, where
lane u has columns 2u and 2u + 1 of row j, then of row j + 8.  Any metadata is served, as the hardware does it.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from nbtc.compiler.builder import I8, I32, VectorBuilder, vector
from nbtc.compiler.cpu.lowering import lowering
from nbtc.kernels.warps.warp_columns import columns

W16, OCTETS = vector(I32, 16), vector(I8, 64)


class Selection:
    """B of one warp as the rows of A see it.

    registers: of A and of B.  unit: bytes that an index of two bits chooses: 2 for 16-bit elements and halves of tf32,
    1 for 8-bit elements and pairs of 4-bit ones.
    """

    def __init__(self, v: VectorBuilder, b: Any, meta: Any, registers: int, unit: int) -> None:
        self.v, self.meta, self.unit, self.words = v, meta, unit, 2 * registers

        def place(k: int, column: int) -> int:
            return (4 * column + k % 4) * registers + k // 4

        pairs = range(self.words)
        table = [[[place(2 * q + n, 2 * u + c) for c in (0, 1) for n in (0, 1)] for u in range(4)] for q in pairs]
        self.both = columns(v, b, table)

    def controls(self, at: Any) -> Any:
        """Bytes to choose: row j's words of them, then those of row j + 8; of the first column of each lane.

        at: 16 j, where the row's metadata begins, a number or an i64 value.
        """
        v, b = self.v, self.v.b
        pieces = [(r, q) for r in (0, 1) for q in range(self.words)] * (8 // self.words)
        if self.unit == 1:  # a word of metadata for each row and each four words of A
            sources, shifts = [r + 2 * (q // 4) for r, q in pieces], [8 * (q % 4) for _, q in pieces]
        else:  # a word for each four words of A, row j's in its lower half
            sources, shifts = [q // 4 for _, q in pieces], [4 * (q % 4) + 16 * r for r, q in pieces]
        raw = v.load(self.meta, vector(I32, self.words // 2 // self.unit), 4, at)
        x = b.lshr(v.shuffle(raw, raw, sources), ir.Constant(W16, shifts))
        x = b.and_(x, v.const(W16, 0xFF if self.unit == 1 else 0xF))
        steps = ((12, 0x000F000F), (6, 0x03030303)) if self.unit == 1 else ((14, 0x00030003),)
        for shift, mask in steps:  # each index to a byte, or a half, of its own
            x = b.and_(b.or_(x, b.shl(x, v.const(W16, shift))), v.const(W16, mask))
        if self.unit == 1:
            return b.add(x, v.const(W16, 0x04040000))
        return b.add(b.or_(b.shl(x, v.const(W16, 1)), b.shl(x, v.const(W16, 9))), v.const(W16, 0x01000100))

    def chosen(self, controls: Any, q: int) -> Any:
        """What word q of rows j and j + 8 of A meets, for the controls of j."""
        v, n = self.v, self.words
        x = v.shuffle(controls, controls, [q, q, n + q, n + q] * 4)
        x = v.b.add(x, ir.Constant(W16, [0, 0x08080808] * 8))
        octets = v.bits(self.both[q], OCTETS)
        return v.bits(lowering(v).byte_shuffle(octets, v.bits(x, OCTETS)), W16)
