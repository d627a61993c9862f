"""Floats to elements with block scales: the rounding of the OCP Microscaling formats and of NVIDIA's NVFP4.

One kernel a format: the largest magnitude of a block gives its scale, and elements are rounded to nearest even by
integer arithmetic on their f32 bits, in loops that compilers vectorise.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from nbtc.compiler.jit import jit
from nbtc.formats.table import FORMATS, Format

MAGNITUDE, SIGN, INFINITY = np.uint32(0x7FFFFFFF), np.uint32(0x80000000), np.uint32(0x7F800000)
BIAS, PLACES = 127, 23  # of f32
NAN_SCALE = np.uint8(0xFF)
TOGETHER = 64  # blocks whose scales are made together: 4 KiB of values, still in the first-level cache when rounded


def _rounder(fmt: Format) -> Any:
    """code(bits): the code of an f32, to nearest even; overflow gives the largest number, NaN what it is to cvt."""
    drop = PLACES - fmt.mantissa
    half, rebase = np.uint32((1 << (drop - 1)) - 1), np.uint32((BIAS - fmt.bias) << fmt.mantissa)
    least = np.uint32((fmt.emin + BIAS) << PLACES)  # bits of the smallest normal
    # adding this rounds a smaller number to a multiple of the smallest subnormal, which its low bits then count
    magic = np.float32(2.0 ** (drop + fmt.emin))
    start = magic.view(np.uint32)
    top, shift = np.uint32(fmt.special - 1), np.uint32(32 - fmt.bits)
    nan = np.uint32(fmt.special if fmt.specials == "nan" else fmt.special - 1)
    one, drop32 = np.uint32(1), np.uint32(drop)

    @jit(inline=True)
    def code(bits, value):
        magnitude = bits & MAGNITUDE
        normal = np.uint32(((magnitude + half + (magnitude >> drop32 & one)) >> drop32) - rebase)
        small = np.uint32(np.float32(abs(value) + magic).view(np.uint32) - start)
        normal = normal if normal < top else top
        signed = np.uint32((small if magnitude < least else normal) | (bits & SIGN) >> shift)
        return np.uint8(nan if magnitude > INFINITY else signed)

    return code


@jit
def largest(bits):
    """The largest magnitude among f32, as bits."""
    most = np.uint32(0)
    for t in range(bits.size):
        magnitude = np.uint32(bits[t] & MAGNITUDE)
        most = magnitude if magnitude > most else most
    return most


@jit(inline=True)
def _exponent(magnitude):
    """floor(log2) of a positive f32's bits."""
    field = np.int64(magnitude >> np.uint32(PLACES))
    if field == 0:
        field = 1 - PLACES
        while magnitude > 1:
            magnitude = np.uint32(magnitude >> np.uint32(1))
            field += 1
    return field - BIAS


@jit(inline=True)
def _power(exponent):
    """2**exponent, a normal f32."""
    return np.uint32((exponent + BIAS) << PLACES).view(np.float32)


@cache
def mx_kernel(name: str, block: int) -> Any:
    """kernel(bits, n, elements, scales, first, last): lines first..last of n f32 each, blocks along them.

    The scale is the power of two at or below the largest magnitude, less the largest exponent of an element (OCP
    Microscaling Formats 1.0, section 6.3); a block with an Inf or NaN has a NaN scale.
    """
    fmt = FORMATS[name]
    code, emax = _rounder(fmt), fmt.emax

    @jit
    def one(bits, first, last, elements):
        """Elements `first` to `last` are a block; its scale."""
        most = np.uint32(0)
        for t in range(first, last):
            magnitude = np.uint32(bits[t] & MAGNITUDE)
            most = magnitude if magnitude > most else most
        exponent = min(max(_exponent(most) - emax, -BIAS), BIAS)
        # 2**-exponent in two factors: 2**127 and above are no normal numbers
        factor, rest = _power(-(exponent >> 1)), _power((exponent >> 1) - exponent)
        for t in range(first, last):
            scaled = np.float32(np.float32(np.uint32(bits[t]).view(np.float32) * factor) * rest)
            elements[t] = code(scaled.view(np.uint32), scaled)
        return NAN_SCALE if most >= INFINITY else np.uint8(exponent + BIAS)

    @jit
    def kernel(bits, n, elements, scales, first, last):
        count = (n + block - 1) // block
        for line in range(first, last):
            for s in range(count):
                at, stop = line * n + s * block, line * n + min(n, (s + 1) * block)
                scales[line * count + s] = one(bits, at, stop, elements)

    return kernel


@cache
def nvfp4_kernel(block: int) -> Any:
    """kernel(values, n, encode, decode, table, elements, scales, first, last): as `mx_kernel`, with ue4m3 scales.

    encode = 2688 / largest magnitude of the tensor, decode = 1 / encode, both f32: a block's scale is its largest
    magnitude / 6 * encode to nearest even, its elements are x * (1 / (scale * decode)).  table: the scales' values.
    """
    code = _rounder(FORMATS["e2m1"])
    scale_code = _rounder(FORMATS["e4m3"])
    six = np.float32(6)

    @jit(inline=True)
    def top(bits, count):
        """The largest magnitude of a block."""
        most = np.uint32(0)
        for t in range(count):
            magnitude = np.uint32(bits[t] & MAGNITUDE)
            most = magnitude if magnitude > most else most
        return most

    @jit(inline=True)
    def rounded(values, count, factor, elements):
        """The elements of a block."""
        for t in range(count):
            scaled = np.float32(values[t] * factor)
            elements[t] = code(scaled.view(np.uint32), scaled)

    @jit
    def factors_of(tops, encode, decode, table, scales, factors):
        """Scales of blocks and what their elements are multiplied by: many at a time, for the sake of two divisions."""
        for s in range(tops.size):
            top = np.uint32(tops[s])
            wanted = np.float32(np.float32(top.view(np.float32) / six) * encode)
            scale = scale_code(wanted.view(np.uint32), wanted)
            factor = np.float32(np.float32(1) / np.float32(table[scale] * decode))
            factors[s] = factor if scale != 0 else np.float32(0)  # nothing of such a block is left
            scales[s] = scale

    @jit
    def kernel(values, n, encode, decode, table, elements, scales, first, last):
        bits, count, whole = values.view(np.uint32), (n + block - 1) // block, n // block
        tops, factors = np.empty(TOGETHER, np.uint32), np.empty(TOGETHER, np.float32)
        for line in range(first, last):
            for begin in range(0, count, TOGETHER):
                stop, at, place = min(count, begin + TOGETHER), line * n, line * count
                full = min(whole, stop)
                for s in range(begin, full):  # of a size that the compiler knows
                    p = at + s * block
                    tops[s - begin] = top(bits[p : p + block], block)
                for s in range(full, stop):
                    tops[s - begin] = top(bits[at + s * block : at + n], n - s * block)
                factors_of(tops[: stop - begin], encode, decode, table, scales[place + begin : place + stop], factors)
                for s in range(begin, full):
                    p = at + s * block
                    rounded(values[p : p + block], block, factors[s - begin], elements[p : p + block])
                for s in range(full, stop):
                    p = at + s * block
                    rounded(values[p : at + n], n - s * block, factors[s - begin], elements[p : at + n])

    return kernel
