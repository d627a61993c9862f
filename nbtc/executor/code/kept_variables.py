"""Variables of a warp's code that stay in memory, where the functions that it calls may read them."""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from nbtc.compiler.builder import I1, I8, VectorBuilder

POINTER, VOID = I8.as_pointer(), ir.VoidType()
LEAST, MOST = 1 << 10, 1 << 13  # bytes that are taken at first, and at most at a time
ALIGN = 256  # <32 x i64> wants it


def bytes_of(kind: Any) -> int:
    """Bytes of a number, of a number for each lane, or of several of either, a power of two for each."""
    if isinstance(kind, ir.ArrayType):
        return int(kind.count) * bytes_of(kind.element)
    bits = kind.count * kind.element.width if isinstance(kind, ir.VectorType) else kind.width
    return 1 << max(0, int(bits - 1).bit_length() - 3)


class KeptVariables:
    """Many variables share one piece of memory: LLVM takes as long over a piece as over ten instructions.

    entry: the function's block where memory is taken.  first: a block that all code comes after.
    """

    def __init__(self, v: VectorBuilder, entry: Any, first: Any) -> None:
        self.v, self.b, self.entry, self.first = v, v.b, entry, first
        self._piece: Any = None
        self._at = self._bytes = 0

    def variable(self, kind: ir.Type) -> Any:
        """One more, zero at the function's beginning."""
        size = bytes_of(kind)
        step = min(size, ALIGN)
        at = -(-self._at // step) * step
        if at + size > self._bytes:
            self._take(size)
            at = 0
        self._at = at + size
        with self.b.goto_block(self.first):
            return self.b.bitcast(self.v.at(self._piece, at), kind.as_pointer())

    def _take(self, size: int) -> None:
        """Zeroed memory.  LLVM is told that its address is known elsewhere."""
        self._bytes = max(size, LEAST, min(2 * self._bytes, MOST))
        with self.b.goto_block(self.entry):
            piece = self.b.alloca(ir.ArrayType(I8, self._bytes))
            piece.align = ALIGN
        with self.b.goto_block(self.first):
            self._piece = self.b.bitcast(piece, POINTER)
            zero, volatile = ir.Constant(I8, 0), ir.Constant(I1, 0)
            self.v.call("llvm.memset.p0.i64", VOID, self._piece, zero, self.v.int(self._bytes), volatile)
            kind = ir.FunctionType(VOID, [POINTER])
            self.b.call(ir.InlineAsm(kind, "", "r", side_effect=True), [self._piece])
