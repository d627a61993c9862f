"""Gathered element bits of a warpgroup's operands to what a fused micro-kernel reads: values, exponents, signs.

Order and meaning are those of `numerics.pack`, for one block of products; B is [tile][k][4 columns], A is [k][64 rows].
Values are scaled into the middle of f32, so that they are exact there whatever their format.
"""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir
from numba.core import cgutils

from nbtc.compiler.builder import F32, F64, I8, I16, I32, I64, Number, VectorBuilder, suffix, vector
from nbtc.compiler.cpu.processors import host_processor
from nbtc.compiler.machine_code.emitted import Named
from nbtc.formats.table import Format
from nbtc.kernels.float_elements import NUDGE, FloatElements
from nbtc.kernels.panels.alignment_and_rounding import sign_bytes
from nbtc.kernels.panels.panel_pack import paired
from nbtc.ops.wgmma.gather import PANEL, ROWS
from nbtc.ops.wgmma.parts import part

STEP = 64  # bytes of a vector


class GatheredElements(FloatElements):
    """Elements of gathered operands; x is always a vector of them."""

    def load(self, p: Any, count: Number, flip: Any) -> Any:
        """`count` elements, their signs turned where flip says so."""
        x = self.v.load(p, vector(ir.IntType(self.f.bits), count), STEP)
        return self.b.xor(x, self.v.splat(self.b.trunc(flip, x.type.element) if self.f.bits < 32 else flip, count))

    def exponents(self, x: Any, offset: Any) -> Any:
        """Exponent fields plus an offset as bytes; zeros show 0."""
        b, t = self.b, vector(I8, x.type.count)
        shown = self.field(x)
        shown = shown if self.f.bits == 8 else b.trunc(shown, t)
        return b.select(self.zero(x), self.v.const(t, 0), b.add(shown, self.v.splat(b.trunc(offset, I8), t.count)))

    def scaled(self, x: Any, scale: Any) -> Any:
        """Values times a power of two as f32; a zero is tiny and keeps its sign."""
        return self.with_tiny_zeros(x, self.b.fmul(self.values(x), self.v.splat(scale, x.type.count)))


def _reduced(v: VectorBuilder, name: str, x: Any) -> Any:
    """Minimum or maximum over the lanes as an i64."""
    t = x.type.element
    return v.b.zext(v.call(f"llvm.vector.reduce.{name}.{suffix(x.type)}", t, x), I64)


class Gathered(NamedTuple):
    """Elements of an operand, and their size in bytes."""

    raw: Any
    size: int


@cache
def magnitudes(fmt: Format) -> int:
    """The address of what finds the least non-zero magnitude (less one) of `Gathered`, and the greatest times 2**32."""

    def write(v: VectorBuilder, given: Named) -> Any:
        b, x, count = v.b, GatheredElements(v, fmt), 8 * STEP // fmt.bits
        t = vector(ir.IntType(fmt.bits), count)
        least, most = (_slot(v, v.const(t, n)) for n in (-1, 0))
        with cgutils.for_range(b, b.udiv(given["size"], v.int(STEP))) as loop:
            m = x.magnitude(v.load(v.at(given["raw"], b.mul(loop.index, v.int(STEP))), t, STEP))
            b.store(v.umin(b.load(least), b.sub(m, v.const(t, 1))), least)  # a zero wraps to the end
            b.store(v.umax(b.load(most), m), most)
        low, high = _reduced(v, "umin", b.load(least)), _reduced(v, "umax", b.load(most))
        return b.or_(low, b.shl(high, v.int(32)))

    return part(__file__, Gathered, write, fmt)


def _slot(v: VectorBuilder, value: Any) -> Any:
    """A variable of a loop (LLVM turns it into a register)."""
    p = cgutils.alloca_once(v.b, value.type)
    v.b.store(value, p)
    return p


class _OperandPacker:
    """Writes one operand; `weighed` formats also report the largest sum of significands of a dot product."""

    def __init__(self, v: VectorBuilder, fmt: Format, in_f64: bool, args: dict[str, Any]) -> None:
        self.v, self.b, self.x, self.in_f64, self.args = v, v.b, GatheredElements(v, fmt), in_f64, args
        self.size, self.depth = 8 if in_f64 else 4, 256 // fmt.bits
        self.bytes_of_signs = sign_bytes(self.depth) == 1
        target = host_processor()
        self.lanes = target.lanes if target is not None else 16  # of the micro-kernel's registers
        self.weighed = in_f64 and fmt.bits == 16  # shorter blocks cannot leave 32 bits

    def put(self, values: Any, at: Any) -> None:
        v = self.v
        v.store(self.b.fpext(values, vector(F64, values.type.count)) if self.in_f64 else values, at, STEP)

    def rows(self) -> Any:
        """Tiles of four columns of B, 128 bytes each."""
        v, b, a, x = self.v, self.b, self.args, self.x
        count = ROWS * self.depth
        heaviest = _slot(v, v.const(vector(I16, ROWS), 0))
        with cgutils.for_range(b, a["tiles"]) as loop:
            i = loop.index
            bits = x.load(v.at(a["raw"], b.mul(i, v.int(2 * STEP))), count, a["flip"])
            self.put(x.scaled(bits, a["scale"]), v.at(a["values"], b.mul(i, v.int(self.size * count))))
            shown = b.zext(x.exponents(bits, a["offset"]), vector(I32, count))
            four = b.mul(shown, v.const(shown.type, 0x01010101))
            v.store(four, v.at(a["exponents"], b.mul(i, v.int(4 * count))), STEP)
            self._row_signs(b.bitcast(x.negative(bits), ir.IntType(count)), v.at(a["signs"], b.mul(i, v.int(16))))
            if self.weighed:
                w = x.significand(bits)
                while w.type.count > ROWS:
                    n = w.type.count // 2
                    w = b.add(v.shuffle(w, w, list(range(n))), v.shuffle(w, w, list(range(n, 2 * n))))
                b.store(v.umax(b.load(heaviest), w), heaviest)
        return _reduced(v, "umax", b.load(heaviest))

    def _row_signs(self, mask: Any, to: Any) -> None:
        """Every fourth bit of [k][4] to one word a column, as the micro-kernel has those of rows."""
        v, b = self.v, self.b
        for r in range(ROWS):
            word: Any = v.int(0)
            for n in range(0, mask.type.width, 64):
                part = b.trunc(b.lshr(mask, v.const(mask.type, n)), I64) if mask.type.width > 64 else mask
                part = b.zext(part, I64) if part.type.width < 64 else part
                bits = self.x.m.every_fourth_bit(b.lshr(part, v.int(r)))
                word = b.or_(word, b.shl(bits, v.int(n // ROWS)))
            word = b.mul(word, v.int(0x01010101 if self.bytes_of_signs else 1))
            v.store(b.trunc(word, I32), to, 4, 4 * r)

    def columns(self) -> Any:
        """64 rows of A."""
        v, b, a, x = self.v, self.b, self.args, self.x
        words, halves = vector(I32, PANEL), vector(I16, PANEL)
        signs, weights = _slot(v, v.const(words, 0)), _slot(v, v.const(halves, 0))
        line = PANEL * x.f.bits // 8
        with cgutils.for_range(b, v.int(self.depth)) as loop:
            k = loop.index
            bits = x.load(v.at(a["raw"], b.mul(k, v.int(line))), PANEL, a["flip"])
            self._panel(x.scaled(bits, a["scale"]), v.at(a["values"], b.mul(k, v.int(self.size * PANEL))))
            v.store(x.exponents(bits, a["offset"]), v.at(a["exponents"], b.mul(k, v.int(PANEL))), STEP)
            bit = v.splat(b.shl(v.const(I32, 1), b.trunc(k, I32)), PANEL)
            b.store(b.or_(b.load(signs), b.select(x.negative(bits), bit, v.const(words, 0))), signs)
            if self.weighed:
                b.store(b.add(b.load(weights), x.significand(bits)), weights)
        words = b.load(signs)
        v.store(b.trunc(words, vector(I8, PANEL)) if self.bytes_of_signs else words, a["signs"], STEP)
        return _reduced(v, "umax", b.load(weights))

    def _panel(self, values: Any, to: Any) -> None:
        """64 values, nudged; f64 in the order in which the micro-kernel's vectors hold sixteen columns."""
        v, b = self.v, self.b
        if not self.in_f64:
            v.store(b.fmul(values, v.const(values.type, NUDGE[False])), to, STEP)
            return
        for j in range(0, PANEL, 16):
            for h, order in enumerate(paired(self.lanes)):
                x = b.fpext(v.shuffle(values, values, [j + n for n in order]), vector(F64, 8))
                v.store(b.fmul(x, v.const(x.type, NUDGE[True])), to, STEP, 8 * j + 64 * h)


class OperandPacking(NamedTuple):
    """An operand to pack: its gathered elements, what they are xored with, what makes an exponent field the byte that
    stands for it, the power of two of its values; where values, exponents and signs go; tiles (of B).
    """

    raw: Any
    flip: int
    offset: int
    scale: np.float32
    values: Any
    exponents: Any
    signs: Any
    tiles: int


@cache
def packer(fmt: Format, in_f64: bool, panel: bool) -> int:
    """The address of what writes the panel (of A) or the tiles (of B) of a `OperandPacking`.

    It gives the largest sum of significands of a dot product, 0 if harmless.
    """

    def write(v: VectorBuilder, given: Named) -> Any:
        words = {"flip": v.b.trunc(given["flip"], I32), "scale": v.b.fptrunc(given["scale"], F32)}
        emitter = _OperandPacker(v, fmt, in_f64, given | words)
        return emitter.columns() if panel else emitter.rows()

    return part(__file__, OperandPacking, write, fmt, in_f64, panel)
