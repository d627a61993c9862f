"""Floats to elements with block scales: the rounding of the OCP Microscaling formats and of NVIDIA's NVFP4.

The largest magnitude of a block gives its scale, and elements are rounded to nearest even by integer arithmetic on
their f32 bits.  The code is emitted, a block at a time: from kernels of Numba's LLVM made loops as fast, but compiling
them took a second.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numba.core import cgutils
from numpy.typing import NDArray

from nbtc.compiler.builder import F32, I1, I8, I32, I64, VectorBuilder, like, stack_array, vector
from nbtc.compiler.cache.sources import source_digest
from nbtc.compiler.machine_code.emitted import Emitted, Named, in_words, machine_code
from nbtc.formats.table import FORMATS, Format

MAGNITUDE, SIGN, INFINITY = 0x7FFFFFFF, 0x80000000, 0x7F800000
BIAS, MANTISSA = 127, 23  # of f32
NAN_SCALE = 0xFF
TOGETHER = 16  # blocks of NVFP4 whose scales are made together: a vector of divisions
E2M1_TOP = 6.0


class MxArguments(NamedTuple):
    """Lines `first` to `last` of `n` f32 each, as bits, in blocks along them: codes of elements and of scales."""

    values: NDArray[np.uint32]
    n: int
    elements: NDArray[np.uint8]
    scales: NDArray[np.uint8]
    first: int
    last: int


class Nvfp4Arguments(NamedTuple):
    """The same; factors: encode = 2688 / largest magnitude of the tensor, decode = 1 / encode, both f32."""

    values: NDArray[np.uint32]
    n: int
    elements: NDArray[np.uint8]
    scales: NDArray[np.uint8]
    first: int
    last: int
    factors: NDArray[np.float32]


class LargestArguments(NamedTuple):
    """All values of a tensor, as bits."""

    values: NDArray[np.uint32]
    size: int


@cache
def _address(name: str, *key: str) -> int:
    """The function of this name, for a key that tells what it depends on beside this file."""
    writers: dict[str, Callable[..., Emitted]] = {"mx": _mx, "nvfp4": _nvfp4, "largest": _most}
    return machine_code({name: writers[name](*key)}, source_digest(Path(__file__).resolve()), name, *key).address(name)


def mx_code(element: str, block: int) -> int:
    """The address of a function of `MxArguments`.

    The scale is the power of two at or below the largest magnitude, less the largest exponent of an element (OCP
    Microscaling Formats 1.0, section 6.3); a block with an Inf or NaN has a NaN scale.
    """
    return _address("mx", element, str(block))


def nvfp4_code(block: int) -> int:
    """The address of a function of `Nvfp4Arguments`.

    A block's scale is its largest magnitude / 6 * encode to nearest even, its elements are x * (1 / (scale * decode)).
    """
    return _address("nvfp4", str(block))


def largest_code() -> int:
    """The address of a function of `LargestArguments`: the largest magnitude, as bits."""
    return _address("largest")


def _mx(element: str, block: str) -> Emitted:
    return in_words(MxArguments, lambda v, x: _Mx(v, x, int(block), FORMATS[element]).emit())


def _nvfp4(block: str) -> Emitted:
    return in_words(Nvfp4Arguments, lambda v, x: _Nvfp4(v, x, int(block), FORMATS["e2m1"]).emit())


def _most() -> Emitted:
    return in_words(LargestArguments, _largest)


def _largest(v: VectorBuilder, x: Named) -> Any:
    b, t, width = v.b, vector(I32, 32), 32
    many, most = stack_array(b, 4 * width), cgutils.alloca_once_value(b, v.const(I32, 0))
    whole = b.and_(x["size"], v.int(-width))
    with cgutils.for_range_slice(b, v.int(0), whole, v.int(width), I64) as (at, _):
        found = b.and_(v.load(v.at(x["values"], b.shl(at, v.int(2))), t, 4), v.const(t, MAGNITUDE))
        v.store(v.umax(v.load(many, t, 64), found), many, 64)
    with cgutils.for_range_slice(b, whole, x["size"], v.int(1), I64) as (at, _):
        one = b.and_(v.load(x["values"], I32, 4, b.shl(at, v.int(2))), v.const(I32, MAGNITUDE))
        b.store(v.umax(b.load(most), one), most)
    return b.zext(v.umax(b.load(most), _top(v, v.load(many, t, 64))), I64)


def _top(v: VectorBuilder, magnitudes: Any) -> Any:
    """The largest of a vector."""
    return v.call(f"llvm.vector.reduce.umax.v{magnitudes.type.count}i32", I32, magnitudes)


def rounded(v: VectorBuilder, fmt: Format, values: Any) -> Any:
    """Codes of f32 to nearest even, in 32 bits each; overflow gives the largest number, NaN what it is to cvt."""
    b, t = v.b, like(values, I32)
    drop = MANTISSA - fmt.mantissa

    def c(value: int) -> Any:
        return v.const(t, value)

    bits = v.bits(values, t)
    magnitude = b.and_(bits, c(MAGNITUDE))
    odd = b.and_(b.lshr(magnitude, c(drop)), c(1))
    raised = b.add(b.add(magnitude, c((1 << (drop - 1)) - 1)), odd)
    normal = b.sub(b.lshr(raised, c(drop)), c((BIAS - fmt.bias) << fmt.mantissa))
    normal = v.umin(normal, c(fmt.special - 1))
    # adding this rounds a number below the normal ones to a multiple of the least subnormal, which low bits then count
    magic = np.float32(2.0 ** (drop + fmt.emin))
    sums = b.fadd(v.bits(magnitude, values.type), v.const(values.type, float(magic)))
    small = b.sub(v.bits(sums, t), c(int(magic.view(np.uint32))))
    code = b.select(b.icmp_unsigned("<", magnitude, c((fmt.emin + BIAS) << MANTISSA)), small, normal)
    code = b.or_(code, b.lshr(b.and_(bits, c(SIGN)), c(32 - fmt.bits)))
    nan = fmt.special if fmt.specials == "nan" else fmt.special - 1
    return b.select(b.icmp_unsigned(">", magnitude, c(INFINITY)), c(nan), code)


class _Lines:
    """What both recipes have: lines of blocks, the last of which may be short."""

    def __init__(self, v: VectorBuilder, x: Named, block: int, fmt: Format) -> None:
        self.v, self.b, self.x, self.block, self.fmt = v, v.b, x, block, fmt
        self.bits, self.floats = vector(I32, block), vector(F32, block)
        self.values, self.codes = stack_array(v.b, 4 * block), stack_array(v.b, block)  # of a short block

    def lines(self, blocks: Callable[[Any, Any, Any], None]) -> None:
        """Write blocks(number of the line's first value, of its first scale, how many blocks) for each line."""
        v, b, n = self.v, self.b, self.x["n"]
        count = b.udiv(b.add(n, v.int(self.block - 1)), v.int(self.block))
        with cgutils.for_range_slice(b, self.x["first"], self.x["last"], v.int(1), I64) as (line, _):
            blocks(b.mul(line, n), b.mul(line, count), count)

    def have(self, s: Any) -> Any:
        """How many values block `s` of a line has."""
        return self.v.smin(self.v.int(self.block), self.b.sub(self.x["n"], self.b.mul(s, self.v.int(self.block))))

    def loaded(self, at: Any, have: Any) -> Any:
        """Bits of the values from number `at` on; zeros after a short block's."""
        v, b = self.v, self.b
        place = v.at(self.x["values"], b.shl(at, v.int(2)))
        with self.short(have):
            v.store(v.const(self.bits, 0), self.values, 4)
            with cgutils.for_range(b, have) as loop:
                offset = b.shl(loop.index, v.int(2))
                v.store(v.load(place, I32, 4, offset), self.values, 4, offset)
        return v.load(b.select(self.is_short(have), self.values, place), self.bits, 4)

    def stored(self, codes: Any, at: Any, have: Any) -> None:
        """Codes of the values from number `at` on."""
        v, b = self.v, self.b
        place = v.at(self.x["elements"], at)
        v.store(b.trunc(codes, vector(I8, self.block)), b.select(self.is_short(have), self.codes, place))
        with self.short(have), cgutils.for_range(b, have) as loop:
            v.store(v.load(self.codes, I8, 1, loop.index), place, 1, loop.index)

    def is_short(self, have: Any) -> Any:
        return self.b.icmp_signed("<", have, self.v.int(self.block))

    @contextmanager
    def short(self, have: Any) -> Iterator[None]:
        """What is written inside is done for short blocks alone."""
        with self.b.if_then(self.is_short(have), likely=False):
            yield


class _Mx(_Lines):
    """Scales that are powers of two."""

    def emit(self) -> None:
        self.lines(self.blocks)

    def blocks(self, first: Any, scale: Any, count: Any) -> None:
        v, b = self.v, self.b
        with cgutils.for_range(b, count) as loop:
            at, have = b.add(first, b.mul(loop.index, v.int(self.block))), self.have(loop.index)
            bits = self.loaded(at, have)
            top = _top(v, b.and_(bits, v.const(self.bits, MAGNITUDE)))
            exponent = b.sub(self.exponent(top), v.const(I32, self.fmt.emax))
            exponent = v.smin(v.smax(exponent, v.const(I32, -BIAS)), v.const(I32, BIAS))
            # 2**-exponent in two factors: 2**127 and above are no normal numbers
            half = b.ashr(exponent, v.const(I32, 1))
            scaled = v.bits(bits, self.floats)
            for power in (b.neg(half), b.sub(half, exponent)):
                scaled = b.fmul(scaled, v.splat(self.power(power), self.block))
            self.stored(rounded(v, self.fmt, scaled), at, have)
            whole = b.icmp_unsigned("<", top, v.const(I32, INFINITY))
            code = b.select(whole, b.add(exponent, v.const(I32, BIAS)), v.const(I32, NAN_SCALE))
            v.store(b.trunc(code, I8), self.x["scales"], 1, b.add(scale, loop.index))

    def exponent(self, magnitude: Any) -> Any:
        """floor(log2) of an f32's bits; of a zero, that of the least subnormal."""
        v, b = self.v, self.b
        field = b.lshr(magnitude, v.const(I32, MANTISSA))
        leading = v.call("llvm.ctlz.i32", I32, b.or_(magnitude, v.const(I32, 1)), v.const(I1, 0))
        subnormal = b.sub(v.const(I32, 31 + 1 - MANTISSA), leading)  # the least normal one has field 1 and 23 bits
        return b.sub(b.select(b.icmp_unsigned("==", field, v.const(I32, 0)), subnormal, field), v.const(I32, BIAS))

    def power(self, exponent: Any) -> Any:
        """2**exponent, a normal f32."""
        b, v = self.b, self.v
        return v.bits(b.shl(b.add(exponent, v.const(I32, BIAS)), v.const(I32, MANTISSA)), F32)


class _Nvfp4(_Lines):
    """Scales of ue4m3, a vector of blocks at a time for the sake of two divisions."""

    def emit(self) -> None:
        self.encode, self.decode = (
            self.v.splat(self.v.load(self.x["factors"], F32, 4, 4 * n), TOGETHER) for n in range(2)
        )
        self.tops, self.factors = (stack_array(self.b, 4 * TOGETHER) for _ in range(2))
        self.scales = stack_array(self.b, TOGETHER)
        self.lines(self.blocks)

    def blocks(self, first: Any, scale: Any, count: Any) -> None:
        v, b = self.v, self.b
        with cgutils.for_range_slice(b, v.int(0), count, v.int(TOGETHER), I64) as (begin, _):
            some = v.smin(v.int(TOGETHER), b.sub(count, begin))
            with cgutils.for_range(b, some) as loop:
                s = b.add(begin, loop.index)
                bits = self.loaded(b.add(first, b.mul(s, v.int(self.block))), self.have(s))
                top = _top(v, b.and_(bits, v.const(self.bits, MAGNITUDE)))
                v.store(top, self.tops, 4, b.shl(loop.index, v.int(2)))
            self.scale()
            with cgutils.for_range(b, some) as loop:
                s = b.add(begin, loop.index)
                v.store(v.load(self.scales, I8, 1, loop.index), self.x["scales"], 1, b.add(scale, s))
                at, have = b.add(first, b.mul(s, v.int(self.block))), self.have(s)
                factor = v.splat(v.load(self.factors, F32, 4, b.shl(loop.index, v.int(2))), self.block)
                values = b.fmul(v.bits(self.loaded(at, have), self.floats), factor)
                self.stored(rounded(v, self.fmt, values), at, have)

    def scale(self) -> None:
        """Scales of blocks, and what their elements are multiplied by; 0 where nothing of a block is left."""
        v, b = self.v, self.b
        floats, t, scale = vector(F32, TOGETHER), vector(I32, TOGETHER), FORMATS["e4m3"]
        wanted = b.fmul(b.fdiv(v.load(self.tops, floats, 4), v.const(floats, E2M1_TOP)), self.encode)
        codes = rounded(v, scale, wanted)
        # a code's fields, moved to where f32 has them, are the number but for the difference of the biases
        value = v.bits(b.shl(codes, v.const(t, MANTISSA - scale.mantissa)), floats)
        value = b.fmul(value, v.const(floats, 2.0 ** (BIAS - scale.bias)))
        nan = b.icmp_unsigned("==", codes, v.const(t, scale.special))
        value = b.select(nan, v.const(floats, float("nan")), value)
        factors = b.fdiv(v.const(floats, 1.0), b.fmul(value, self.decode))
        none = b.icmp_unsigned("==", codes, v.const(t, 0))
        v.store(b.select(none, v.const(floats, 0.0), factors), self.factors, 4)
        v.store(b.trunc(codes, vector(I8, TOGETHER)), self.scales)
