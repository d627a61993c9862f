"""Register-tiled products of words: int8 (four a word), bits (32 a word) and f64.

Six rows by four vectors of accumulators stay in registers while k runs; a word of A is broadcast against four vectors
of B.  The IR is generic except for VPDPBUSD and the directed roundings, so the same kernel serves every host.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

from nbtc._host import has_avx512
from nbtc._jit import jit
from nbtc._vir import F64, I8, I32, I64, Vir, vector

ROWS, VECTORS = 6, 4  # 24 accumulators, 4 vectors of B and a broadcast fill 29 of 32 registers
BYTES = ROWS * VECTORS * 64  # of a tile of accumulators
# operations, as numbered in the literal argument of the intrinsic
DOT, XOR, AND, FMA = range(4)
ROUND = {"rn": 0, "rz": 11, "rm": 9, "rp": 10}  # embedded rounding; 0: the ordinary fma


def dot_words(v: Vir, total: Any, a: Any, b: Any) -> Any:
    """total + the dot product of four signed bytes of a and four unsigned bytes of b, a lane."""
    if has_avx512("avx512vnni"):
        octets = vector(I8, 64)
        name = "llvm.x86.avx512.vpdpbusd.512"
        return v.call(name, total.type, total, v.bits(b, octets), v.bits(a, octets))
    t = total.type
    for i in range(4):
        x = v.b.ashr(v.b.shl(a, v.const(t, 24 - 8 * i)), v.const(t, 24))
        y = v.b.and_(v.b.lshr(b, v.const(t, 8 * i)), v.const(t, 255))
        total = v.b.add(total, v.b.mul(x, y))
    return total


def _step(v: Vir, op: int, rounding: int, total: Any, a: Any, b: Any) -> Any:
    if op == DOT:
        return dot_words(v, total, a, b)
    if op == FMA:
        return v.fma512(a, b, total, rounding) if rounding else v.fma(a, b, total)
    both = v.b.and_(a, b) if op == AND else v.b.xor(a, b)
    return v.b.add(total, v.popcount(both))


@intrinsic(prefer_literal=True)  # type: ignore[untyped-decorator, unused-ignore]
def _tile(typing, op, rounding, a, a0, b, b0, d, d0, ld, depth):
    """d[6 rows of stride ld][4 vectors] += A * B over `depth` words; a: [k][6], b: [k][4 vectors], element offsets."""
    if not all(isinstance(x, types.IntegerLiteral) for x in (op, rounding)):
        return None
    kind, mode = op.literal_value, rounding.literal_value
    wide = kind == FMA
    element, lanes, size = (F64, 8, 8) if wide else (I32, 16, 4)
    t = vector(element, lanes)

    def codegen(context, builder, sig, args):
        v = Vir(context, builder)
        pa, pb, pd = (v.pointer(sig.args[i], args[i]) for i in (2, 4, 6))
        a0, b0, d0, ld, depth = (args[i] for i in (3, 5, 7, 8, 9))
        b = builder
        pa, pb, pd = (v.at(p, b.mul(o, v.int(size))) for p, o in ((pa, a0), (pb, b0), (pd, d0)))
        place = lambda r, j: v.at(pd, b.mul(ld, v.int(size * r)), 64 * j)  # noqa: E731
        keys = [(r, j) for r in range(ROWS) for j in range(VECTORS)]
        start = {x: v.load(place(*x), t, size) for x in keys}
        entry = b.block
        body, end = b.append_basic_block("words"), b.append_basic_block("done")
        b.branch(body)
        b.position_at_end(body)
        k = b.phi(I64)
        sums = {x: b.phi(t) for x in keys}
        k.add_incoming(ir.Constant(I64, 0), entry)
        for x in keys:
            sums[x].add_incoming(start[x], entry)
        row, column = v.at(pa, b.mul(k, v.int(size * ROWS))), v.at(pb, b.mul(k, v.int(64 * VECTORS)))
        bs = [v.load(column, t, size, 64 * j) for j in range(VECTORS)]
        new = {}
        for r in range(ROWS):
            x = v.splat(v.load(row, element, size, size * r), lanes)
            for j in range(VECTORS):
                new[r, j] = _step(v, kind, mode, sums[r, j], x, bs[j])
        following = b.add(k, v.int(1))
        k.add_incoming(following, b.block)
        for x in keys:
            sums[x].add_incoming(new[x], b.block)
        b.cbranch(b.icmp_signed("<", following, depth), body, end)
        b.position_at_end(end)
        for x in keys:
            v.store(new[x], place(*x), size)
        return context.get_dummy_value()

    rest = (a, types.int64, b, types.int64, d, types.int64, types.int64, types.int64)
    return types.void(op, rounding, *rest), codegen


@cache
def rows_kernel(op: int, rounding: int) -> Any:
    """kernel(a, b, d, d0, ld, rows, columns, depth, scratch): d += A * B for a block of rows and some panels.

    a: packed [row tile][k][6]; b: packed [panel][k][4 vectors]; d: flat accumulators with leading dimension ld, the
    block's first at d0.
    """
    width = 32 if op == FMA else 64

    @jit
    def run(a, b, d, d0, ld, rows, columns, depth, scratch):
        for panel in range((columns + width - 1) // width):
            across = min(width, columns - panel * width)
            for tile in range((rows + ROWS - 1) // ROWS):
                down = min(ROWS, rows - tile * ROWS)
                at = d0 + tile * ROWS * ld + panel * width
                if across == width and down == ROWS:
                    _tile(op, rounding, a, tile * ROWS * depth, b, panel * width * depth, d, at, ld, depth)
                    continue
                for r in range(down):
                    for j in range(across):
                        scratch[r * width + j] = d[at + r * ld + j]
                _tile(op, rounding, a, tile * ROWS * depth, b, panel * width * depth, scratch, 0, width, depth)
                for r in range(down):
                    for j in range(across):
                        d[at + r * ld + j] = scratch[r * width + j]

    return run
