"""One m16n8 floating-point mma as straight vector code on a warp's register image (AVX-512).

The image is read in place, [lane][register]: sixteen neighbouring elements of C are the rows j and j + 8 of D, which
is one vector; the words of A that they need are neighbours too.  Each product is one f64 multiply-add.  An accumulator
that starts at 1.5 * 2**(52 + E - F) has 2**(E - F) as its last place, so rounding down cuts a product there; a positive
product is nudged up and cut to its truncation, a negative one ends one too low, and the count of negative products
corrects that at the start.  Everything finite is exact this way, subnormals included.  Inf, NaN and sums near the top
of f32 are reported as doubtful: the caller gives them to the general path.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

from nbtc._jit import jit
from nbtc._vir import F16, F32, F64, I8, I16, I32, ROUND_DOWN, ROUND_TOWARD_ZERO, Vir, vector
from nbtc.formats.table import FORMATS, Format

NUDGE = 1 + 2.0**-30
NO_EXPONENT = -4096  # what a zero counts as before the floor
AHEAD = 4  # warps between a prefetch and its use
ORDER = [4 * (n // 2) + 2 * row + n % 2 for row in (0, 1) for n in range(8)]  # element of C's image by row and column
TOP = 121  # alignment exponents above may overflow f32
W16, W32, D8 = vector(I32, 16), vector(I16, 32), vector(F64, 8)
V16 = vector(F32, 16)


@dataclass(frozen=True)
class Shape:
    """What is compiled in: the multiplicands' format, A's registers (4 or 2), half accumulators, blocks a K step.

    by_register: images are [register][lane], one vector a register, instead of [lane][register].
    """

    fmt: Format
    registers: int
    half: bool
    blocks: int
    by_register: bool = False

    @property
    def key(self) -> tuple[int, int, int, int, int]:
        """The shape as numbers: what compiled code is specialised for."""
        return self.fmt.code, self.registers, int(self.half), self.blocks, int(self.by_register)

    @property
    def each(self) -> int:
        """Elements of a word."""
        return self.fmt.per_word

    @property
    def combos(self) -> list[tuple[int, int]]:
        """(register of B, t): the words of a column of B, in ascending k."""
        return [(r, t) for r in range(self.registers // 2) for t in range(4)]


class Codegen:
    """Emits the code of one Shape."""

    def __init__(self, shape: Shape, v: Vir, fraction: Any, floor: Any) -> None:
        self.s, self.v, self.b = shape, v, v.b
        self.exponent_type = W32 if shape.each == 2 else W16
        bias = 2 * shape.fmt.bias
        self.floor = v.splat(self.b.add(floor, v.const(I32, bias)), 16)
        # the high word of 1.5 * 2**(52 + E - F), but for E in its exponent field
        place = self.b.shl(self.b.sub(v.const(I32, 52 + 1023 - bias), fraction), v.const(I32, 20))
        self.lowest_place = v.splat(self.b.or_(place, v.const(I32, 0x80000)), 16)
        size = 32 * shape.registers * shape.each
        self.values, self.exponents = self._room(8 * size), self._room(4 * size // shape.each)
        self.signs, self.nonzero = self._room(64), self._room(64)
        self.sums, self.bases, self.results = (self._room(n) for n in (1024, 512, 512))
        self.special = v.const(self.exponent_type, 0)

    def _room(self, size: int) -> Any:
        """Stack memory of `size` bytes."""
        room = cgutils.alloca_once(self.b, ir.ArrayType(I8, size))
        room.align = 64
        return self.b.bitcast(room, I8.as_pointer())

    def take(self, p: Any, registers: int, lane: Any, lanes: int) -> Any:
        """The registers of some neighbouring lanes, lane by lane: <lanes * registers x i32>."""
        v, b = self.v, self.b
        if not self.s.by_register:
            at = b.mul(lane, v.int(4 * registers))
            return v.load(v.at(p, at), vector(I32, lanes * registers), 4)
        at = b.mul(lane, v.int(4))
        parts = [v.load(v.at(p, at), vector(I32, lanes), 4, 128 * r) for r in range(registers)]
        while len(parts) > 1:
            size = 2 * parts[0].type.count
            parts = [v.shuffle(x, y, list(range(size))) for x, y in zip(parts[::2], parts[1::2], strict=True)]
        return v.shuffle(parts[0], parts[0], [r * lanes + n for n in range(lanes) for r in range(registers)])

    def put(self, p: Any, registers: int, lane: Any, words: Any) -> None:
        """The inverse of `take`."""
        v, b = self.v, self.b
        if not self.s.by_register:
            v.store(words, v.at(p, b.mul(lane, v.int(4 * registers))), 4)
            return
        at, count = b.mul(lane, v.int(4)), words.type.count
        for r in range(registers):
            v.store(v.shuffle(words, words, list(range(r, count, registers))), v.at(p, at), 4, 128 * r)

    def scan(self, words: Any) -> tuple[Any, Any, Any]:
        """(exponent fields, sign bits as an integer, nonzero bits) of sixteen words of elements; notes Inf and NaN."""
        v, b, f = self.v, self.b, self.s.fmt
        x = v.bits(words, self.exponent_type)
        t = x.type
        ignored = 13 if self.s.each == 1 else 0
        magnitude = b.and_(x, v.const(t, (1 << (t.element.width - 1)) - (1 << ignored)))
        zero = b.icmp_unsigned("==", magnitude, v.const(t, 0))
        field = v.umax(b.lshr(magnitude, v.const(t, f.mantissa + ignored)), v.const(t, 1))
        field = b.select(zero, v.const(t, NO_EXPONENT), field)
        self.special = v.umax(self.special, magnitude)
        bits = ir.IntType(t.count)
        negative = b.icmp_signed("<", x, v.const(t, 0))
        return field, b.bitcast(negative, bits), b.bitcast(b.not_(zero), bits)

    def widen(self, halves: Any) -> Any:
        """<16 x i16> elements as f32."""
        if self.s.fmt.name == "f16":
            return self.b.fpext(self.v.bits(halves, vector(F16, 16)), V16)
        return self.v.bits(self.b.shl(self.b.zext(halves, W16), self.v.const(W16, 16)), V16)

    def doubles(self, x: Any) -> list[Any]:
        """<16 x f32> as two <8 x f64>."""
        parts = (self.v.shuffle(x, x, list(range(n, n + 8))) for n in (0, 8))
        return [self.b.fpext(p, D8) for p in parts]

    def whole(self, words: Any) -> Any:
        """tf32 words as f32."""
        return self.v.bits(self.b.and_(words, self.v.const(W16, 0xFFFFE000)), V16)

    def decode_a(self, a: Any) -> None:
        """Values (f64, in the image's order), exponents and bit masks of A to the stack."""
        v, each = self.v, self.s.each
        lanes = 16 // self.s.registers
        for n in range(2 * self.s.registers):
            words = self.take(a, self.s.registers, v.int(n * lanes), lanes)
            field, negative, nonzero = self.scan(words)
            v.store(field, self.exponents, 64, 64 * n)
            for room, mask in ((self.signs, negative), (self.nonzero, nonzero)):
                v.store(mask, room, 1, n * 2 * each)
            both = v.bits(words, W32)
            for part in range(each):
                halves = v.shuffle(both, both, list(range(16 * part, 16 * part + 16)))
                for i, y in enumerate(self.doubles(self.widen(halves) if each == 2 else self.whole(words))):
                    v.store(y, self.values, 64, 128 * (each * n + part) + 64 * i)

    def decode_b(self, p: Any) -> None:
        """B by k: f64 columns (nudged), exponents of each word of K for two rows, and bit masks in A's order."""
        v, each, count = self.v, self.s.each, self.s.registers // 2
        raw = [self.take(p, count, v.int(n * 16 // count), 16 // count) for n in range(2 * count)]
        masks = [self.scan(x)[1:] for x in raw]
        self.b_signs, self.b_nonzero = (self.columns([m[i] for m in masks]) for i in (0, 1))
        combos = self.s.combos
        quads = [raw] if count == 1 else []
        for n in range(0, len(combos) if count == 2 else 0, 4):  # four words of K by four columns, twice
            lanes = [(4 * c + t) * count + r for r, t in combos[n : n + 4] for c in range(4)]
            quads.append([v.shuffle(raw[2 * h], raw[2 * h + 1], lanes) for h in (0, 1)])
        self.b_values: list[Any] = []
        self.b_exponents: list[Any] = []
        for q, (left, right) in enumerate(quads):
            for pair in (0, 2):
                place = (lambda m, c: 4 * m + c) if count == 2 else (lambda m, c: 4 * c + m)
                lanes = [place(m, c % 4) + 16 * (c // 4) for m in (pair, pair + 1) for c in range(8)]
                words = v.shuffle(left, right, lanes)
                self._columns_of(words, 4 * q + pair, each)

    def _columns_of(self, words: Any, combo: int, each: int) -> None:
        """Values and exponents of two words of K by eight columns."""
        v, b = self.v, self.b
        field = v.bits(self.scan(words)[0], W16)
        for half in (0, 1):
            twice = v.shuffle(field, field, 2 * list(range(8 * half, 8 * half + 8)))
            self.b_exponents.append(v.bits(twice, self.exponent_type))
        if each == 1:
            parts = [self.doubles(self.whole(words))]
        else:
            halves = (b.trunc(words, vector(I16, 16)), b.trunc(b.lshr(words, v.const(W16, 16)), vector(I16, 16)))
            parts = [self.doubles(self.widen(h)) for h in halves]
        for half in (0, 1):
            for part in parts:
                self.b_values.append(b.fmul(part[half], v.const(D8, NUDGE)))

    def columns(self, masks: list[Any]) -> Any:
        """Bit masks of the image of B as one word a column, bits in the order of A's masks of two rows, both rows."""
        v, b, each = self.v, self.b, self.s.each
        per_mask = 16 * each
        width = self.s.registers * 2 * each
        t = vector(I32, 8)
        x = v.const(t, 0)
        for n in range(8):
            m = masks[n * width // per_mask]
            x = b.insert_element(x, b.zext(m, I32) if m.type.width < 32 else m, ir.Constant(I32, n))
        x = b.lshr(x, ir.Constant(t, [n * width % per_mask for n in range(8)]))
        x = b.and_(x, v.const(t, (1 << width) - 1))
        for groups in (4, 2, 1):  # spread groups of `each` bits to twice the distance
            keep = sum(((1 << groups * each) - 1) << at for at in range(0, 32, 2 * groups * each))
            x = b.and_(b.or_(x, b.shl(x, v.const(t, groups * each))), v.const(t, keep & 0xFFFFFFFF))
        x = b.or_(x, b.shl(x, v.const(t, each)))
        return v.shuffle(x, x, 2 * list(range(8)))

    def negatives(self, j: Any, block: range) -> Any:
        """How many products of each of sixteen results are negative."""
        v, b, each, regs = self.v, self.b, self.s.each, self.s.registers
        bits = ir.IntType(4 * regs * each)
        at = b.mul(j, v.int(bits.width // 8))

        def spread(room: Any) -> Any:
            m = v.load(v.at(room, at), bits)
            return v.splat(m if bits.width == 32 else b.zext(m, I32), 16)

        row_mask = [0, 0]
        for row in (0, 1):
            for r, t in (self.s.combos[c] for c in block):
                row_mask[row] |= ((1 << each) - 1) << ((t * regs + 2 * r + row) * each)
        differ = b.and_(b.xor(spread(self.signs), self.b_signs), b.and_(spread(self.nonzero), self.b_nonzero))
        return v.popcount(b.and_(differ, ir.Constant(W16, [row_mask[0]] * 8 + [row_mask[1]] * 8)))

    def exponent(self, j: Any, block: range) -> Any:
        """The largest product exponent of each of sixteen results, as i32; twice the bias is still in it."""
        v, b, regs = self.v, self.b, self.s.registers
        words = v.load(v.at(self.exponents, b.mul(j, v.int(16 * regs))), vector(I32, 4 * regs), 16)
        top = None
        for c in block:
            r, t = self.s.combos[c]
            mine = v.shuffle(words, words, [t * regs + 2 * r] * 8 + [t * regs + 2 * r + 1] * 8)
            total = b.add(v.bits(mine, self.exponent_type), self.b_exponents[c])
            top = total if top is None else v.smax(top, total)
        x = v.bits(top, W16)
        if self.s.each == 2:
            sixteen = v.const(W16, 16)
            x = v.smax(b.ashr(x, sixteen), b.ashr(b.shl(x, sixteen), sixteen))
        return x

    def start(self, j: Any, block: range, acc: Any) -> None:
        """What sixteen sums of a block start from, to the stack: the accumulators, cut, and the correction."""
        v, b = self.v, self.b
        bias, x = 2 * self.s.fmt.bias, v.bits(acc, W16)
        field = b.lshr(b.shl(x, v.const(W16, 1)), v.const(W16, 24))
        own = v.smax(field, v.const(W16, 127 - 14 if self.s.half else 1))
        if self.s.half or self.s.fmt.name != "f16":  # else every product lies above a zero's exponent, whichever it is
            zero = b.icmp_unsigned("==", b.shl(x, v.const(W16, 1)), v.const(W16, 0))
            own = b.select(zero, v.const(W16, NO_EXPONENT), own)
        top = v.smax(v.smax(self.exponent(j, block), b.add(own, v.const(W16, bias - 127))), self.floor)
        self.b.store(v.smax(b.load(self.highest), top), self.highest)
        high = b.add(b.shl(top, v.const(W16, 20)), self.lowest_place)
        below = b.icmp_unsigned(">", x, v.const(W16, 0x80000000))
        low = b.add(self.negatives(j, block), b.zext(below, W16))
        v.store(high, v.at(self.bases, b.mul(j, v.int(64))), 64)
        for row, c in enumerate(self.doubles(acc)):
            s = v.fma512(c, v.const(D8, NUDGE), self.paired(low, high, row), ROUND_DOWN)
            v.store(s, v.at(self.sums, b.mul(j, v.int(128))), 64, 64 * row)

    def paired(self, low: Any, high: Any, row: int) -> Any:
        """Eight f64 from their low and high words."""
        lanes = [lane + 16 * part for lane in range(8 * row, 8 * row + 8) for part in (0, 1)]
        return self.v.bits(self.v.shuffle(low, high, lanes), D8)

    def multiply(self, j: Any, block: range) -> list[Any]:
        """Two rows' sums of a block."""
        v, b, each, regs = self.v, self.b, self.s.each, self.s.registers
        first = v.at(self.values, b.mul(j, v.int(32 * regs * each)))
        sums = [v.load(v.at(self.sums, b.mul(j, v.int(128))), D8, 64, 64 * row) for row in (0, 1)]
        for combo in block:
            r, t = self.s.combos[combo]
            for h in range(each):
                for row in (0, 1):
                    x = v.load(first, F64, 8, ((t * regs + 2 * r + row) * each + h) * 8)
                    sums[row] = v.fma512(v.splat(x, 8), self.b_values[combo * each + h], sums[row], ROUND_DOWN)
        high = v.load(v.at(self.bases, b.mul(j, v.int(64))), W16, 64)
        return [b.fsub(s, self.paired(v.const(W16, 0), high, row)) for row, s in enumerate(sums)]

    def round(self, sums: list[Any]) -> Any:
        """Two <8 x f64> sums to accumulator values as <16 x f32>; every zero is +0."""
        v, b = self.v, self.b
        out = []
        for s in sums:
            t = vector(F32, 8)
            mask, mode = ir.Constant(I8, -1), ir.Constant(I32, ROUND_TOWARD_ZERO)
            x = v.call("llvm.x86.avx512.mask.cvtpd2ps.512", t, s, v.const(t, 0.0), mask, mode)
            if self.s.half:  # made odd where inexact, so that the second rounding is right
                inexact = b.zext(b.fcmp_ordered("!=", b.fpext(x, D8), s), vector(I32, 8))
                x = v.bits(b.or_(v.bits(x, inexact.type), inexact), t)
            out.append(x)
        x = v.shuffle(out[0], out[1], list(range(16)))
        if self.s.half:
            x = b.fpext(b.fptrunc(x, vector(F16, 16)), V16)
        return b.fadd(x, v.const(V16, 0.0))

    def emit(self, a: Any, p: Any, c: Any, d: Any) -> Any:
        """The whole instruction; returns i1: doubtful."""
        v, b = self.v, self.b
        self.highest = cgutils.alloca_once(b, W16)
        b.store(v.const(W16, 0), self.highest)
        self.decode_a(a)
        self.decode_b(p)
        size = len(self.s.combos) // self.s.blocks
        for n in range(self.s.blocks):
            block, last = range(n * size, (n + 1) * size), n == self.s.blocks - 1
            with cgutils.for_range(b, v.int(8)) as loop:
                self.start(loop.index, block, self.load_c(loop.index, c) if n == 0 else self.resume(loop.index))
            with cgutils.for_range(b, v.int(8)) as loop:
                x = self.round(self.multiply(loop.index, block))
                if last:
                    self.store_d(loop.index, d, x)
                else:
                    v.store(x, v.at(self.results, b.mul(loop.index, v.int(64))), 64)
        return self.doubtful()

    def resume(self, j: Any) -> Any:
        """The results of the block before."""
        return self.v.load(self.v.at(self.results, self.b.mul(j, self.v.int(64))), V16, 64)

    def load_c(self, j: Any, c: Any) -> Any:
        """Accumulators of rows j and j + 8 by row and column, as f32."""
        v, half = self.v, self.s.half
        words = self.take(c, 2 if half else 4, self.b.mul(j, v.int(4)), 4)
        x = self.b.fpext(v.bits(words, vector(F16, 16)), V16) if half else v.bits(words, V16)
        return v.shuffle(x, x, ORDER)

    def store_d(self, j: Any, d: Any, x: Any) -> None:
        """The inverse of `load_c`."""
        v, half = self.v, self.s.half
        x = v.shuffle(x, x, [ORDER.index(n) for n in range(16)])
        words = v.bits(self.b.fptrunc(x, vector(F16, 16)), vector(I32, 8)) if half else v.bits(x, W16)
        self.put(d, 2 if half else 4, self.b.mul(j, v.int(4)), words)

    def doubtful(self) -> Any:
        """Whether an operand was Inf or NaN, or a sum may have overflowed f32."""
        v, b, f = self.v, self.b, self.s.fmt
        first = ((1 << f.exponent) - 1) << (f.mantissa + (13 if self.s.each == 1 else 0))
        t = self.exponent_type
        flags = b.icmp_unsigned(">=", self.special, v.const(t, first))
        special = b.icmp_unsigned("!=", b.bitcast(flags, ir.IntType(t.count)), ir.Constant(ir.IntType(t.count), 0))
        high = b.icmp_signed(">", b.load(self.highest), v.const(W16, TOP + 2 * f.bias))
        rest = b.bitcast(high, I16)  # an Inf or NaN accumulator has the exponent 128
        return b.or_(special, b.icmp_unsigned("!=", rest, ir.Constant(I16, 0)))


def _prefetch(v: Vir, p: Any, write: bool) -> None:
    """Ask for a cache line; memory is the bound of large batches."""
    flags = [ir.Constant(I32, n) for n in (int(write), 3, 1)]
    kind = ir.FunctionType(ir.VoidType(), [p.type, I32, I32, I32])
    v.b.call(cgutils.get_or_insert_function(v.b.module, kind, "llvm.prefetch.p0"), [p, *flags])


@intrinsic(prefer_literal=True)
def one_warp(typingctx, fmt, registers, half, blocks, by_register, a, a0, b, b0, c, c0, d, d0, fraction, floor):
    """One warp at word offsets of uint32 arrays; the first five arguments are literals (see Shape).  True: doubtful."""
    fixed = (fmt, registers, half, blocks, by_register)
    if not all(isinstance(x, types.IntegerLiteral) for x in fixed):
        return None
    code, count, narrow, parts, turned = (x.literal_value for x in fixed)
    shape = Shape(next(f for f in FORMATS.values() if f.code == code), count, bool(narrow), parts, bool(turned))

    def codegen(context, builder, signature, args):
        v, base = Vir(context, builder), len(fixed)
        pointers = [
            v.at(v.pointer(signature.args[n], args[n]), builder.shl(args[n + 1], v.int(2)))
            for n in range(base, base + 8, 2)
        ]
        for n, p in enumerate(pointers):
            words = 32 * (count, count // 2, 2 if shape.half else 4, 2 if shape.half else 4)[n]
            for line in range(0, 4 * words, 64):
                _prefetch(v, v.at(p, AHEAD * 4 * words + line), n == 3)
        numbers = [builder.trunc(x, I32) for x in args[base + 8 :]]
        return Codegen(shape, v, *numbers).emit(*pointers)

    i = types.int64
    return types.boolean(fmt, registers, half, blocks, by_register, a, i, b, i, c, i, d, i, i, i), codegen


@cache
def kernel(fmt: int, registers: int, half: int, blocks: int, by_register: int) -> Callable[..., Any]:
    """Compiled loop over warps first..last of a Shape (its format by code), warp w at word w * sa of a, and so on.

    doubt[w] tells which results are not to be used; returns how many.
    """

    def many(a, b, c, d, sa, sb, sc, sd, first, last, fraction, floor, doubt):
        found = np.int64(0)
        for w in range(first, last):
            bad = one_warp(
                fmt, registers, half, blocks, by_register, a, w * sa, b, w * sb, c, w * sc, d, w * sd, fraction, floor
            )
            doubt[w] = bad
            found += bad
        return found

    return jit(many)  # type: ignore[no-any-return]
