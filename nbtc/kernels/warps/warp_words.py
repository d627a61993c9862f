"""Integer and single-bit mma.sync, mma.sp and wmma as vector code: a vector holds sixteen accumulators of C's image.

How elements are multiplied is `dot`'s.  Sums of one instruction fit 32 bits, so that saturation is a clamp of one
addition to C.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from numba.core import cgutils

from nbtc.compiler.builder import I1, I32, VectorBuilder, vector
from nbtc.kernels.warps.code import ProductCode
from nbtc.kernels.warps.warp_columns import columns
from nbtc.kernels.warps.warp_select import W16, Selection
from nbtc.kernels.words.dot import DotElements, dot
from nbtc.numerics.models import BIT_OPS


@dataclass(frozen=True)
class IntegerCode(ProductCode):
    """What is compiled in.

    bits: of an element.  a_signed, b_signed: 0 or 1.  option: of bits the number of the operation, else whether to
    saturate.  registers: of A; 1 in products of eight rows.  sparse: 0 or 1.
    """

    bits: int
    a_signed: int
    b_signed: int
    option: int
    registers: int
    sparse: int = 0

    kind = "integers"

    @property
    def images(self) -> tuple[int, ...]:
        """Registers of A, B, C, metadata if any, and D."""
        accumulators = 4 if self.registers > 1 else 2
        right = self.registers if self.sparse else max(1, self.registers // 2)
        return self.registers, right, accumulators, *[1] * self.sparse, accumulators

    @property
    def elements(self) -> DotElements:
        """What is multiplied."""
        return DotElements(self.bits, bool(self.a_signed), bool(self.b_signed), self.option == BIT_OPS["and"])

    @property
    def words(self) -> int:
        """Words of a row of A."""
        return max(4, 2 * self.registers)


class IntegerWarp:
    """Writes the code of one warp."""

    def __init__(self, shape: IntegerCode, v: VectorBuilder, pointers: list[Any]) -> None:
        self.s, self.v, self.b, self.dot = shape, v, v.b, dot(v, shape.elements)
        self.a, b, self.c, *meta, self.d = pointers
        tall = shape.registers > 1
        self.row = [n // 2 % 2 if tall else n // 8 for n in range(16)]  # of the two rows of each accumulator
        column = [2 * (n // 4) + n % 2 if tall else n % 8 for n in range(16)]
        self.selection = None
        if meta:
            self.selection = Selection(v, b, meta[0], shape.registers, 1)
        else:
            right = shape.images[1]
            table = [[[(4 * n + q % 4) * right + q // 4 for n in column[u : u + 4]] for u in range(0, 16, 4)]
                     for q in range(shape.words)]  # fmt: skip
            self.shared = self.planes_b(columns(v, b, table))

    def emit(self) -> Any:
        """Everything; returns an i1: nothing needs the fallback.

        Sparse products are a loop: written out, they are slower and take four times as long to compile.  Dense ones,
        which are a third as long, lose 2 to 4 % of their speed as a loop.
        """
        v, turns = self.v, 8 if self.s.registers > 1 else 4
        if self.selection is None:
            for j in range(turns):
                self._accumulators(v.int(j))
        else:
            with cgutils.for_range(v.b, v.int(turns)) as loop:
                self._accumulators(loop.index)
        return v.const(I1, 0)

    def _accumulators(self, j: Any) -> None:
        """Sixteen accumulators, the j-th ones; j: an i64 value."""
        v, b, s = self.v, self.b, self.s
        own = 16 if s.registers == 4 else 8  # words of A for sixteen accumulators
        planes = self.dot.planes(v.load(self.a, vector(I32, own), 4, b.mul(j, v.int(4 * own))), False)
        right, surplus = self.right(j)
        at = b.shl(j, v.int(6))
        c, total = v.load(self.c, W16, 4, at), self.dot.zero(W16)
        for q, parts in enumerate(right):
            lanes = [self.place(r, q) for r in self.row]
            for x, y in zip(planes, parts, strict=True):
                total = self.dot.step(total, v.shuffle(x, x, lanes), y)
        total = self.dot.total(total)
        if surplus is not None:
            total = b.sub(total, surplus)
        clamped = s.bits > 1 and s.option
        v.store(v.over("sadd.sat", c, total) if clamped else b.add(c, total), self.d, 4, at)

    def planes_b(self, words: list[Any]) -> tuple[list[list[Any]], Any]:
        """Words of B, prepared, and what sums with them have too much."""
        found = [self.dot.planes(x, True) for x in words]
        return found, self.dot.surplus([x for parts in found for x in parts])

    def right(self, j: Any) -> tuple[list[list[Any]], Any]:
        """B's words for accumulators j, and what sums with them have too much."""
        if self.selection is None:
            return self.shared
        controls = self.selection.controls(self.b.shl(j, self.v.int(4)))
        return self.planes_b([self.selection.chosen(controls, q) for q in range(self.s.words)])

    def place(self, row: int, q: int) -> int:
        """Where word q of the first or second row is, among the words of A loaded."""
        n = self.s.registers
        return (q % 4) * n + row + 2 * (q // 4) if n > 1 else 4 * row + q
