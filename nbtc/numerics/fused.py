"""One dot product, bit for bit as a tensor core computes it: scalar, integer arithmetic, every input class, every model.

`chain` is the general path of the library.  Faster kernels exist for common cases; they hand everything doubtful (Inf,
NaN, sums that leave their range) to this file, so what it says is what nbtc says.
"""

from __future__ import annotations

import numpy as np

from nbtc._jit import jit
from nbtc.formats.table import FORMATS, e4m3, e5m2, f16, tf32
from nbtc.numerics.ieee import (
    INF16,
    INF32,
    NAN16,
    NAN32,
    add16,
    add32,
    encode,
    fma32,
    fma64,
    half_to_single,
    leading_zeros,
    round_magnitude,
    single_to_half,
)
from nbtc.numerics.integer import bit_chain, integer_chain
from nbtc.numerics.models import (
    A_FORMAT,
    ACC_FORMAT,
    B_FORMAT,
    BLOCK,
    FLOOR,
    FRACTION,
    KIND,
    OUT,
    OUTS,
    ROUNDING,
    STEP,
    Kind,
)

_SIZE = 1 + max(f.code for f in FORMATS.values())
# columns of _FIELDS: mantissa bits, exponent bits, exponent of a subnormal, container bits ignored below, first special code
_FIELDS = np.zeros((_SIZE, 5), np.int64)
for _f in FORMATS.values():
    if _f.kind == "float" and _f.bits <= 32:
        _dropped = 32 - 1 - _f.exponent - _f.mantissa if _f is tf32 else 0
        _special = ((1 << _f.exponent) - 1) << _f.mantissa
        _FIELDS[_f.code] = _f.mantissa, _f.exponent, _f.emin, _dropped, _special | ((1 << _f.mantissa) - 1 if _f.finite_only else 0)

_E4M3, _E5M2, _F16 = e4m3.code, e5m2.code, f16.code
_EMULATED, _SCALAR, _FMA64, _INTEGER, _BITS = (
    int(k) for k in (Kind.EMULATED_FP8, Kind.SCALAR_FMA, Kind.FMA64, Kind.INTEGER, Kind.BITS)
)
_RZ14, _RNE11 = OUTS["rz14"], OUTS["rne11"]
_NONE = -(1 << 40)  # below every exponent


@jit(inline=True)
def _fields(code):
    """How to read a format: (mantissa bits, exponent mask, subnormal exponent, low bits to drop, first special code, sign bit)."""
    mantissa, exponent = _FIELDS[code, 0], _FIELDS[code, 1]
    mask = (np.int64(1) << exponent) - 1
    return mantissa, mask, _FIELDS[code, 2], _FIELDS[code, 3], _FIELDS[code, 4], np.int64(1) << (mantissa + exponent)


@jit(inline=True)
def _fp8_to_half(x, code):
    """fp8 bits as f16 bits, exactly; e4m3 subnormals become normal, which an alignment exponent can see."""
    if code == _E5M2:
        return x << 8
    magnitude = x & 0x7F
    sign = (x & 0x80) << 8
    if magnitude == 0x7F:
        return np.int64(NAN16)
    if magnitude >= 8:
        return sign | ((magnitude << 7) + (8 << 10))
    if magnitude == 0:
        return sign
    top = 63 - leading_zeros(magnitude)
    return sign | ((magnitude << (10 - top)) + ((top + 5) << 10))


@jit(inline=True)
def _load(x, at, drop, widen, code):
    """Element bits as int64: without a tf32's ignored bits, or an fp8 widened to f16."""
    bits = np.int64(x[at]) >> drop
    return _fp8_to_half(bits, code) if widen else bits


@jit(inline=True)
def _split(bits, f):
    """(significand, exponent) of finite bits without sign; the significand counts units of 2**(exponent - mantissa bits)."""
    field = (bits >> f[0]) & f[1]
    significand = bits & ((np.int64(1) << f[0]) - 1)
    hidden = np.int64(field != 0)
    return significand | (hidden << f[0]), field + (1 - hidden) + (f[2] - 1)


@jit(inline=True)
def _position(t, stretch):
    """Element t of a block: itself, or the t-th of k mod 4 in {0, 1} when stretched."""
    return t + (t & -2) * stretch


@jit
def _specials(a, pa, sa, b, pb, sb, here, stretch, widen, fa, fb, ca, cb, c, fc):
    """(any NaN or invalid, +Inf seen, -Inf seen) of a block's products and its accumulator."""
    nan, plus, minus = False, False, False
    for t in range(here):
        at = _position(t, stretch)
        x, y = _load(a, pa + at * sa, fa[3], widen, ca), _load(b, pb + at * sb, fb[3], widen, cb)
        mx, my = x & (fa[5] - 1), y & (fb[5] - 1)
        if mx < fa[4] and my < fb[4]:
            continue
        ix, iy = fa[4] & ((np.int64(1) << fa[0]) - 1) == 0, fb[4] & ((np.int64(1) << fb[0]) - 1) == 0
        if (mx > fa[4] or (mx == fa[4] and not ix)) or (my > fb[4] or (my == fb[4] and not iy)) or mx == 0 or my == 0:
            nan = True
        elif ((x & fa[5]) != 0) != ((y & fb[5]) != 0):
            minus = True
        else:
            plus = True
    mc = c & (fc[5] - 1)
    if mc > fc[4]:
        nan = True
    elif mc == fc[4]:
        if (c & fc[5]) != 0:
            minus = True
        else:
            plus = True
    return nan or (plus and minus), plus, minus


@jit(inline=True)
def _round(total, exponent, out):
    """total * 2**exponent as accumulator bits; every zero is +0."""
    negative = total < 0
    magnitude = -total if negative else total
    if out == _RNE11:
        kept, unit = round_magnitude(magnitude, exponent, 11, -24, True)
        bits = encode(kept, unit, 10, -14, 15)
        sign = np.int64(0x8000)
    else:
        digits, least = (14, -139) if out == _RZ14 else (24, -149)
        kept, unit = round_magnitude(magnitude, exponent, digits, least, False)
        bits = encode(kept, unit, 23, -126, 127)
        sign = np.int64(0x80000000)
    return bits | sign if negative and bits != 0 else bits


@jit(inline=True)
def _block(a, pa, sa, b, pb, sb, here, size, stretch, widen, fa, fb, ca, cb, c, fc, fraction, floor, out):
    """T of `size` products, of which the first `here` exist and the rest are zero, and accumulator bits c."""
    top = np.int64(_NONE) if here == size else floor
    special = (c & (fc[5] - 1)) >= fc[4]
    low_a, low_b = fa[5] - 1, fb[5] - 1
    shift_a, shift_b = fa[2] - 1, fb[2] - 1
    for t in range(here):
        at = _position(t, stretch)
        x = _load(a, pa + at * sa, fa[3], widen, ca) & low_a
        y = _load(b, pb + at * sb, fb[3], widen, cb) & low_b
        special |= (x >= fa[4]) | (y >= fb[4])
        e = max(x >> fa[0], 1) + max(y >> fb[0], 1) + (shift_a + shift_b)
        top = max(top, floor if (x == 0) | (y == 0) else e)
    if special:
        nan, plus, minus = _specials(a, pa, sa, b, pb, sb, here, stretch, widen, fa, fb, ca, cb, c, fc)
        half = out == _RNE11
        if nan:
            return np.int64(NAN16 if half else NAN32)
        if plus or minus:
            inf = np.int64(INF16 if half else INF32)
            return inf | fc[5] if minus else inf
    significand, exponent = _split(c & (fc[5] - 1), fc)
    top = max(top, floor if significand == 0 else exponent)
    unit = top - fraction
    shift = exponent - fc[0] - unit
    total = significand << max(shift, 0) >> min(max(-shift, 0), 63)
    if (c & fc[5]) != 0:
        total = -total
    base = -fa[0] - fb[0] - unit
    for t in range(here):
        at = _position(t, stretch)
        x = _load(a, pa + at * sa, fa[3], widen, ca)
        y = _load(b, pb + at * sb, fb[3], widen, cb)
        mx, ex = _split(x & low_a, fa)
        my, ey = _split(y & low_b, fb)
        term = mx * my
        shift = ex + ey + base
        term = term << min(max(shift, 0), 63) >> min(max(-shift, 0), 63)
        negative = ((x & fa[5]) != 0) != ((y & fb[5]) != 0)
        total += -term if negative else term
    return _round(total, unit, out)


@jit
def _float_chain(a, a0, sa, b, b0, sb, k, c, params):
    """Chains of T: blocks in ascending k, or for emulated fp8 two interleaved halves a step and then c."""
    emulated = params[KIND] == _EMULATED
    stretch = np.int64(emulated)
    ca, cb = params[A_FORMAT], params[B_FORMAT]
    fa, fb = _fields(_F16 if emulated else ca), _fields(_F16 if emulated else cb)
    fc = _fields(params[ACC_FORMAT])
    half = params[ACC_FORMAT] == _F16
    size, step = params[BLOCK], params[STEP]
    span = step if emulated else size
    steps = -(-k // step)
    acc = np.int64(c)
    for start in range(0, steps * step, span):
        left = min(max(k - start, 0), span)
        value = np.int64(0) if emulated else acc
        for part in range(1 + stretch):
            first = start + 2 * part
            # of the elements that exist, those of this half: k mod 4 in {0, 1}, then {2, 3}
            here = 2 * (left >> 2) + min(max((left & 3) - 2 * part, 0), 2) if emulated else left
            value = _block(
                a, a0 + first * sa, sa, b, b0 + first * sb, sb, here, size, stretch, emulated, fa, fb, ca, cb, value, fc,
                params[FRACTION], params[FLOOR], params[OUT],
            )  # fmt: skip
        if emulated:
            value = add16(acc, value) if half else add32(acc, value)
        acc = value
    return np.uint64(acc)


@jit(inline=True)
def _half_at(x, start, stride, t, k):
    """Element t of an f16 vector as f32 bits; zero from k on."""
    return half_to_single(np.int64(x[start + t * stride]) & 0xFFFF) if t < k else np.int64(0)


@jit(inline=True)
def _product32(x, y):
    """The product of two widened f16, which f32 holds exactly (never -0 lost: c = -0 is fma's neutral element)."""
    return fma32(x, y, 0x80000000)


@jit
def _scalar_chain(a, a0, sa, b, b0, sb, k, c, params):
    """f16 m8n8k4 where no tensor core does it: four f32 fma from +0, then c; or two pairs for an f16 accumulator."""
    half = params[ACC_FORMAT] == _F16
    acc = half_to_single(np.int64(c)) if half else np.int64(c)
    for s in range(0, k, 4):
        if half:
            for pair in range(s, s + 4, 2):
                x0, y0 = _half_at(a, a0, sa, pair, k), _half_at(b, b0, sb, pair, k)
                x1, y1 = _half_at(a, a0, sa, pair + 1, k), _half_at(b, b0, sb, pair + 1, k)
                acc = add32(acc, fma32(x1, y1, _product32(x0, y0)))
            acc = half_to_single(single_to_half(acc))
        else:
            total = np.int64(0)
            for t in range(s, s + 4):
                total = fma32(_half_at(a, a0, sa, t, k), _half_at(b, b0, sb, t, k), total)
            acc = add32(acc, total)
    if k == 0:
        return np.uint64(c)
    return np.uint64(single_to_half(acc) if half else acc)


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


@jit
def chain(a, a0, sa, b, b0, sb, k, c, params):
    """Accumulator bits of c + the dot product of k elements, in steps of params' instruction, padded with zeros.

    a, b: flat unsigned arrays of element bits, one element each (s4, u4 and b1 in uint8, tf32 as f32 bits); element t is
    a[a0 + t * sa] and b[b0 + t * sb].  c: accumulator bits in a uint64.  params: from `nbtc.numerics.models.params`.
    """
    kind = params[KIND]
    if kind == _FMA64:
        return _fma64_chain(a, a0, sa, b, b0, sb, k, c, params)
    if kind == _INTEGER:
        return integer_chain(a, a0, sa, b, b0, sb, k, c, params)
    if kind == _BITS:
        return bit_chain(a, a0, sa, b, b0, sb, k, c, params)
    if kind == _SCALAR:
        return _scalar_chain(a, a0, sa, b, b0, sb, k, c, params)
    return _float_chain(a, a0, sa, b, b0, sb, k, c, params)
