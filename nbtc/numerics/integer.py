"""Exact integer and bit dot products, one step at a time, wrapped or clamped to s32."""

from __future__ import annotations

import numpy as np

from nbtc.compiler.jit import jit
from nbtc.formats.table import FORMATS
from nbtc.numerics.models import A_FORMAT, B_FORMAT, BIT_OP, SATURATE, STEP

_SIZE = 1 + max(f.code for f in FORMATS.frozen())


def _by_code(values: dict[int, int]) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    table = np.zeros(_SIZE, np.int64)
    for code, value in values.items():
        table[code] = value
    return table


_BITS = _by_code({f.code: f.bits for f in FORMATS.frozen()})
_SIGNS = _by_code({f.code: 1 << (f.bits - 1) for f in FORMATS.frozen() if f.kind == "int" and f.signed})


@jit(inline=True)
def clamped(x):
    """An exact sum in 64 bits, saturated to s32."""
    return min(max(x, np.int64(-(1 << 31))), np.int64((1 << 31) - 1))


@jit
def integer_chain(a, a0, sa, b, b0, sb, k, c, params):
    """s32 bits of c + sum of a[t] * b[t]: exact a step, then modulo 2**32 or clamped."""
    mask_a, mask_b = (np.int64(1) << _BITS[params[A_FORMAT]]) - 1, (np.int64(1) << _BITS[params[B_FORMAT]]) - 1
    sign_a, sign_b = _SIGNS[params[A_FORMAT]], _SIGNS[params[B_FORMAT]]
    low = np.int64(c & np.uint64(0xFFFFFFFF))
    acc = low - ((low >> 31) << 32)
    step = params[STEP] if params[SATURATE] else k
    for start in range(0, k, max(step, 1)):
        for t in range(start, min(start + step, k)):
            x = np.int64(a[a0 + t * sa]) & mask_a
            y = np.int64(b[b0 + t * sb]) & mask_b
            acc += ((x ^ sign_a) - sign_a) * ((y ^ sign_b) - sign_b)
        if params[SATURATE]:
            acc = clamped(acc)
    return np.uint64(acc & 0xFFFFFFFF)


@jit
def bit_chain(a, a0, sa, b, b0, sb, k, c, params):
    """s32 bits of c + popcount(a op b), modulo 2**32."""
    both = params[BIT_OP] != 0
    acc = np.int64(c & np.uint64(0xFFFFFFFF))
    for t in range(k):
        x, y = np.int64(a[a0 + t * sa]), np.int64(b[b0 + t * sb])
        acc += ((x & y) if both else (x ^ y)) & 1
    return np.uint64(acc & 0xFFFFFFFF)
