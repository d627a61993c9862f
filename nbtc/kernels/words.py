"""Register-tiled products of words: int8 (four a word), bits (32 a word) and f64; rows of A are packed on the way.

Six rows by four vectors of accumulators stay in registers while k runs; a word of A is broadcast against four vectors
of B.  The IR is generic except for VPDPBUSD and the directed roundings, so the same kernel serves every host.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

from nbtc.compiler.builder import F64, I32, I64, VectorBuilder, vector
from nbtc.compiler.host import has_avx512
from nbtc.compiler.jit import jit
from nbtc.kernels.words_pack import BYTES, NIBBLES, row_words

ROWS, VECTORS = 6, 4  # 24 accumulators, 4 vectors of B and a broadcast fill 29 of 32 registers
BLOCK = 16 * ROWS  # rows packed at a time
# operations, as numbered in the literal argument of the intrinsic
DOT, XOR, AND, FMA = range(4)
ROUND = {"rn": 0, "rz": 11, "rm": 9, "rp": 10}  # embedded rounding; 0: the ordinary fma


def dot_words(v: VectorBuilder, total: Any, a: Any, b: Any) -> Any:
    """total + the dot product of four signed bytes of a and four unsigned bytes of b, a lane."""
    if has_avx512("avx512vnni"):
        name = "llvm.x86.avx512.vpdpbusd.512"
        return v.call(name, total.type, total, b, a)  # of words, as its first LLVM had it: every later one knows it
    t = total.type
    for i in range(4):
        x = v.b.ashr(v.b.shl(a, v.const(t, 24 - 8 * i)), v.const(t, 24))
        y = v.b.and_(v.b.lshr(b, v.const(t, 8 * i)), v.const(t, 255))
        total = v.b.add(total, v.b.mul(x, y))
    return total


def _step(v: VectorBuilder, op: int, rounding: int, total: Any, a: Any, b: Any) -> Any:
    if op == DOT:
        return dot_words(v, total, a, b)
    if op == FMA:
        return v.fma512(a, b, total, rounding) if rounding else v.fma(a, b, total)
    both = v.b.and_(a, b) if op == AND else v.b.xor(a, b)
    return v.b.add(total, v.popcount(both))


def _correct(v: VectorBuilder, sums: dict[tuple[int, int], Any], down: Any, across: Any) -> None:
    """Add a row's and a column's corrections to the start values."""
    t = vector(I32, 16)
    for j in range(VECTORS):
        column = v.load(across, t, 4, 64 * j)
        for r in range(ROWS):
            row = v.splat(v.load(down, I32, 4, 4 * r), 16)
            sums[r, j] = v.b.add(sums[r, j], v.b.add(row, column))


@intrinsic(prefer_literal=True)  # type: ignore[untyped-decorator, unused-ignore]
def _tile(typing, op, rounding, a, a0, b, b0, d, d0, ld, depth, down, i, across, j):
    """d[6 rows of stride ld][4 vectors] += A * B over `depth` words; a: [k][6], b: [k][4 vectors], element offsets.

    DOT: down[i + row] and across[j + column] are added too.
    """
    if not all(isinstance(x, types.IntegerLiteral) for x in (op, rounding)):
        return None
    kind, mode = op.literal_value, rounding.literal_value
    wide = kind == FMA
    element, lanes, size = (F64, 8, 8) if wide else (I32, 16, 4)
    t = vector(element, lanes)

    def codegen(context, builder, sig, args):
        v = VectorBuilder(context, builder)
        pa, pb, pd = (v.pointer(sig.args[i], args[i]) for i in (2, 4, 6))
        a0, b0, d0, ld, depth = (args[i] for i in (3, 5, 7, 8, 9))
        b = builder
        pa, pb, pd = (v.at(p, b.mul(o, v.int(size))) for p, o in ((pa, a0), (pb, b0), (pd, d0)))
        place = lambda r, j: v.at(pd, b.mul(ld, v.int(size * r)), 64 * j)  # noqa: E731
        keys = [(r, j) for r in range(ROWS) for j in range(VECTORS)]
        start = {x: v.load(place(*x), t, size) for x in keys}
        if kind == DOT:
            _correct(v, start, *(v.at(v.pointer(sig.args[n], args[n]), b.mul(args[n + 1], v.int(4))) for n in (10, 12)))
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

    rest = (
        a, types.int64, b, types.int64, d, types.int64, types.int64, types.int64,
        down, types.int64, across, types.int64,
    )  # fmt: skip
    return types.void(op, rounding, *rest), codegen


@cache
def rows_kernel(op: int, rounding: int, source: int) -> Any:
    """kernel(x, x0, ld, rows, units, signed, flip, y, b, across, d, d0, ldd, columns, a, tile, down): d += A * B.

    x: flat units of A, the first at x0, rows ld apart; b: packed [panel][k][4 vectors] with the columns' corrections;
    d: flat accumulators with leading dimension ldd, the block's first at d0.  av, down: room for `BLOCK` packed rows
    and their corrections; its first ROWS * width words beyond them serve as a tile.
    """
    width = 32 if op == FMA else 64
    pack = row_words(source, ROWS)

    @jit
    def edge(a, at, b, to, d, d0, ldd, depth, rows, columns, tile, down, i, across, j):
        """A tile that is not whole, in a whole one."""
        for r in range(rows):
            for c in range(columns):
                tile[r * width + c] = d[d0 + r * ldd + c]
        _tile(op, rounding, a, at, b, to, tile, 0, width, depth, down, i, across, j)
        for r in range(rows):
            for c in range(columns):
                d[d0 + r * ldd + c] = tile[r * width + c]

    @jit
    def multiply(a, b, d, d0, ldd, rows, columns, depth, tile, down, across):
        for panel in range((columns + width - 1) // width):
            have, to, j = min(width, columns - panel * width), panel * width * depth, panel * width
            for i in range(0, rows, ROWS):
                at, goal = i * depth, d0 + i * ldd + j
                if have == width and i + ROWS <= rows:
                    _tile(op, rounding, a, at, b, to, d, goal, ldd, depth, down, i, across, j)
                else:
                    count = min(ROWS, rows - i)
                    edge(a, at, b, to, d, goal, ldd, depth, count, have, tile, down, i, across, j)

    @jit
    def run(x, x0, ld, rows, units, signed, flip, y, b, across, d, d0, ldd, columns, a, tile, down):
        depth = 2 * units if source == NIBBLES else (units + 3) >> 2 if source == BYTES else units
        for i in range(0, rows, BLOCK):
            count = min(BLOCK, rows - i)
            pack(x, x0 + i * ld, ld, count, units, a, down, signed, flip, y)
            multiply(a, b, d, d0 + i * ldd, ldd, count, columns, depth, tile, down, across)

    return run
