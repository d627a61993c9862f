"""Large products of e2m1 in scaled groups: exact integer sums, f64 for what is scaled, one rounding a step.

In units of the alignment 2**(E-35) a step's terms stay below 2**46 and their sum below 2**49, so where nothing is cut
off a sum of f64 is exact and its conversion to f32 toward zero the only rounding.  A step is cut where a term reaches
below 2**(E-35): bounds of the exponents tell, lane by lane, and the caller does those lanes by the scalar chain.

B is stored as unsigned bytes, 12 above twice the value, for the dot product of bytes; the sums start at minus what that
adds.
"""

from __future__ import annotations

from functools import cache, reduce
from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic
from numpy.typing import NDArray

from nbtc.compiler.builder import F32, F64, I8, I16, I32, I64, ROUND_TOWARD_ZERO, VectorBuilder, vector
from nbtc.compiler.jit import jit
from nbtc.compiler.lowering import lowering
from nbtc.numerics.fused import Strided
from nbtc.numerics.scaled import scaled_chain

ROWS, LANES = 4, 16  # rows of A that share a vector of B; columns of a panel
STEP, WORDS = 64, 16  # elements of K of an instruction, in words of four
OFFSET = 12  # twice the largest e2m1, 6
HEAD = 2  # numbers of a row's record before the starts of its sums: least field of c that is not cut, least too large
C_PLACES = 12  # c has 23 places below its exponent, the alignment 35: E may be this much above c's
SMALLEST = -139 + 127 - C_PLACES  # of a record's first number: below, the floor of E counts
LARGEST = 0x7F7FFFFF  # bits of the largest f32: a sum cut to it may be an overflow
RZ = ir.Constant(I32, ROUND_TOWARD_ZERO)


class PackedRows(NamedTuple):
    """Rows of A: bytes [row][step][64], scales f64 [row][step][chunks], records int32 [row][step][HEAD + chunks]."""

    elements: NDArray[np.int8]
    factors: NDArray[np.float64]
    records: NDArray[np.int32]


class PackedColumns(NamedTuple):
    """Columns of B in panels of 16: words [panel][step][16][16], f64 [..][chunks][16], records int32 [..][2][16]."""

    words: NDArray[np.uint32]
    factors: NDArray[np.float64]
    records: NDArray[np.int32]


class Goal(NamedTuple):
    """Where results go: flat f32 bits, the place of the first, and from one row to the next."""

    d: NDArray[np.uint32]
    first: Any
    ld: Any


def _half(v: VectorBuilder, x: Any, half: int) -> Any:
    return v.shuffle(x, x, list(range(8 * half, 8 * half + 8)))


def _narrow(v: VectorBuilder, low: Any, high: Any) -> Any:
    """Two vectors of f64 as one of f32, toward zero."""
    t = vector(F32, 8)
    name, every = "llvm.x86.avx512.mask.cvtpd2ps.512", ir.Constant(I8, -1)
    halves = [v.call(name, t, x, ir.Constant(t, [0.0] * 8), every, RZ) for x in (low, high)]
    return v.shuffle(halves[0], halves[1], list(range(LANES)))


def _doubtful(v: VectorBuilder, c: Any, new: Any, record: Any, column: Any) -> Any:
    """<16 x i1>: lanes in which a term, or c, may be cut, or the result overflows."""
    b, t = v.b, vector(I32, LANES)
    magnitude = b.and_(c, v.const(t, 0x7FFFFFFF))
    field = b.lshr(magnitude, v.const(t, 23))
    least, most = (b.add(v.splat(v.load(record, I32, 4, 4 * n), LANES), v.load(column, t, 4, 64 * n)) for n in range(2))
    some = b.icmp_unsigned("!=", magnitude, v.const(t, 0))
    cut = b.and_(some, b.icmp_signed("<", field, least))
    large = b.icmp_signed(">=", field, v.smin(most, v.const(t, 255)))
    # most - least = LIMIT + C_PLACES + 1 - (largest - smallest exponent of the groups)
    apart = b.icmp_signed("<", b.sub(most, least), v.const(t, C_PLACES + 1))
    low = b.icmp_signed("<", least, v.const(t, SMALLEST))
    over = b.icmp_unsigned(">=", b.and_(new, v.const(t, 0x7FFFFFFF)), v.const(t, LARGEST))
    for other in (large, apart, low, over):
        cut = b.or_(cut, other)
    return cut


def _row(v: VectorBuilder, chunks: int, sums: list[Any], c: Any, factors: list[Any], column: Any) -> Any:
    """c + the scaled sums of one row, as f32 bits; zeros are +0."""
    b, f, t = v.b, vector(F32, LANES), vector(I32, LANES)
    wide = vector(F64, 8)
    halves = []
    for half in range(2):
        total = b.fpext(_half(v, v.bits(c, f), half), wide)
        for g in range(chunks):
            x = b.sitofp(_half(v, sums[g], half), wide)
            x = b.fmul(x, v.load(column, wide, 8, 8 * (LANES * g + 8 * half)))
            total = v.fma(x, factors[g], total)
        halves.append(total)
    new = v.bits(_narrow(v, *halves), t)
    zero = b.icmp_unsigned("==", b.shl(new, v.const(t, 1)), v.const(t, 0))
    return b.select(zero, v.const(t, 0), new)


@intrinsic(prefer_literal=True)  # type: ignore[untyped-decorator, unused-ignore]
def _steps(typing, chunks, left, row, right, panel, steps, goal, cut, again):
    """Steps of ROWS rows and the 16 columns of a panel, up to one after which lanes have to be done again.

    steps: how many there are; cut: from one to another of them.  again: uint16, a mask of those lanes for each row;
    they keep what they were.
    """
    if not isinstance(chunks, types.IntegerLiteral):
        return None
    count = chunks.literal_value
    t = vector(I32, LANES)

    def codegen(context, builder, sig, args):
        v = VectorBuilder(context, builder)
        b = builder
        _, _, row, _, panel, stride, _, _, _ = args
        first, last = (b.extract_value(args[7], n) for n in range(2))
        at_left, at_right, goal = (v.fields(sig.args[i], args[i]) for i in (1, 3, 6))
        line, base = b.mul(row, stride), b.mul(panel, stride)  # steps before them
        pa, psa, pra = (
            v.at(at_left[name], b.mul(line, v.int(size)))
            for name, size in (("elements", STEP), ("factors", 8 * count), ("records", 4 * (HEAD + count)))
        )
        pb, psb, prb = (
            v.at(at_right[name], b.mul(base, v.int(size * LANES)))
            for name, size in (("words", 4 * WORDS), ("factors", 8 * count), ("records", 4 * 2))
        )
        masks = v.pointer(sig.args[8], args[8])
        pd = v.at(goal["d"], b.mul(goal["first"], v.int(4)))
        places = [v.at(pd, b.mul(goal["ld"], v.int(4 * r))) for r in range(ROWS)]
        start = [v.load(p, t, 4) for p in places]
        entry, body, end = b.block, b.append_basic_block("steps"), b.append_basic_block("done")
        b.branch(body)
        b.position_at_end(body)
        step = b.phi(I64)
        step.add_incoming(first, entry)
        cs = [b.phi(t) for _ in range(ROWS)]
        for c, s in zip(cs, start, strict=True):
            c.add_incoming(s, entry)
        lines = [b.add(b.mul(stride, v.int(r)), step) for r in range(ROWS)]
        rows = [v.at(pa, b.mul(n, v.int(STEP))) for n in lines]
        factors = [v.at(psa, b.mul(n, v.int(8 * count))) for n in lines]
        records = [v.at(pra, b.mul(n, v.int(4 * (HEAD + count)))) for n in lines]
        words = v.at(pb, b.mul(step, v.int(64 * WORDS)))
        scale, column = v.at(psb, b.mul(step, v.int(8 * LANES * count))), v.at(prb, b.mul(step, v.int(8 * LANES)))
        sums = [[v.splat(v.load(p, I32, 4, 4 * (HEAD + g)), LANES) for g in range(count)] for p in records]
        for w in range(WORDS):
            y = v.load(words, t, 4, 64 * w)
            for r in range(ROWS):
                g = w * count // WORDS
                sums[r][g] = lowering(v).octets(sums[r][g], y, v.splat(v.load(rows[r], I32, 4, 4 * w), LANES))
        new, bad = [], []
        for r in range(ROWS):
            own = [v.splat(v.load(factors[r], F64, 8, 8 * g), 8) for g in range(count)]
            x = _row(v, count, sums[r], cs[r], own, scale)
            doubtful = _doubtful(v, cs[r], x, records[r], column)
            new.append(b.select(doubtful, cs[r], x))
            bad.append(v.bits(doubtful, I16))
        for r in range(ROWS):
            v.store(bad[r], masks, 2, 2 * r)
        some = reduce(b.or_, bad)
        following = b.add(step, v.int(1))
        step.add_incoming(following, b.block)
        for c, x in zip(cs, new, strict=True):
            c.add_incoming(x, b.block)
        go = b.and_(b.icmp_unsigned("==", some, ir.Constant(I16, 0)), b.icmp_signed("<", following, last))
        b.cbranch(go, body, end)
        b.position_at_end(end)
        for x, p in zip(new, places, strict=True):
            v.store(x, p, 4)
        return following

    one = types.int64
    return one(chunks, left, one, right, one, one, goal, types.UniTuple(one, 2), again), codegen


@cache
def block_kernel(chunks: int) -> Any:
    """kernel(left, right, d, codes, scales, params, sizes, cut, rows, panels): steps of a block of outputs.

    left, right: packed operands of all steps; d: flat f32 bits (padded rows, columns of sizes[1]); codes: the operands
    as `scaled_chain` takes them (a, b, xs, ys flat); sizes: K, columns of d, N, steps, scales a row, M; cut, rows and
    panels: (first, last) of steps, rows and panels.
    """

    @jit
    def again(d, codes, scales, params, sizes, step, i, j, doubt, room):
        """The lanes that a step left as they were, one at a time."""
        k, ldd, n, s, m = sizes[0], sizes[1], sizes[2], sizes[4], sizes[5]
        at, chunk = step * STEP, step * chunks
        for r in range(ROWS):
            mask = np.int64(doubt[r])
            for lane in range(LANES):
                column = j + lane
                if mask >> lane & 1 and column < n and i + r < m:
                    a = Strided(codes.a, (i + r) * k + at, 1)
                    b = Strided(codes.b, at * n + column, n)
                    xs = Strided(codes.xs, (i + r) * s + chunk, 1)
                    ys = Strided(codes.ys, chunk * n + column, n)
                    place = (i + r) * ldd + column
                    start = np.uint64(d[place])
                    d[place] = np.uint32(scaled_chain(a, b, min(STEP, k - at), start, xs, ys, scales, params, room))

    @jit
    def kernel(left, right, d, codes, scales, params, sizes, cut, rows, panels):
        steps = sizes[3]
        doubt, room = np.zeros(ROWS, np.uint16), np.zeros((2, 8), np.int64)
        for panel in range(panels[0], panels[1]):
            j = panel * LANES
            for i in range(rows[0], rows[1], ROWS):
                goal, step = Goal(d, i * sizes[1] + j, sizes[1]), cut[0]
                while step < cut[1]:
                    step = _steps(chunks, left, i, right, panel, steps, goal, (step, cut[1]), doubt)
                    if doubt.any():
                        again(d, codes, scales, params, sizes, step - 1, i, j, doubt, room)

    return kernel
