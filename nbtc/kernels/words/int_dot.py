"""Tiles of integer and bit dot products: plain loops over all columns of a row, which compilers vectorise."""

from __future__ import annotations

import numpy as np
from numba.core import types
from numba.extending import intrinsic

from nbtc.compiler.jit import jit
from nbtc.formats.table import FORMATS
from nbtc.numerics.integer import clamped
from nbtc.numerics.models import A_FORMAT, B_FORMAT, BIT_OP, SATURATE

_S8 = FORMATS["s8"].code


@intrinsic  # type: ignore[untyped-decorator, unused-ignore]
def _ones(typing, x):
    """Bits set in a uint32."""

    def codegen(context, builder, sig, args):
        return builder.ctpop(args[0])

    return types.uint32(types.uint32), codegen


@jit(inline=True)
def _signed(x, signed):
    """An 8-bit integer in a wider word as int32."""
    return np.int32(np.int8(np.uint8(x))) if signed else np.int32(np.uint8(x))


@jit
def integer_tile(a, b, c, sizes, picks, params):
    """c = A * B + c of 8-bit integers, wrapped or clamped once; arguments as `rows.fused_tile`, k at most 2**15."""
    sa, sb = params[A_FORMAT] == _S8, params[B_FORMAT] == _S8
    m, n, k = sizes
    total = np.empty(n, np.int32)
    for i in range(m):
        total[:] = np.int32(0)
        for t in range(k):
            x = _signed(a[i * k + t], sa)
            at = picks.places[i * picks.step + t] * n
            column = b[at : at + n]
            if sb:
                for j in range(n):
                    total[j] += x * _signed(column[j], True)
            else:
                for j in range(n):
                    total[j] += x * _signed(column[j], False)
        row = c[i * n : (i + 1) * n]
        if params[SATURATE] != 0:
            for j in range(n):
                row[j] = np.uint32(clamped(np.int64(total[j]) + np.int64(np.int32(row[j]))))
        else:
            for j in range(n):
                row[j] += np.uint32(total[j])


@jit
def bit_tile(a, b, c, sizes, params):
    """c = A * B + c of bits, 32 an element: popcount of and (or xor), modulo 2**32; k counts words."""
    both = params[BIT_OP] != 0
    m, n, k = sizes
    for i in range(m):
        row = c[i * n : (i + 1) * n]
        for t in range(k):
            x = a[i * k + t]
            column = b[t * n : (t + 1) * n]
            if both:
                for j in range(n):
                    row[j] += np.uint32(_ones(x & column[j]))
            else:
                for j in range(n):
                    row[j] += np.uint32(_ones(x ^ column[j]))
