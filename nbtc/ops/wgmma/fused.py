"""Whole dense floating-point warpgroup products through the fused micro-kernel.

Each form is one block of products, so a warpgroup is one pass: gather and decode A and B, turn the accumulators, sum,
turn them back.  Operands whose exponents span too much, Inf, NaN, and sums or accumulators near the ends of their range
are left to `warpgroup.run`, which is exact for all of them.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from nbtc.compiler.bits import as_f32, as_i32
from nbtc.compiler.cpu.processors import host_processor
from nbtc.compiler.jit import jit
from nbtc.compiler.machine_code.emitted import call_emitted
from nbtc.errors import CompilerError
from nbtc.formats.table import Format
from nbtc.kernels.float_elements import bias_difference
from nbtc.kernels.panels.alignment_and_rounding import FLOOR_FIELD, SumShape
from nbtc.kernels.panels.panel import SCRATCH
from nbtc.kernels.panels.panel_schedules import FLAG_WORD
from nbtc.numerics.models import BLOCK, KIND, OUTS, Kind
from nbtc.ops.wgmma import tile as tile_of
from nbtc.ops.wgmma.decode import Gathered, OperandPacking, magnitudes, packer
from nbtc.ops.wgmma.gather import DEPTH_BYTES, PANEL, Gatherers, buffer, gather
from nbtc.ops.wgmma.general import THREADS
from nbtc.ops.wgmma.sums import FetchingBlock, sums
from nbtc.ops.wgmma.tile import PAST_CACHES, Moving

# Binades an operand may span for exponents to fit a byte with room to tell zeros, which show 0: of spans S, sums of two
# real exponents begin at F + 127 - 2 S = 152 - 2 S, of which each side has half; a real one and a zero stay below if
# 76 - S + S < 152 - 2 S, that is S < 38.
SPREAD = 37
# Significands that must sum to this on both sides for 16 products and c to leave 32 bits: each product is less than
# twice either of its significands, so below that the sum is less than (2 * 31 + 2) * 2**25 = 2**31.
LONG_SUM = 31
_RNE11, _FUSED = OUTS["rne11"], int(Kind.FUSED)


def serves(params: NDArray[np.int64], stored: int) -> bool:
    """True when `run` can do a dense form on this machine: floating, all products in one block."""
    return int(params[KIND]) == _FUSED and int(params[BLOCK]) == stored and host_processor() is not None


class OperandSide(NamedTuple):
    """What `run` has to know of an operand: its gathered bits' functions, and numbers of its format.

    fixed: its exponents are taken to be from `least` to `most`; else its elements are looked at.  shift: to the
    exponent in a magnitude.  special: the least magnitude of Inf and NaN.  every: `magnitudes` of nothing but zeros.
    long_sum: significands that may sum too high.
    """

    magnitudes: int
    pack: int
    fixed: int
    least: int
    most: int
    shift: int
    bias: int
    special: int
    every: int
    bias_difference: int
    long_sum: int


def _side(fmt: Format, in_f64: bool, panel: bool) -> OperandSide:
    shift = fmt.bits - 1 - fmt.exponent
    return OperandSide(
        magnitudes(fmt), packer(fmt, in_f64, panel), int(fmt.exponent <= 5), fmt.emin, fmt.emax, shift, fmt.bias,
        fmt.special << (shift - fmt.mantissa), (1 << fmt.bits) - 1, bias_difference(fmt), LONG_SUM << fmt.mantissa,
    )  # fmt: skip


class FusedSteps(NamedTuple):
    """What a form consists of: addresses of functions and numbers.

    bounded: results are f16, which have an end that sums reach.
    """

    gather: Gatherers
    a: OperandSide
    b: OperandSide
    load: int
    sums: int
    store: int
    in_f64: int
    f16_acc: int
    block: int
    fraction: int
    bounded: int


@cache
def steps(a: Format, b: Format, f16_acc: int, block: int, fraction: int, out: int, gather: Gatherers) -> FusedSteps:
    """Those of a form; f16_acc: 1 for f16 accumulators."""
    in_f64, target = fraction > 13, host_processor()
    if target is None:
        raise CompilerError("no vector code for this processor: ask `serves` first")
    name = {code: text for text, code in OUTS.items()}[out]
    shape = SumShape(target, in_f64, block, fraction, name, full_range=False, checked=False)
    return FusedSteps(
        gather, _side(a, in_f64, True), _side(b, in_f64, False),
        tile_of.loader(f16_acc), sums(shape), tile_of.storer(f16_acc),
        int(in_f64), f16_acc, block, fraction, int(out == _RNE11),
    )  # fmt: skip


@jit(inline=True)
def _span(side, raw):
    """(least, greatest) exponent of a gathered operand: of the format if that is small; sound or not."""
    seen = call_emitted(side.magnitudes, Gathered(raw, raw.size))
    least, most = seen & np.int64(0xFFFFFFFF), seen >> np.int64(32)
    if side.fixed:
        return side.least, side.most, most < side.special
    if least == side.every:
        return 0, 0, True
    shift, bias = side.shift, side.bias
    return max((least + 1) >> shift, 1) - bias, max(most >> shift, 1) - bias, most < side.special


@jit(inline=True)
def _power(x):
    """2**x as a normal f32."""
    return as_f32(np.int32((x + 127) << 23))


@jit(inline=True)
def _largest(words):
    found = np.uint32(0)
    for x in words:
        found = max(found, x)
    return found


@jit
def run(first, last, task, steps, floor, left):
    """Warpgroups first..last; left[g] is set for what `general.run` has to do."""
    geometry, sources = task.geometry, task.sources
    d, d_from, keep, out_words = task.accumulators
    n, f16_acc, block, fraction = geometry.n, steps.f16_acc, steps.block, steps.fraction
    size = 8 if steps.in_f64 else 4
    raw_a, raw_b = buffer(PANEL * DEPTH_BYTES), buffer(n * DEPTH_BYTES)
    av, bv, ae, be = (
        buffer(PANEL * block * size),
        buffer(n * block * size),
        buffer(PANEL * block),
        buffer(4 * n * block),
    )
    sa, sb, tile, scratch = buffer(4 * PANEL), buffer(4 * n), buffer(4 * n * PANEL), buffer(SCRATCH)
    flags, share = scratch.view(np.uint32)[FLAG_WORD : FLAG_WORD + 32], fraction // 2
    registers = n >> 2 if f16_acc else n >> 1
    whole = n % (64 if f16_acc else 32) == 0 and (np.int64(out_words.ctypes.data) & 63) == 0
    lines = int(whole and out_words.size > PAST_CACHES)
    for g in range(first, last):
        left[g] = np.uint8(1)
        gather(steps.gather, g, geometry, sources, raw_a, raw_b)
        a_low, a_high, a_sound = _span(steps.a, raw_a)
        b_low, b_high, b_sound = _span(steps.b, raw_b)
        if not (a_sound and b_sound and _limited_range(a_low, a_high, b_low, b_high)):
            continue
        scale, low = a_high + b_high - fraction, fraction + 127 - (a_high - a_low) - (b_high - b_low)
        zero = low >> 1
        up_a = _power(share - a_high + steps.a.bias_difference)
        up_b = _power(fraction - share - b_high + steps.b.bias_difference)
        above, below = zero - a_low - steps.a.bias, low - zero - b_low - steps.b.bias
        sum_a = call_emitted(steps.a.pack, OperandPacking(raw_a, geometry.flip_a, above, up_a, av, ae, sa, 0))
        sum_b = call_emitted(steps.b.pack, OperandPacking(raw_b, geometry.flip_b, below, up_b, bv, be, sb, n >> 2))
        if sum_a >= steps.a.long_sum and sum_b >= steps.b.long_sum:
            continue
        if keep[g]:
            start = d_from[g] * registers * THREADS
            seen = call_emitted(steps.load, Moving(d, start, tile, n, _power(-scale), 0))
            if not _in_range(seen, FLOOR_FIELD - 127 + scale, f16_acc != 0):
                continue
        else:
            tile[:] = np.uint8(0)
        ahead, least = d_from[min(g + 1, last - 1)] * registers * THREADS, floor + 127 - scale
        flags[:16], flags[16:] = np.uint32(0xFFFFFFFF), np.uint32(0)
        x = FetchingBlock(bv, be, sb, av, ae, sa, tile, n >> 2, least, 113 - scale, scale, low, scratch, d, ahead)
        call_emitted(steps.sums, x)
        if not steps.bounded or _largest(flags[16:]) < np.uint32(0x7F7FFFFF):
            call_emitted(steps.store, Moving(out_words, g * registers * THREADS, tile, n, _power(scale), lines))
            left[g] = np.uint8(0)


@jit(inline=True)
def _limited_range(a_low, a_high, b_low, b_high):
    """Exponents that fit bytes, and products whose sums and last places are normal f32 numbers."""
    fits = a_high - a_low <= SPREAD and b_high - b_low <= SPREAD
    middle = max(abs(a_high), abs(b_high)) <= 100
    return fits and middle and a_low + b_low >= -100 and a_high + b_high <= 60


@jit(inline=True)
def _in_range(seen, floor, f16_acc):
    """Accumulators that are zero or from 2**floor (f16: anything) to 2**60."""
    least, most = seen & np.int64(0xFFFFFFFF), (seen >> np.int64(32)) & np.int64(0xFFFFFFFF)
    bound = np.int64(as_i32(np.float32(2.0**floor))) << 1
    return most <= np.int64((127 + 60) << 24) and (f16_acc or least + 1 >= bound)
