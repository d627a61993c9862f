"""Large products of e2m1 in scaled groups: exact integer sums, f64 for what is scaled, one rounding a step.

In units of the alignment 2**(E-35) a step's terms stay below 2**46 and their sum below 2**49, so where nothing is cut
off a sum of f64 is exact and its conversion to f32 toward zero the only rounding.  A step is cut where a term reaches
below 2**(E-35): bounds of the exponents tell, lane by lane, and the caller does those lanes by the scalar chain.

B is stored as unsigned bytes, 12 above twice the value, for the dot product of bytes; the sums start at minus what that
adds.  A panel is worked on in as many parts as a processor's registers make of its columns, one group after the other:
four rows of a group and their totals are what sixteen registers hold.
"""

from __future__ import annotations

from functools import cache, reduce
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
from llvmlite import ir
from numba.core import cgutils
from numpy.typing import NDArray

from nbtc.compiler.builder import F32, F64, I16, I32, I64, VectorBuilder, vector
from nbtc.compiler.cache.sources import source_digest
from nbtc.compiler.cpu.lowering import lowering
from nbtc.compiler.cpu.plain_lowering import Lowering
from nbtc.compiler.jit import jit
from nbtc.compiler.machine_code.emitted import Named, call_emitted, in_words, machine_code
from nbtc.numerics.fused import Strided, reading
from nbtc.numerics.models import A_FORMAT, B_FORMAT
from nbtc.numerics.scaled import GROUPS, grouped_step

ROWS, LANES = 4, 16  # rows of A that share a vector of B; columns of a panel
STEP, WORDS = 64, 16  # elements of K of an instruction, in words of four
OFFSET = 12  # twice the largest e2m1, 6
HEAD = 2  # numbers of a row's record before the starts of its sums: least field of c that is not cut, least too large
C_PLACES = 12  # c has 23 places below its exponent, the alignment 35: E may be this much above c's
SMALLEST = -139 + 127 - C_PLACES  # of a record's first number: below, the floor of E counts
LARGEST = 0x7F7FFFFF  # bits of the largest f32: a sum cut to it may be an overflow
NORMAL = 0x00800000  # of the least normal one
MANTISSA32, MANTISSA64 = 23, 52  # bits, of f32 and f64


class PackedRows(NamedTuple):
    """Rows of A: bytes [row][step][64], scales f64 [row][step][chunks], records int32 [row][step][HEAD + chunks]."""

    elements: NDArray[np.int8]
    factors: NDArray[np.float64]
    records: NDArray[np.int32]


class PackedColumns(NamedTuple):
    """Columns of B in panels of 16: bytes [panel][step][16][16][4], f64 [..][chunks][16], records int32 [..][2][16]."""

    words: NDArray[np.uint8]
    factors: NDArray[np.float64]
    records: NDArray[np.int32]


def _sums(m: Lowering, totals: list[Any], unsigned: list[Any], signed: list[list[Any]]) -> list[Any]:
    """Totals and dot products of some words of bytes: unsigned words of all totals, signed words a total.

    Where bytes are multiplied in pairs, 16 bits hold a group: at most 16 products of 24 and 12.
    """
    totals, words = list(totals), range(len(unsigned))
    if m.multiplies_octets or not m.multiplies_octet_pairs:
        for w in words:
            totals = [m.octets(x, unsigned[w], own[w]) for x, own in zip(totals, signed, strict=True)]
        return totals
    one = m.v.const(vector(I16, 2 * totals[0].type.count), 1)
    for i, own in enumerate(signed):
        halves = reduce(m.b.add, (m.octet_pairs(unsigned[w], own[w]) for w in words))
        totals[i] = m.b.add(totals[i], m.pairs(halves, one))
    return totals


class _Part:
    """Emits the sums of ROWS rows and some columns of a panel, as many as a register has 32-bit lanes, in one step.

    at: the first of the columns.  words, factors, records: B's; rows: of A's elements, factors and records, a row each.
    """

    def __init__(self, m: Lowering, chunks: int, at: int, column: list[Any], rows: list[list[Any]]) -> None:
        self.m, self.v, self.b, self.chunks, self.at = m, m.v, m.b, chunks, at
        self.lanes = m.row.lanes
        self.words, self.factors, self.records = column
        self.rows = rows
        self.integers, self.f64s = vector(I32, self.lanes), vector(F64, self.lanes // 2)

    def c(self, value: int) -> Any:
        return self.v.const(self.integers, value)

    def half(self, x: Any, half: int) -> Any:
        n = self.lanes // 2
        return self.v.shuffle(x, x, list(range(n * half, n * half + n)))

    def sums(self, cs: list[Any]) -> list[Any]:
        """c + the scaled sums of each row, as f32 bits; zeros are +0."""
        v, b = self.v, self.b
        totals = [[b.fpext(self.half(v.bits(c, vector(F32, self.lanes)), h), self.f64s) for h in range(2)] for c in cs]
        ahead = 2 if self.m.row.registers > 16 else 1  # groups whose sums are in registers at a time
        groups: list[list[Any]] = []
        for g in range(self.chunks):
            groups += [self.group(n) for n in range(len(groups), min(g + ahead, self.chunks))]
            scales = [
                v.load(self.factors, self.f64s, 8, 8 * (LANES * g + self.at + self.lanes // 2 * h)) for h in range(2)
            ]
            for r, n in enumerate(groups[g]):
                own = v.splat(v.load(self.rows[r][1], F64, 8, 8 * g), self.f64s.count)
                for h in range(2):
                    x = b.fmul(b.sitofp(self.half(n, h), self.f64s), scales[h])
                    totals[r][h] = self.m.multiply_add(x, own, totals[r][h])
        return [self.rounded(halves) for halves in totals]

    def group(self, g: int) -> list[Any]:
        """Integer sums of a group of products, of each row."""
        v, count = self.v, WORDS // self.chunks
        words = range(g * count, (g + 1) * count)
        columns = [v.load(self.words, self.integers, 4, 4 * (LANES * w + self.at)) for w in words]
        starts, own = [], []
        for elements, _, records in self.rows:
            starts.append(v.splat(v.load(records, I32, 4, 4 * (HEAD + g)), self.lanes))
            own.append([v.splat(v.load(elements, I32, 4, 4 * w), self.lanes) for w in words])
        return _sums(self.m, starts, columns, own)

    def narrowed(self, x: Any) -> Any:
        """f64 as f32 toward zero; where no instruction does it: of normal numbers, those too large may be infinite."""
        if self.m.row.rounds:
            return self.v.narrowed_rz(x)
        words = vector(I64, x.type.count)
        cut = self.b.and_(self.v.bits(x, words), self.v.const(words, -1 << MANTISSA64 - MANTISSA32))
        return self.b.fptrunc(self.v.bits(cut, x.type), vector(F32, x.type.count))

    def rounded(self, halves: list[Any]) -> Any:
        """Two vectors of f64 as the bits of one of f32."""
        v, b = self.v, self.b
        low, high = (self.narrowed(x) for x in halves)
        new = v.bits(v.shuffle(low, high, list(range(self.lanes))), self.integers)
        zero = b.icmp_unsigned("==", b.shl(new, self.c(1)), self.c(0))
        return b.select(zero, self.c(0), new)

    def needs_fallback(self, c: Any, new: Any, record: Any) -> Any:
        """<lanes x i1>: lanes in which a term, or c, may be cut, or the result overflows."""
        v, b = self.v, self.b
        magnitude = b.and_(c, self.c(0x7FFFFFFF))
        field = b.lshr(magnitude, self.c(23))
        least, most = (
            b.add(
                v.splat(v.load(record, I32, 4, 4 * n), self.lanes),
                v.load(self.records, self.integers, 4, 4 * (LANES * n + self.at)),
            )
            for n in range(2)
        )
        some = b.icmp_unsigned("!=", magnitude, self.c(0))
        cut = b.and_(some, b.icmp_signed("<", field, least))
        large = b.icmp_signed(">=", field, v.smin(most, self.c(255)))
        # most - least = LIMIT + C_PLACES + 1 - (largest - smallest exponent of the groups)
        apart = b.icmp_signed("<", b.sub(most, least), self.c(C_PLACES + 1))
        low = b.icmp_signed("<", least, self.c(SMALLEST))
        size = b.and_(new, self.c(0x7FFFFFFF))
        over = b.icmp_unsigned(">=", size, self.c(LARGEST))
        others = [large, apart, low, over]
        if not self.m.row.rounds:  # `narrowed` rounds subnormal results otherwise
            others.append(b.icmp_unsigned("<", b.sub(size, self.c(1)), self.c(NORMAL)))
        return reduce(b.or_, others, cut)


def _step(
    m: Lowering, chunks: int, cs: list[Any], column: list[Any], rows: list[list[Any]]
) -> tuple[list[Any], list[Any]]:
    """(f32 bits of each row after a step, which lanes it left as they were in the bits of an i16)."""
    v, b, lanes = m.v, m.b, m.row.lanes
    done: list[list[Any]] = [[] for _ in rows]
    bad: list[Any] = [ir.Constant(I16, 0) for _ in rows]
    for at in range(0, LANES, lanes):
        part = _Part(m, chunks, at, column, rows)
        parts = [v.shuffle(c, c, list(range(at, at + lanes))) for c in cs]
        for r, (c, x) in enumerate(zip(parts, part.sums(parts), strict=True)):
            again = part.needs_fallback(c, x, rows[r][2])
            done[r].append(b.select(again, c, x))
            mask = v.bits(again, ir.IntType(lanes))
            mask = mask if lanes == LANES else b.zext(mask, I16)
            bad[r] = b.or_(bad[r], b.shl(mask, ir.Constant(I16, at)))
    return [v.joined(parts) for parts in done], bad


class GroupedBlockArguments(NamedTuple):
    """Of all steps from one to another of a block of outputs, rows `row` to `rows` and panels up to `panels`.

    d: flat f32 bits of padded rows, `width` to a row.  steps: of the packed operands.  doubt: uint16, a mask for each
    of ROWS rows.  place: int64, the panel, row and step to begin with, -1 for the first.

    The result is 1 when all is done, 0 where lanes of `doubt` keep what they were and have to be done again: `place`
    is then where to go on.
    """

    left: PackedRows
    right: PackedColumns
    d: NDArray[np.uint32]
    width: int
    steps: int
    first: int
    last: int
    row: int
    rows: int
    panels: int
    doubt: NDArray[np.uint16]
    place: NDArray[np.int64]


class _GroupedBlock:
    """Writes the function of a block."""

    def __init__(self, v: VectorBuilder, chunks: int, x: Named) -> None:
        self.v, self.b, self.chunks, self.x = v, v.b, chunks, x

    def emit(self) -> Any:
        v, b, x = self.v, self.b, self.x
        panel, row, step = (v.load(x["place"], I64, 8, 8 * n) for n in range(3))
        step = b.select(b.icmp_signed("<", step, v.int(0)), x["first"], step)
        rows, begin = (cgutils.alloca_once_value(b, y) for y in (row, step))
        with cgutils.for_range_slice(b, panel, x["panels"], v.int(1), I64) as (j, _):
            with cgutils.for_range_slice(b, b.load(rows), x["rows"], v.int(ROWS), I64) as (i, _):
                with b.if_then(b.icmp_signed("<", b.load(begin), x["last"])):
                    self.tile(j, i, b.load(begin))
                b.store(x["first"], begin)
            b.store(x["row"], rows)
        return v.int(1)

    def tile(self, panel: Any, i: Any, step: Any) -> None:
        """ROWS rows of a panel from a step on."""
        v, b, x = self.v, self.b, self.x
        following = self.walk(panel, i, step)
        words = v.load(x["doubt"], vector(I16, ROWS), 2)
        with b.if_then(b.icmp_unsigned("!=", v.bits(words, I64), v.int(0)), likely=False):
            for n, number in enumerate((panel, i, following)):
                v.store(number, x["place"], 8, 8 * n)
            b.ret(v.int(0))

    def walk(self, panel: Any, i: Any, step: Any) -> Any:
        """Steps up to one after which lanes have to be done again, or the last; the step that follows."""
        v, b, x, count = self.v, self.b, self.x, self.chunks
        t, stride = vector(I32, LANES), x["steps"]
        line, base = b.mul(i, stride), b.mul(panel, stride)  # steps before them
        rows_of = (("elements", STEP), ("factors", 8 * count), ("records", 4 * (HEAD + count)))
        columns_of = (("words", 4 * WORDS * LANES), ("factors", 8 * count * LANES), ("records", 4 * 2 * LANES))
        place = b.add(b.mul(i, x["width"]), b.mul(panel, v.int(LANES)))
        goals = [v.at(x["d"], b.shl(b.add(place, b.mul(x["width"], v.int(r))), v.int(2))) for r in range(ROWS)]
        start = [v.load(p, t, 4) for p in goals]
        entry, body, end = b.block, b.append_basic_block("steps"), b.append_basic_block("done")
        b.branch(body)
        b.position_at_end(body)
        at = b.phi(I64)
        at.add_incoming(step, entry)
        cs = [b.phi(t) for _ in range(ROWS)]
        for c, s in zip(cs, start, strict=True):
            c.add_incoming(s, entry)
        column = [v.at(x["right"][name], b.mul(b.add(base, at), v.int(size))) for name, size in columns_of]
        lines = [b.add(b.add(line, b.mul(stride, v.int(r))), at) for r in range(ROWS)]
        own = [[v.at(x["left"][name], b.mul(n, v.int(size))) for name, size in rows_of] for n in lines]
        new, bad = _step(lowering(v), count, cs, column, own)
        for r in range(ROWS):
            v.store(bad[r], x["doubt"], 2, 2 * r)
        following = b.add(at, v.int(1))
        at.add_incoming(following, b.block)
        for c, y in zip(cs, new, strict=True):
            c.add_incoming(y, b.block)
        sound = b.icmp_unsigned("==", reduce(b.or_, bad), ir.Constant(I16, 0))
        b.cbranch(b.and_(sound, b.icmp_signed("<", following, x["last"])), body, end)
        b.position_at_end(end)
        for y, p in zip(new, goals, strict=True):
            v.store(y, p, 4)
        return following


@cache
def block_code(chunks: int) -> int:
    """The address of the function of `GroupedBlockArguments` for so many scales a step."""
    functions = {"block": in_words(GroupedBlockArguments, lambda v, x: _GroupedBlock(v, chunks, x).emit())}
    loaded = machine_code(functions, source_digest(Path(__file__).resolve()), "group_dot", str(chunks))
    return loaded.address("block")


class BlockWorkspace(NamedTuple):
    """Memory of one block: `doubt` and `place` of its arguments, sums and exponents of one step's groups."""

    doubt: NDArray[np.uint16]
    place: NDArray[np.int64]
    groups: NDArray[np.int64]

    @classmethod
    def new(cls, panel: int, row: int) -> Self:
        """Of callers, since a kernel that makes an array takes a quarter of a second more to compile."""
        return cls(np.zeros(ROWS, np.uint16), np.array([panel, row, -1]), np.zeros((2, GROUPS), np.int64))


@jit
def finish(block, words, d, codes, scales, params, sizes, scratch):
    """A block after lanes in doubt were met: those one at a time, then on with the function at `block`, to the end.

    Not a part of that: few products have such lanes, and what does them takes longer to compile than everything else.

    d: flat f32 bits; codes: the operands as `scaled_chain` takes them (a, b, xs, ys flat); sizes: K, columns of d, N,
    scales a row, M.
    """
    done = np.int64(0)
    while done == 0:
        _again(d, codes, scales, params, sizes, scratch)
        done = call_emitted(block, words)


@jit
def _again(d, codes, scales, params, sizes, scratch):
    """The lanes that a step left as they were, one at a time."""
    k, ldd, n, s, m = sizes[0], sizes[1], sizes[2], sizes[3], sizes[4]
    j, i, step = scratch.place[0] * LANES, scratch.place[1], scratch.place[2] - 1
    at, chunk = step * STEP, step * scales.chunks
    readings = reading(params[A_FORMAT]), reading(params[B_FORMAT])
    for r in range(ROWS):
        mask = np.int64(scratch.doubt[r])
        for lane in range(LANES):
            column = j + lane
            if mask >> lane & 1 and column < n and i + r < m:
                a = Strided(codes.a, (i + r) * k + at, 1)
                b = Strided(codes.b, at * n + column, n)
                xs = Strided(codes.xs, (i + r) * s + chunk, 1)
                ys = Strided(codes.ys, chunk * n + column, n)
                place = (i + r) * ldd + column
                here, c = min(STEP, k - at), np.int64(d[place])
                d[place] = np.uint32(grouped_step(a, b, here, readings, c, xs, ys, scales, params, scratch.groups))
