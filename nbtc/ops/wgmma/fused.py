"""Whole dense floating-point warpgroup products through the fused micro-kernel.

Each form is one block of products, so a warpgroup is one pass: gather and decode A and B, turn the accumulators, sum,
turn them back.  Operands whose exponents span too much, Inf, NaN, and sums or accumulators near the ends of their range
are left to `warpgroup.run`, which is exact for all of them.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nbtc.compiler.bits import as_f32, as_i32
from nbtc.compiler.jit import jit
from nbtc.compiler.processors import host_processor
from nbtc.formats.table import Format
from nbtc.kernels.alignment_and_rounding import FLOOR_FIELD
from nbtc.kernels.float_elements import lift
from nbtc.kernels.panel import SCRATCH
from nbtc.kernels.panel_schedules import FLAG_WORD
from nbtc.numerics.models import BLOCK, KIND, OUTS, Kind
from nbtc.ops.wgmma import tile as tile_of
from nbtc.ops.wgmma.decode import Packing, magnitudes, pack
from nbtc.ops.wgmma.gather import DEPTH_BYTES, K_MAJOR, MN_MAJOR, PANEL, gathers, room, source_of
from nbtc.ops.wgmma.general import THREADS
from nbtc.ops.wgmma.sums import FetchingBlock, sum_fetching

# Binades an operand may span for exponents to fit a byte with room to tell zeros, which show 0: of spans S, sums of two
# real exponents begin at F + 127 - 2 S = 152 - 2 S, of which each side has half; a real one and a zero stay below if
# 76 - S + S < 152 - 2 S, that is S < 38.
SPREAD = 37
# Significands that must sum to this on both sides for 16 products and c to leave 32 bits: each product is less than
# twice either of its significands, so below that the sum is less than (2 * 31 + 2) * 2**25 = 2**31.
HEAVY = 31
_RNE11, _FUSED = OUTS["rne11"], int(Kind.FUSED)


def serves(params: NDArray[np.int64], stored: int) -> bool:
    """True when `kernel` can do a dense form on this machine: floating, all products in one block."""
    return int(params[KIND]) == _FUSED and int(params[BLOCK]) == stored and host_processor() is not None


@cache
def _sums(wide: int, block: int, fraction: int, out: int) -> Any:
    """sums(block, words, ahead): a `FetchingBlock`; False when a result is not to be used.

    Apart from `kernel`, so that formats share its machine code.
    """

    @jit
    def sums(x, words, ahead):
        flags = x.scratch.view(np.uint32)[FLAG_WORD : FLAG_WORD + 32]
        flags[:16], flags[16:] = np.uint32(0xFFFFFFFF), np.uint32(0)
        sum_fetching(wide, block, fraction, out, x, words, ahead)
        if out == _RNE11:
            for q in range(16, 32):
                if flags[q] >= np.uint32(0x7F7FFFFF):
                    return False
        return True

    return sums


@cache
def _range(fmt: Format) -> Any:
    """span(raw): (least, greatest) exponent of a gathered operand: of the format if that is small; sound or not."""
    code, bias, shift = fmt.code, fmt.bias, fmt.bits - 1 - fmt.exponent
    special = fmt.special << (shift - fmt.mantissa)
    fixed, low, high = fmt.exponent <= 5, fmt.emin, fmt.emax
    every = (1 << fmt.bits) - 1  # `magnitudes` of nothing but zeros

    @jit
    def span(raw):
        seen = magnitudes(code, raw, raw.size)
        least, most = seen & np.int64(0xFFFFFFFF), seen >> np.int64(32)
        if fixed:
            return low, high, most < special
        if least == every:
            return 0, 0, True
        return max((least + 1) >> shift, 1) - bias, max(most >> shift, 1) - bias, most < special

    return span


@jit(inline=True)
def _power(x):
    """2**x as a normal f32."""
    return as_f32(np.int32((x + 127) << 23))


@cache
def kernel(a_fmt: Format, b_fmt: Format, f16_acc: int, block: int, fraction: int, out: int) -> Any:
    """run(first, last, task, floor, left): warpgroups first..last; left[g] is set for what `general.run` has to do."""
    bits, wide = a_fmt.bits, int(fraction > 13)
    gather = gathers(bits)
    span_a, span_b, sums = _range(a_fmt), _range(b_fmt), _sums(wide, block, fraction, out)
    a_code, b_code, a_lift, b_lift = a_fmt.code, b_fmt.code, lift(a_fmt), lift(b_fmt)
    a_bias, b_bias, share = a_fmt.bias, b_fmt.bias, fraction // 2
    a_heavy, b_heavy = HEAVY << a_fmt.mantissa, HEAVY << b_fmt.mantissa
    size = 8 if wide else 4

    @jit
    def run(first, last, task, floor, left):
        geometry, sources = task.geometry, task.sources
        d, d_from, keep, out_words = task.accumulators
        n = geometry.n
        value = np.float64 if wide else np.float32
        raw_a, raw_b = room(PANEL * DEPTH_BYTES), room(n * DEPTH_BYTES)
        av, bv = room(PANEL * block * size).view(value), room(n * block * size).view(value)
        ae, be = room(PANEL * block), room(4 * n * block).view(np.uint32)
        sa, sb = room(4 * PANEL).view(np.uint32), room(4 * n).view(np.uint32)
        tile, scratch = room(4 * n * PANEL).view(np.float32), room(SCRATCH)
        a_source, b_source = source_of(geometry), MN_MAJOR if geometry.b_mn else K_MAJOR
        flip_a, flip_b = np.uint32(geometry.flip_a), np.uint32(geometry.flip_b)
        registers = n >> 2 if f16_acc else n >> 1
        lines = n % (64 if f16_acc else 32) == 0 and (np.int64(out_words.ctypes.data) & 63) == 0
        for g in range(first, last):
            left[g] = np.uint8(1)
            gather(a_source, b_source, g, geometry, sources, raw_a, raw_b)
            a_low, a_high, a_sound = span_a(raw_a)
            b_low, b_high, b_sound = span_b(raw_b)
            if not (a_sound and b_sound and _near(a_low, a_high, b_low, b_high)):
                continue
            scale, low = a_high + b_high - fraction, fraction + 127 - (a_high - a_low) - (b_high - b_low)
            zero = low >> 1
            up_a, up_b = _power(share - a_high + a_lift), _power(fraction - share - b_high + b_lift)
            heavy_a = pack(a_code, wide, 1, Packing(raw_a, flip_a, zero - a_low - a_bias, up_a, av, ae, sa, 0))
            below = low - zero - b_low - b_bias
            heavy_b = pack(b_code, wide, 0, Packing(raw_b, flip_b, below, up_b, bv, be, sb, n >> 2))
            if heavy_a >= a_heavy and heavy_b >= b_heavy:
                continue
            if keep[g]:
                start = d_from[g] * registers * THREADS
                seen = tile_of.load(f16_acc, d, start, tile, n, _power(-scale), False)
                if not _tame(seen, FLOOR_FIELD - 127 + scale, f16_acc):
                    continue
            else:
                tile[:] = np.float32(0.0)
            ahead = d_from[min(g + 1, last - 1)] * registers * THREADS
            least = floor + 127 - scale
            x = FetchingBlock(bv, be, sb, av, ae, sa, tile, n >> 2, least, 113 - scale, scale, low, scratch)
            if sums(x, d, ahead):
                tile_of.store(f16_acc, out_words, g * registers * THREADS, tile, n, _power(scale), lines)
                left[g] = np.uint8(0)

    return run


@jit(inline=True)
def _near(a_low, a_high, b_low, b_high):
    """Exponents that fit bytes, and products whose sums and last places are normal f32 numbers."""
    fits = a_high - a_low <= SPREAD and b_high - b_low <= SPREAD
    middle = max(abs(a_high), abs(b_high)) <= 100
    return fits and middle and a_low + b_low >= -100 and a_high + b_high <= 60


@jit(inline=True)
def _tame(seen, floor, f16_acc):
    """Accumulators that are zero or from 2**floor (f16: anything) to 2**60."""
    least, most = seen & np.int64(0xFFFFFFFF), (seen >> np.int64(32)) & np.int64(0xFFFFFFFF)
    bound = np.int64(as_i32(np.float32(2.0**floor))) << 1
    return most <= np.int64((127 + 60) << 24) and (f16_acc or least + 1 >= bound)
