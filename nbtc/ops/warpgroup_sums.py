"""The fused micro-kernel with a second task: the next warpgroup's accumulators come into the cache meanwhile.

They are most of a warpgroup's memory, and the sums leave it idle: fetched one after the other, they take a third as
long as the sums.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

from nbtc._vir import I32, Number, Vir
from nbtc.numerics.fused_avx512 import _Emitter
from nbtc.numerics.fused_books import Shape
from nbtc.numerics.models import OUTS

LINE = 64  # bytes of a cache line


class _Fetching(_Emitter):
    """Each row block of four columns of D asks for the memory that four columns of the next D take."""

    def body(self, block: Any) -> None:
        v, b, lines = self.v, self.b, self.args["lines"]
        p = v.at(self.args["ahead"], b.mul(block, v.int(LINE * lines)))
        kind = ir.FunctionType(ir.VoidType(), [p.type, I32, I32, I32])
        fetch = cgutils.get_or_insert_function(b.module, kind, "llvm.prefetch.p0")
        for n in range(lines):
            b.call(fetch, [v.at(p, LINE * n), *(v.const(I32, x) for x in (0, 3, 1))])  # to be read, near, data
        super().body(block)


_NAMES = ("a", "ea", "sa", "b", "eb", "sb", "tile", "blocks", "floor", "least", "scale", "reference", "scratch")


def lines_of(half: bool) -> Number:
    """Cache lines of four columns of D."""
    return 8 if half else 16


@intrinsic(prefer_literal=True)  # type: ignore[untyped-decorator, unused-ignore]
def sum_fetching(
    typing, wide, block, fraction, out, lines, a, ea, sa, b, eb, sb, tile, blocks, floor, least, scale, reference,
    scratch, words, ahead,
):  # fmt: skip
    """One block of products of 4 * blocks rows and 64 columns into the tile, as `fused_avx512.sum_block` does it.

    The first five arguments are literals.  words[ahead] is where the memory to fetch begins.
    """
    fixed = (wide, block, fraction, out, lines)
    if not all(isinstance(x, types.IntegerLiteral) for x in fixed):
        return None
    values = [x.literal_value for x in fixed]
    name = {code: text for text, code in OUTS.items()}[values[3]]
    shape = Shape(bool(values[0]), values[1], values[2], name, far=False, checked=False)
    rest = (a, ea, sa, b, eb, sb, tile, blocks, floor, least, scale, reference, scratch, words, ahead)
    rest = tuple(types.int64 if isinstance(t, types.Integer) else t for t in rest)

    def codegen(context, builder, sig, args):
        v, own = Vir(context, builder), args[len(fixed) :]
        pointers = [v.pointer(t, x) if isinstance(t, types.Array) else x for t, x in zip(rest, own, strict=True)]
        named = dict(zip(_NAMES, pointers, strict=False))
        named |= {"sum": named["tile"], "groups": v.int(1), "lines": values[4]}
        named["ahead"] = v.at(pointers[-2], builder.mul(pointers[-1], v.int(4)))
        _Fetching(v, shape, named).emit()
        return context.get_dummy_value()

    return types.void(*fixed, *rest), codegen
