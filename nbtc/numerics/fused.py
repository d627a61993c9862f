"""One dot product, bit for bit as a tensor core computes it: scalar, every input class, every model.

`chain` is the general path of the library.  Faster kernels exist for common cases; they hand everything doubtful (Inf,
NaN, sums that leave their range) to this file, so what it says is what nbtc says.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nbtc.compiler.callees import overload
from nbtc.compiler.jit import jit
from nbtc.errors import UnsupportedInstructionError
from nbtc.formats.table import FORMATS, NO_KERNEL, Format, tf32
from nbtc.numerics.ieee import (
    INF16,
    INF32,
    NAN16,
    NAN32,
    add16,
    add32,
    bits32,
    encode,
    f16_to_f32,
    f32_of,
    f32_to_f16,
    f64_of,
    fma32,
    fma64,
    round_magnitude,
)
from nbtc.numerics.integer import bit_chain, integer_chain
from nbtc.numerics.models import (
    A_FORMAT,
    ACC_FORMAT,
    B_FORMAT,
    BLOCK,
    C_FORMAT,
    FLOOR,
    FRACTION,
    KIND,
    OUT,
    OUTS,
    ROUNDING,
    STEP,
    Kind,
)

_SIZE = 1 + max(f.code for f in FORMATS.frozen())
_F16 = FORMATS["f16"].code
_EMULATED, _SCALAR, _INTEGER, _BITS = (int(k) for k in (Kind.EMULATED_FP8, Kind.SCALAR_FMA, Kind.INTEGER, Kind.BITS))
_RZ14, _RNE11 = OUTS["rz14"], OUTS["rne11"]
_MAGNITUDE32 = np.int64(0x7FFFFFFF)

# How to read a format as f32: put exponent and mantissa where f32 has them and multiply by a power of two that corrects
# the bias.  That is exact for subnormals too.  Codes for Inf and NaN become ordinary large values at or above a limit.
_LAYOUT = np.zeros((_SIZE, 4), np.int64)  # bits to keep, shift left of magnitude and of sign, least exponent field
_SCALE = np.zeros(_SIZE, np.float32)
_LIMIT = np.zeros((_SIZE, 2), np.int64)  # f32 bits of the first special value; 1 if that one is an infinity
for _f in FORMATS.frozen():
    if _f.kind != "float" or _f.bits > 32 or _f.code == NO_KERNEL:
        continue
    _ignored = 13 if _f is tf32 else 0
    _LAYOUT[_f.code] = (1 << (_f.bits - 1)) - (1 << _ignored), 23 - _f.mantissa - _ignored, 32 - _f.bits, _f.emin + 127
    _SCALE[_f.code] = 2.0 ** (127 - _f.bias)
    _first = np.uint32(_f.special << (23 - _f.mantissa)).view(np.float32) * _SCALE[_f.code]
    _LIMIT[_f.code] = int(_first.view(np.uint32)), _f.infinite


READABLE = frozenset(f.name for f in FORMATS.frozen() if f.code != NO_KERNEL)


def check_readable(*formats: Format) -> None:
    """Raise UnsupportedInstructionError for a format that the tables above, and so no kernel, can read."""
    for fmt in formats:
        if fmt.name not in READABLE:
            raise UnsupportedInstructionError(
                f"no kernel multiplies {fmt.name}: its row was added to nbtc.formats.table.FORMATS after the kernels "
                "were loaded, or has no code; add it before the first product, as in docs/adding.md"
            )


class Strided(NamedTuple):
    """A vector inside a flat array: element t is words[first + t * stride]."""

    words: NDArray[Any]
    first: Any
    stride: Any


class Extent(NamedTuple):
    """Elements of a block, how many of them exist, and whether they are those of k mod 4 in {0, 1} alone."""

    here: Any
    size: Any
    stretch: Any


class Rounding(NamedTuple):
    """Of a sum: bits below the alignment, the least exponent of an alignment, and what it is rounded to."""

    fraction: Any
    floor: Any
    out: Any


@jit(inline=True)
def reading(code):
    """A format: (magnitude mask, magnitude shift, sign shift, least exponent field, scale, limit, has Inf)."""
    row, limit = _LAYOUT[code], _LIMIT[code]
    return row[0], row[1], row[2], row[3], _SCALE[code], limit[0], limit[1]


@jit(inline=True)
def value_of(bits, f):
    """Element bits as f32: exact, or at or above the limit for Inf and NaN."""
    moved = (bits & f[0]) << f[1] | (bits << f[2]) & np.int64(0x80000000)
    return f32_of(np.uint32(moved)) * f[4]


@jit(inline=True)
def _magnitude(x):
    """f32 bits without the sign."""
    return np.int64(bits32(x)) & _MAGNITUDE32


@jit(inline=True)
def _position(t, stretch):
    """Element t of a block: itself, or the t-th of k mod 4 in {0, 1} when stretched."""
    return t + (t & -2) * stretch


@jit(inline=True)
def _nature(magnitude, f):
    """0 finite, 1 infinite, 2 NaN."""
    return np.int64(0) if magnitude < f[5] else (np.int64(1) if magnitude == f[5] and f[6] != 0 else np.int64(2))


@jit(inline=True)
def _values(a, b, t, stretch, readings):
    """Element t of a block of A and of B."""
    at = _position(t, stretch)
    x, y = np.int64(a.words[a.first + at * a.stride]), np.int64(b.words[b.first + at * b.stride])
    return value_of(x, readings[0]), value_of(y, readings[1])


@jit
def _specials(a, b, extent, readings, c):
    """(NaN or invalid, +Inf, -Inf) among a block's products and its accumulator."""
    fa, fb, fc = readings
    vc = value_of(c, fc)
    nature = _nature(_magnitude(vc), fc)
    nan = nature == 2
    plus, minus = nature == 1 and vc > 0, nature == 1 and vc < 0
    for t in range(extent.here):
        x, y = _values(a, b, t, extent.stretch, readings)
        mx, my = _magnitude(x), _magnitude(y)
        worst = max(_nature(mx, fa), _nature(my, fb))
        if worst == 2 or (worst == 1 and (mx == 0 or my == 0)):
            nan = True
        elif worst == 1:
            if (x > 0) == (y > 0):
                plus = True
            else:
                minus = True
    return nan or (plus and minus), plus, minus


@jit(inline=True)
def sum_in_f32(total, exponent, digits, least):
    """total * 2**exponent cut to so many digits of places from 2**least on, as f32 bits; every zero is +0."""
    kept, unit = round_magnitude(-total if total < 0 else total, exponent, digits, least, False)
    bits = encode(kept, unit, 23, -126, 127)
    return bits | np.int64(0x80000000) if total < 0 and bits != 0 else bits


@jit(inline=True)
def round_sum(total, exponent, out):
    """total * 2**exponent as accumulator bits; every zero is +0."""
    if out != _RNE11:
        digits, least = (14, -139) if out == _RZ14 else (24, -149)
        return sum_in_f32(total, exponent, digits, least)
    kept, unit = round_magnitude(-total if total < 0 else total, exponent, 11, -24, True)
    bits = encode(kept, unit, 10, -14, 15)
    return bits | np.int64(0x8000) if total < 0 and bits != 0 else bits


@jit(inline=True)
def block_sum(a, b, extent, readings, c, rounding, scale_exponent):
    """T of a block's products, of which those that do not exist are zero, and accumulator bits c.

    a, b: `Strided`.  readings: of A, B and c.  scale_exponent: of a power of two that multiplies every product,
    as block scales do.
    """
    fa, fb, fc = readings
    floor, out = rounding.floor, rounding.out
    vc = value_of(c, fc)
    mc = _magnitude(vc)
    top = floor if mc == 0 else max(mc >> 23, fc[3]) - 127
    if extent.here < extent.size:
        top = max(top, floor)
    special = mc >= fc[5]
    for t in range(extent.here):
        x, y = _values(a, b, t, extent.stretch, readings)
        mx, my = _magnitude(x), _magnitude(y)
        special |= (mx >= fa[5]) | (my >= fb[5])
        e = max(mx >> 23, fa[3]) + max(my >> 23, fb[3]) - 254 + scale_exponent
        top = max(top, floor if (mx == 0) | (my == 0) else e)
    if special:
        nan, plus, minus = _specials(a, b, extent, readings, c)
        if nan:
            return np.int64(NAN16 if out == _RNE11 else NAN32)
        if plus or minus:
            inf, sign = (np.int64(INF16), 0x8000) if out == _RNE11 else (np.int64(INF32), 0x80000000)
            return inf | sign if minus else inf
    unit = top - rounding.fraction
    scale = f64_of(np.uint64(1023 - unit) << np.uint64(52))  # every f64 step below is exact but the cut to an integer
    total = np.int64(np.float64(vc) * scale)
    scale = f64_of(np.uint64(1023 - unit + scale_exponent) << np.uint64(52))
    for t in range(extent.here):
        x, y = _values(a, b, t, extent.stretch, readings)
        total += np.int64(np.float64(x) * np.float64(y) * scale)
    return round_sum(total, unit, out)


@jit
def _float_chain(a, a0, sa, b, b0, sb, k, c, params):
    """Chains of T: blocks in ascending k, or for emulated fp8 two interleaved halves a step and then c."""
    emulated = params[KIND] == _EMULATED
    stretch = np.int64(emulated)
    fa, fb, fc = reading(params[A_FORMAT]), reading(params[B_FORMAT]), reading(params[ACC_FORMAT])
    if emulated:  # operands become f16: subnormal e4m3 are normal there, which an alignment exponent sees
        least = _LAYOUT[_F16, 3]
        fa = fa[0], fa[1], fa[2], least, fa[4], fa[5], fa[6]
        fb = fb[0], fb[1], fb[2], least, fb[4], fb[5], fb[6]
    first_least = _LAYOUT[params[C_FORMAT], 3]  # a C that was converted may be aligned as what it was before
    f16_acc = params[ACC_FORMAT] == _F16
    size, step = params[BLOCK], params[STEP]
    span = step if emulated else size
    rounding = Rounding(params[FRACTION], params[FLOOR], params[OUT])
    acc = np.int64(c)
    start, padded = np.int64(0), np.int64(0)
    while start < padded or start < k:
        if start >= padded:
            padded += step
        left = min(max(k - start, 0), span)
        value = np.int64(0) if emulated else acc
        for part in range(1 + stretch):
            first = start + 2 * part
            # of the elements that exist, those of this half: k mod 4 in {0, 1}, then {2, 3}
            here = 2 * (left >> 2) + min(max((left & 3) - 2 * part, 0), 2) if emulated else left
            least = first_least if start == 0 else fc[3]
            own = fc[0], fc[1], fc[2], least, fc[4], fc[5], fc[6]
            x, y = Strided(a, a0 + first * sa, sa), Strided(b, b0 + first * sb, sb)
            value = block_sum(x, y, Extent(here, size, stretch), (fa, fb, own), value, rounding, 0)
        if emulated:
            value = add16(acc, value) if f16_acc else add32(acc, value)
        acc = value
        start += span
    return np.uint64(acc)


@jit(inline=True)
def _f16_at(x, start, stride, t, k):
    """Element t of an f16 vector as f32 bits; zero from k on."""
    return f16_to_f32(np.int64(x[start + t * stride]) & 0xFFFF) if t < k else np.int64(0)


@jit(inline=True)
def _product32(x, y):
    """The product of two widened f16, which f32 holds exactly (never -0 lost: c = -0 is fma's neutral element)."""
    return fma32(x, y, 0x80000000)


@jit
def _scalar_chain(a, a0, sa, b, b0, sb, k, c, params):
    """f16 m8n8k4 without a tensor core: four f32 fma from +0, then c; or two pairs for an f16 accumulator."""
    f16_acc = params[ACC_FORMAT] == _F16
    acc = f16_to_f32(np.int64(c)) if f16_acc else np.int64(c)
    for s in range(0, k, 4):
        if f16_acc:
            for pair in range(s, s + 4, 2):
                x0, y0 = _f16_at(a, a0, sa, pair, k), _f16_at(b, b0, sb, pair, k)
                x1, y1 = _f16_at(a, a0, sa, pair + 1, k), _f16_at(b, b0, sb, pair + 1, k)
                acc = add32(acc, fma32(x1, y1, _product32(x0, y0)))
            acc = f16_to_f32(f32_to_f16(acc))
        else:
            total = np.int64(0)
            for t in range(s, s + 4):
                total = fma32(_f16_at(a, a0, sa, t, k), _f16_at(b, b0, sb, t, k), total)
            acc = add32(acc, total)
    if k == 0:
        return np.uint64(c)
    return np.uint64(f32_to_f16(acc) if f16_acc else acc)


@jit
def _fma64_chain(a, a0, sa, b, b0, sb, k, c, params):
    """f64: one fused multiply-add an element; padding adds +0 once more, after which it changes nothing."""
    mode = params[ROUNDING]
    acc = c
    for t in range(k):
        acc = fma64(np.uint64(a[a0 + t * sa]), np.uint64(b[b0 + t * sb]), acc, mode)
    if k % params[STEP] != 0:
        acc = fma64(np.uint64(0), np.uint64(0), acc, mode)
    return acc


def _by_word(kind, a, a0, sa, b, b0, sb, k, c, params):
    """The chain of a kind of arithmetic, among those whose elements come in words of a's size."""
    others = {_INTEGER: integer_chain, _BITS: bit_chain, _SCALAR: _scalar_chain, int(Kind.FMA64): _fma64_chain}
    return others.get(kind, _float_chain)(a, a0, sa, b, b0, sb, k, c, params)


@overload(_by_word)
def _compiled_by_word(kind, a, a0, sa, b, b0, sb, k, c, params):
    """One of four bodies, so that code for a word size holds no other's arithmetic."""
    return _BODIES.get(a.dtype.bitwidth)


def _bodies() -> dict[int, Any]:
    """By bits of a word; under 0 what takes words that are wider than their elements, but for f64."""

    def words_8(kind, a, a0, sa, b, b0, sb, k, c, params):
        if kind == _INTEGER:
            return integer_chain(a, a0, sa, b, b0, sb, k, c, params)
        if kind == _BITS:
            return bit_chain(a, a0, sa, b, b0, sb, k, c, params)
        return _float_chain(a, a0, sa, b, b0, sb, k, c, params)

    def words_16(kind, a, a0, sa, b, b0, sb, k, c, params):
        if kind == _SCALAR:
            return _scalar_chain(a, a0, sa, b, b0, sb, k, c, params)
        return _float_chain(a, a0, sa, b, b0, sb, k, c, params)

    def words_32(kind, a, a0, sa, b, b0, sb, k, c, params):
        return _float_chain(a, a0, sa, b, b0, sb, k, c, params)

    def words_64(kind, a, a0, sa, b, b0, sb, k, c, params):
        return _fma64_chain(a, a0, sa, b, b0, sb, k, c, params)

    def wider(kind, a, a0, sa, b, b0, sb, k, c, params):
        if kind == _INTEGER:
            return integer_chain(a, a0, sa, b, b0, sb, k, c, params)
        if kind == _BITS:
            return bit_chain(a, a0, sa, b, b0, sb, k, c, params)
        if kind == _SCALAR:
            return _scalar_chain(a, a0, sa, b, b0, sb, k, c, params)
        return _float_chain(a, a0, sa, b, b0, sb, k, c, params)

    return {0: wider, 8: words_8, 16: words_16, 32: words_32, 64: words_64}


_BODIES = _bodies()


def _by_wider_word(kind, a, a0, sa, b, b0, sb, k, c, params):
    """The chain of a kind of arithmetic."""
    return _by_word(kind, a, a0, sa, b, b0, sb, k, c, params)


@overload(_by_wider_word)
def _compiled_by_wider_word(kind, a, a0, sa, b, b0, sb, k, c, params):
    return _BODIES[64 if a.dtype.bitwidth == 64 else 0]


@jit
def chain(a, a0, sa, b, b0, sb, k, c, params):
    """Accumulator bits of c + the dot product of k elements, in steps of an instruction, padded with zeros.

    a, b: flat unsigned arrays of element bits in words of the format's own size (s4, u4, b1, int8 and fp8 in uint8, f16
    and bf16 in uint16, tf32 in uint32, f64 in uint64): the word size chooses the code compiled.  Element t is
    a[a0 + t * sa] and b[b0 + t * sb].  c: accumulator bits in a uint64.  params: from `nbtc.numerics.models.params`.
    """
    return _by_word(params[KIND], a, a0, sa, b, b0, sb, k, c, params)


@jit
def wide_chain(a, a0, sa, b, b0, sb, k, c, params):
    """`chain` of elements in words of 32 bits whatever their size, f64 in words of 64: one code for all kinds."""
    return _by_wider_word(params[KIND], a, a0, sa, b, b0, sb, k, c, params)
