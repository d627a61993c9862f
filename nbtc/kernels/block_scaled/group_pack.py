"""Packing of e2m1 operands and their block scales for `group_dot`: bytes, f64 factors and bounds of exponents.

What packs is emitted: as kernels of Numba's it took two seconds of a first product to compile.
"""

from __future__ import annotations

from functools import cache, reduce
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir
from numba.core import cgutils
from numpy.typing import NDArray

from nbtc.compiler.builder import F64, I8, I32, I64, VectorBuilder, stack_array, vector
from nbtc.compiler.cache.sources import source_digest
from nbtc.compiler.machine_code.emitted import Named, in_words, machine_code
from nbtc.formats.block_scales import scale_table
from nbtc.formats.table import Format, ue4m3, ue8m0
from nbtc.kernels.block_scaled.group_dot import C_PLACES, HEAD, LANES, OFFSET, STEP, WORDS, PackedColumns, PackedRows
from nbtc.numerics import models

FRACTION, FLOOR = 35, -139
# The row of a model whose sums `group_dot` has, in places that this fraction leaves: f64 holds no others exactly.
SERVED = {models.KIND: models.Kind.GROUPED, models.BLOCK: 16, models.FRACTION: FRACTION, models.FLOOR: FLOOR}
BIAS32 = 127  # of the fields that bounds are compared with
NAN_EXPONENT = 1 << 20  # marks a NaN among exponents
FORMATS = {f.name: f for f in (ue8m0, ue4m3)}  # of scales
QUARTER = 0.25  # both operands are doubled


class ScaleFactors(NamedTuple):
    """Of every byte as a scale: its value in A, in B, and its exponent."""

    left: NDArray[np.float64]
    right: NDArray[np.float64]
    exponents: NDArray[np.int32]


class GroupedOperand(NamedTuple):
    """An operand, flat: codes of its elements and scales, K and the outer size, and steps of K."""

    codes: NDArray[np.uint8]
    scales: NDArray[np.uint8]
    k: int
    size: int
    steps: int


class GroupedRowsArguments(NamedTuple):
    """Of rows `first` to `last`, some of which may lie beyond the operand's."""

    source: GroupedOperand
    table: ScaleFactors
    packed: PackedRows
    special: NDArray[np.bool_]
    first: int
    last: int


class GroupedColumnsArguments(NamedTuple):
    """The same of panels of 16 columns."""

    source: GroupedOperand
    table: ScaleFactors
    packed: PackedColumns
    special: NDArray[np.bool_]
    first: int
    last: int


@cache
def table(scale: str) -> ScaleFactors:
    """That of a format of scales."""
    codes = scale_table(FORMATS[scale])
    values = np.where(codes.nan, 1.0, codes.values)
    return ScaleFactors(values * QUARTER, values, np.where(codes.nan, NAN_EXPONENT, codes.exponents).astype(np.int32))


def _limit(fmt: Format) -> int:
    """How far below the largest exponent nothing is cut off.

    A group's sum counts quarters, times the significands of two scales: E may be 35 less those places above.
    """
    return FRACTION - 2 - 2 * fmt.mantissa


@cache
def packers(scale: str, chunks: int) -> tuple[int, int]:
    """Addresses of (rows, columns): pack lines of A, and panels of B, of `chunks` scales of a format a step."""
    functions = {
        "rows": in_words(GroupedRowsArguments, lambda v, x: _GroupedRows(v, chunks, x).emit(_limit(FORMATS[scale]))),
        "columns": in_words(GroupedColumnsArguments, lambda v, x: _GroupedColumns(v, chunks, x).emit()),
    }
    loaded = machine_code(functions, source_digest(Path(__file__).resolve()), "group_pack", scale, str(chunks))
    return loaded.address("rows"), loaded.address("columns")


def twice(v: VectorBuilder, codes: Any) -> Any:
    """Twice the e2m1 numbers of codes in bytes: 0 to 3, then 4, 6 and 8, 12, and their negatives."""
    b, t = v.b, codes.type

    def c(value: int) -> Any:
        return v.const(t, value)

    magnitude = b.and_(codes, c(7))
    significand = b.or_(b.and_(magnitude, c(1)), c(2))
    large = b.icmp_unsigned(">=", magnitude, c(6))
    normal = b.select(large, b.shl(significand, c(2)), b.shl(significand, c(1)))
    x = b.select(b.icmp_unsigned("<", magnitude, c(4)), magnitude, normal)
    return b.select(b.icmp_unsigned(">=", codes, c(8)), b.sub(c(0), x), x)


class _GroupedPacker:
    """What both have: the operand with its arguments, and bounds of the exponents of one line's scales."""

    def __init__(self, v: VectorBuilder, chunks: int, x: Named) -> None:
        self.v, self.b, self.chunks, self.x, self.group = v, v.b, chunks, x, STEP // chunks
        self.source, self.packed = x["source"], x["packed"]
        self.k, self.size, self.steps = (self.source[name] for name in ("k", "size", "steps"))

    def lines(self) -> Any:
        """A loop over the rows, or panels, asked for."""
        return cgutils.for_range_slice(self.b, self.x["first"], self.x["last"], self.v.int(1), I64)

    def fetched(self, at: Any, place: Any, have: Any, whole: int, buffer: Any) -> Any:
        """Where `whole` bytes of the operand are: in place, or with zeros after the `have` that there are."""
        v, b = self.v, self.b
        part = b.icmp_signed("<", have, v.int(whole))
        with b.if_then(part, likely=False):
            v.store(v.const(vector(I8, whole), 0), buffer, whole)
            with cgutils.for_range(b, have) as loop:
                v.store(v.load(at, I8, 1, b.add(place, loop.index)), buffer, 1, loop.index)
        return b.select(part, buffer, v.at(at, place))

    def scale(self, inside: Any, place: Any) -> Any:
        """The code of a scale as an index; of what is not inside, any."""
        return self.b.zext(self.v.load(self.source["scales"], I8, 1, self.b.select(inside, place, self.v.int(0))), I64)

    def factor(self, inside: Any, code: Any, side: str) -> Any:
        """Its value; 0.0 beyond the operand."""
        value = self.v.load(self.x["table"][side], F64, 8, self.b.shl(code, self.v.int(3)))
        return self.b.select(inside, value, self.v.const(F64, 0.0))

    def bounds(self, codes: list[Any], used: list[Any], found: Any) -> tuple[Any, Any, Any]:
        """Least and largest exponent of a line's blocks in use, if any is, else those that were found; if one is NaN.

        used: i1s.  found: memory of the two.
        """
        v, b = self.v, self.b
        low, high, bad = v.const(I32, 1 << 20), v.const(I32, -(1 << 20)), ir.Constant(ir.IntType(1), 0)
        for code, counts in zip(codes, used, strict=True):
            e = v.load(self.x["table"]["exponents"], I32, 4, b.shl(code, v.int(2)))
            value = v.load(self.x["table"]["right"], F64, 8, b.shl(code, v.int(3)))
            bad = b.or_(bad, b.icmp_signed("==", e, v.const(I32, NAN_EXPONENT)))
            counts = b.and_(counts, b.fcmp_ordered("!=", value, v.const(F64, 0.0)))
            low, high = b.select(counts, v.smin(low, e), low), b.select(counts, v.smax(high, e), high)
        none = b.icmp_signed("<", high, low)
        low, high = (b.select(none, v.load(found, I32, 4, 4 * n), x) for n, x in enumerate((low, high)))
        v.store(low, found, 4)
        v.store(high, found, 4, 4)
        return low, high, bad

    def mark(self, line: Any, inside: Any, bad: Any) -> None:
        """Note that a line has a scale that is NaN."""
        v, b = self.v, self.b
        with b.if_then(b.and_(inside, bad), likely=False):
            v.store(v.const(I8, 1), self.x["special"], 1, line)


class _GroupedRows(_GroupedPacker):
    """Rows of A."""

    def emit(self, limit: int) -> None:
        """limit: see `_limit`."""
        v, b = self.v, self.b
        buffer, found = stack_array(b, STEP), stack_array(b, 64)
        with self.lines() as (i, _):
            inside = b.icmp_signed("<", i, self.size)
            v.store(v.int(0), found, 8)
            with cgutils.for_range(b, self.steps) as loop:
                line = b.add(b.mul(i, self.steps), loop.index)
                low, high = self.step(i, inside, loop.index, line, buffer, found)
                record = v.at(self.packed["records"], b.mul(line, v.int(4 * (HEAD + self.chunks))))
                v.store(b.add(high, v.const(I32, BIAS32 - C_PLACES)), record, 4)
                v.store(b.add(low, v.const(I32, limit + BIAS32 + 1)), record, 4, 4)

    def step(self, i: Any, inside: Any, s: Any, line: Any, buffer: Any, found: Any) -> tuple[Any, Any]:
        """A step of a row; the bounds of its exponents."""
        v, b, chunks = self.v, self.b, self.chunks
        at = b.mul(s, v.int(STEP))
        have = b.select(inside, v.smin(b.sub(self.k, at), v.int(STEP)), v.int(0))
        place = self.fetched(self.source["codes"], b.add(b.mul(i, self.k), at), have, STEP, buffer)
        used, codes = [], []
        record = v.at(self.packed["records"], b.mul(line, v.int(4 * (HEAD + chunks))))
        for g in range(chunks):
            elements = twice(v, v.load(place, vector(I8, self.group), 1, g * self.group))
            v.store(elements, self.packed["elements"], 1, b.add(b.mul(line, v.int(STEP)), v.int(g * self.group)))
            total = v.call(f"llvm.vector.reduce.add.v{self.group}i32", I32, b.sext(elements, vector(I32, self.group)))
            v.store(b.mul(total, v.const(I32, -OFFSET)), record, 4, 4 * (HEAD + g))
            some = v.call(f"llvm.vector.reduce.or.v{self.group}i8", I8, elements)
            used.append(b.icmp_unsigned("!=", some, v.const(I8, 0)))
            place_of_scale = b.add(b.mul(line, v.int(chunks)), v.int(g))
            codes.append(self.scale(inside, place_of_scale))
            v.store(self.factor(inside, codes[-1], "left"), self.packed["factors"], 8, b.shl(place_of_scale, v.int(3)))
        low, high, bad = self.bounds(codes, used, found)
        self.mark(i, inside, bad)
        return low, high


class _GroupedColumns(_GroupedPacker):
    """Panels of B."""

    def emit(self) -> None:
        v, b = self.v, self.b
        self.buffers = [stack_array(b, 64) for _ in range(4)]
        self.used, found = stack_array(b, LANES * self.chunks), stack_array(b, 2 * 4 * LANES)
        with self.lines() as (panel, _):
            v.store(v.const(vector(I32, 2 * LANES), 0), found, 64)
            first = b.mul(panel, v.int(LANES))
            have = v.smin(v.int(LANES), b.sub(self.size, first))
            with cgutils.for_range(b, self.steps) as loop:
                line = b.add(b.mul(panel, self.steps), loop.index)
                with cgutils.for_range(b, v.int(self.chunks)) as group:
                    self.elements(first, have, b.mul(loop.index, v.int(STEP)), group.index, line)
                with cgutils.for_range(b, v.int(LANES)) as lane:
                    self.scales(b.add(first, lane.index), lane.index, loop.index, line, found)

    def elements(self, first: Any, have: Any, at: Any, g: Any, line: Any) -> None:
        """A group of rows of B in words of four bytes of a column, and which columns have more than zeros in it."""
        v, b, words = self.v, self.b, self.group // 4
        none = v.const(vector(I8, LANES), 0)
        goal = v.at(self.packed["words"], b.mul(line, v.int(4 * WORDS * LANES)), b.mul(g, v.int(4 * words * LANES)))
        used = v.at(self.used, b.mul(g, v.int(LANES)))
        v.store(none, used, LANES)
        with cgutils.for_range(b, v.int(words)) as loop:
            k = b.add(b.add(at, b.mul(g, v.int(self.group))), b.mul(loop.index, v.int(4)))
            rows = []
            for q, buffer in enumerate(self.buffers):
                row = b.add(k, v.int(q))
                here = b.select(b.icmp_signed("<", row, self.k), have, v.int(0))
                place = b.add(b.mul(row, self.size), first)
                rows.append(v.load(self.fetched(self.source["codes"], place, here, LANES, buffer), none.type))
            elements = [twice(v, x) for x in rows]
            v.store(reduce(b.or_, elements, v.load(used, none.type, LANES)), used, LANES)
            joined, lanes = v.joined(elements), [LANES * q + lane for lane in range(LANES) for q in range(4)]
            together = v.shuffle(joined, joined, lanes)
            raised = b.add(together, v.const(together.type, OFFSET))
            v.store(raised, v.at(goal, b.mul(loop.index, v.int(4 * LANES))), 1)

    def scales(self, j: Any, lane: Any, s: Any, line: Any, found: Any) -> None:
        """Those of a column in a step."""
        v, b = self.v, self.b
        inside, codes, used = b.icmp_signed("<", j, self.size), [], []
        for g in range(self.chunks):
            row = b.add(b.mul(s, v.int(self.chunks)), v.int(g))
            codes.append(self.scale(inside, b.add(b.mul(row, self.size), j)))
            place = b.add(b.mul(b.add(b.mul(line, v.int(self.chunks)), v.int(g)), v.int(LANES)), lane)
            v.store(self.factor(inside, codes[-1], "right"), self.packed["factors"], 8, b.shl(place, v.int(3)))
            some = v.load(self.used, I8, 1, b.add(lane, v.int(g * LANES)))
            used.append(b.icmp_unsigned("!=", some, v.const(I8, 0)))
        low, high, bad = self.bounds(codes, used, v.at(found, b.shl(lane, v.int(3))))
        self.mark(j, inside, bad)
        record = v.at(self.packed["records"], b.mul(line, v.int(4 * 2 * LANES)), b.shl(lane, v.int(2)))
        v.store(high, record, 4)
        v.store(low, record, 4, 4 * LANES)
