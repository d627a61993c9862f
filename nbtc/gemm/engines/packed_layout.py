"""How the operands of a fused product are stored: the bounds that products and sums of them keep."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nbtc.formats.table import Format
from nbtc.gemm.engines.exponent_ranges import Range
from nbtc.kernels.float_elements import NUDGE
from nbtc.kernels.float_fields import float_params
from nbtc.kernels.panels.alignment_and_rounding import FLOOR_FIELD
from nbtc.kernels.panels.alignment_by_turns import LEAST_FIELD, SCALES, SCALES_BY_DOTS
from nbtc.kernels.panels.panel_operands import Numbers, Packing, Source
from nbtc.numerics.models import BLOCK, FLOOR, FRACTION, KIND, OUT, OUTS, Kind

# Binades an operand may span: sums of two stored exponents start at low = F + 127 - 2 * 37, and one alone, beside a
# zero's 0, reaches low / 2 + 37, which is smaller for F >= 23.  By turns, fields of products are F + 128 to F + 202.
NEAR_SPREAD = 37
EMULATED_FP8 = int(Kind.EMULATED_FP8)
# They stand for zeros: smaller than every last place (f64: 2**(-133 - 25), times elements below 2**128; f32: the field
# FLOOR_FIELD is 2**-77, its last place 2**(-77 - 13), times elements below 2**17), but rounded as their sign rounds.
TINY64, TINY32 = 2.0**-500, 2.0**-126
# Products in f64 whose M has the exponent field of the f32 alignment (`ByTurns`) are scaled by 2**-(948 - F), A's
# elements by 2**-461, B's by the rest.  Their last places are 2**(FLOOR_FIELD - 1023 - 52) = 2**-1025 at least, and
# elements are below 2**(128 - 461 + 126), so that a zero's products are below all of those.
SCALED_A, TINY64_BY_TURNS = 461, 2.0**-1000
FULL_RANGE_BASE = 0x2000  # stored exponents start here, so that a sum with a zero's (0) is below twice as much


@dataclass(frozen=True)
class PackedLayout:
    """How operands are stored for one product: packing parameters of A and B and the constants of the kernel.

    tiny: what stands for a zero.  factors: of elements of A and of B.
    keeps_infinity: an Inf in the tile stays one: the exponent field 255 + scale - F of its rounding is a number's, and
    M's is one of f64 (of f32 it is more than there are, so that an Inf could become any sum).
    """

    packing: Packing
    scale: int
    tiny: float
    factors: tuple[float, float]
    pack_a: NDArray[np.int64]
    pack_b: NDArray[np.int64]
    numbers: Numbers
    keeps_infinity: bool

    def source(self, side: int, x: NDArray[Any], first: int, ld: int) -> Source:
        """Elements of A (side 0) or B as a packer reads them: flat, from one on, `ld` from row to row."""
        pack = (self.pack_a, self.pack_b)[side]
        return Source(x.view(np.uint8), first, ld, x.itemsize, pack, self.factors[side], self.tiny)


@lru_cache(maxsize=64)
def packed_layout(
    p: tuple[int, ...], a: Format, b: Format, ra: Range, rb: Range, rc: Range | None, scaled: bool, least_field: int
) -> PackedLayout:
    """Byte exponents and scaled accumulators where operands (and c) span few binades, else 16 bits and true scale.

    p: `params`.  scaled: ranges are those of elements with their scales.  least_field: the
    processor's `least_field_by_turns`.
    """
    fraction, floor, f16_acc, in_f64 = p[FRACTION], p[FLOOR], p[OUT] == OUTS["rne11"], p[FRACTION] > 13
    top, least_field = _top(p, ra, rb, least_field)
    scale = ra.greatest + rb.greatest + 127 - top
    low = top - ra.spread - rb.spread
    floor_exponent = (least_field or FLOOR_FIELD) - 127 + scale
    fits = ra.spread <= NEAR_SPREAD and rb.spread <= NEAR_SPREAD
    normal = ra.least + rb.least >= -100 and ra.greatest + rb.greatest <= 60
    plain = rc is None or not rc.greatest >= rc.least or (rc.least >= floor_exponent and rc.greatest < 60)
    limited = fits and normal and (plain or (a.exponent <= 5 and a.bits == 8 and not scaled))
    if limited:
        by_dots = least_field == LEAST_FIELD
        bases = (top - ra.spread, 255 - rb.spread) if by_dots else (low // 2, low - low // 2)
        numbers = floor + 127 - scale, 113 - scale, scale, low
        limits = 0.0 if f16_acc else 2.0**floor_exponent, 2.0**60
    else:
        scale, bases = 0, (FULL_RANGE_BASE, FULL_RANGE_BASE)
        numbers = floor + 127, 113 if f16_acc else 1, 0, ra.least + rb.least - 2 * FULL_RANGE_BASE + 127
        limits = 0.0, float(np.finfo(np.float32).max)
    keeps_infinity = limited and scale < fraction and fraction > 13
    pack_a, pack_b = (
        float_params(f, r.least, x, r.least if f.exponent <= 5 and not scaled else None)
        for f, r, x in zip((a, b), (ra, rb), bases, strict=True)
    )
    flags = not limited, p[KIND] == EMULATED_FP8, scaled, limited and bool(least_field)
    packing = Packing(int(in_f64), p[BLOCK], *map(int, flags))
    numbers_ = Numbers(*numbers, *map(np.float32, limits))
    return PackedLayout(
        packing, scale, *_zero_and_factors(packing, fraction, a, b, scale), pack_a, pack_b, numbers_, keeps_infinity
    )


def _top(p: tuple[int, ...], ra: Range, rb: Range, least_field: int) -> tuple[int, int]:
    """Exponent field of the largest product, and the least of all where exponents can lie by turns, else 0.

    From `LEAST_FIELD` on, accumulators come to nothing smaller either: the least product's field is F above.  In f64 c
    may be as small as beside operands that span all they may, as long as 2**-scale is a number.  Otherwise alignment
    never needs a negative field.
    """
    greatest, fraction, f16_acc = ra.greatest + rb.greatest, p[FRACTION], p[OUT] == OUTS["rne11"]
    if least_field == LEAST_FIELD:
        top = LEAST_FIELD + fraction + ra.spread + rb.spread
        if fraction > 13:
            top = max(top, min(LEAST_FIELD + fraction + 2 * NEAR_SPREAD, greatest + 253))
        scale = greatest + 127 - top
        if not f16_acc or (scale in SCALES_BY_DOTS and LEAST_FIELD <= p[FLOOR] + 127 - scale < 255):
            return top, least_field
    top = fraction + 127
    return top, least_field if least_field < LEAST_FIELD and (not f16_acc or greatest + 127 - top in SCALES) else 0


def _zero_and_factors(
    packing: Packing, fraction: int, a: Format, b: Format, scale: int
) -> tuple[float, tuple[float, float]]:
    """What stands for a zero, and the factors of elements of A and of B."""
    left, right = 2.0 ** (127 - a.bias - scale), NUDGE[bool(packing.in_f64)] * 2.0 ** (127 - b.bias)
    if not (packing.in_f64 and packing.by_turns):
        return TINY64 if packing.in_f64 else TINY32, (left, right)
    in_all = 1023 - 127 + 52 - fraction
    return TINY64_BY_TURNS, (left * 2.0**-SCALED_A, right * 2.0 ** (SCALED_A - in_all))
