"""How packers read a float format's bits, and the range of a matrix's exponents."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from nbtc._jit import jit
from nbtc.formats.table import Format

# entries of the parameter vector of a packer
MANTISSA, MASK, BIAS, SIGN_SHIFT, FIELD_SHIFT, SPECIAL, REFERENCE, BASE = range(8)


def float_params(fmt: Format, reference: int = 0, base: int = 0) -> NDArray[np.int64]:
    """How to read a float format's bits.  reference: exponent that is stored as `base`."""
    width = fmt.bits
    shift = width - 1 - fmt.exponent
    special = ((1 << fmt.exponent) - 1) << shift
    if fmt.finite_only:
        special |= (1 << fmt.mantissa) - 1
    mask = (1 << fmt.exponent) - 1
    return np.array([fmt.mantissa, mask, fmt.bias, width - 1, shift, special, reference, base], np.int64)


@jit(inline=True)
def decode(bits, p):
    """(sign, exponent, significand, zero, special) of a float: value = significand * 2**(exponent - mantissa bits)."""
    x = np.int64(bits)
    m = p[MANTISSA]
    magnitude = x & ((np.int64(1) << p[SIGN_SHIFT]) - np.int64(1))
    special = magnitude >= p[SPECIAL]
    field = magnitude >> p[FIELD_SHIFT]
    normal = np.int64(field != 0)
    low = (magnitude >> (p[FIELD_SHIFT] - m)) & ((np.int64(1) << m) - np.int64(1))
    significand = low | (normal << m)
    sign = (x >> p[SIGN_SHIFT]) & np.int64(1)
    return sign, field + np.int64(1) - normal - p[BIAS], significand, (significand == 0) | special, special


@jit
def exponent_range(x, p, seen):
    """Widen seen = [least, greatest] to the exponents of the finite non-zero elements of (rows, columns) bits."""
    low, high = seen[0], seen[1]
    for i in range(x.shape[0]):
        for j in range(x.shape[1]):
            _, exponent, _, zero, _ = decode(x[i, j], p)
            low = low if zero else min(low, exponent)
            high = high if zero else max(high, exponent)
    seen[0], seen[1] = low, high
