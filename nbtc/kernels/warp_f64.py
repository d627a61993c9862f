"""f64 mma.sync and wmma as vector code: a chain of multiply-adds with the form's rounding, eight columns a vector.

Only NaN results are doubtful: which payload survives is for the general path to say.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import astuple, dataclass
from functools import cache
from typing import Any

from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

from nbtc.compiler.builder import F64, I1, I8, VectorBuilder, vector
from nbtc.compiler.jit import jit
from nbtc.kernels.warp_loop import each_warp, warps
from nbtc.numerics.models import ROUNDINGS

D8 = vector(F64, 8)
EMBEDDED = {ROUNDINGS["rn"]: 8, ROUNDINGS["rm"]: 9, ROUNDINGS["rp"]: 10, ROUNDINGS["rz"]: 11}


@dataclass(frozen=True)
class Doubles:
    """What is compiled in: A's registers (2 in products of eight rows), and the number of the rounding."""

    registers: int
    rounding: int

    @property
    def images(self) -> tuple[int, ...]:
        """Registers of A, B, C and D."""
        accumulators = 4 if self.registers == 2 else 8
        return self.registers, max(2, self.registers // 2), accumulators, accumulators

    def loop(self) -> Callable[..., Any]:
        """The compiled loop over warps."""
        return _kernel(*astuple(self))


def _emit(s: Doubles, v: VectorBuilder, pointers: list[Any]) -> Any:
    """The code of one warp; returns an i1: whether a result is NaN."""
    b, (a, right, c, d) = v.b, pointers
    each, other, rows = s.registers // 2, s.images[1] // 2, s.images[2] // 4  # f64 of a lane; rows of a lane
    columns = []
    for k in range(4 * other):
        x = ir.Constant(D8, ir.Undefined)
        for n in range(8):
            y = v.load(right, F64, 4, 8 * ((4 * n + k % 4) * other + k // 4))
            x = b.insert_element(x, y, v.int(n))
        columns.append(x)
    bad = ir.Constant(vector(I1, 8), [0] * 8)
    for j in range(8):
        both = v.load(c, vector(F64, 8 * rows), 4, 64 * rows * j)
        order = [2 * rows * (n // 2) + n % 2 for n in range(8)]  # of the first row's columns in the image
        sums = [v.shuffle(both, both, [2 * r + n for n in order]) for r in range(rows)]
        for k, x in enumerate(columns):
            for r in range(rows):
                y = v.load(a, F64, 4, 8 * ((4 * j + k % 4) * each + r + rows * (k // 4)))
                sums[r] = v.fma512(v.splat(y, 8), x, sums[r], EMBEDDED[s.rounding])
        for x in sums:
            bad = b.or_(bad, b.fcmp_unordered("uno", x, x))
        back = [8 * r + 2 * t + i for t in range(4) for r in range(rows) for i in (0, 1)]
        v.store(v.shuffle(sums[0], sums[-1], back), d, 4, 64 * rows * j)
    return b.icmp_unsigned("!=", b.bitcast(bad, I8), ir.Constant(I8, 0))


@intrinsic(prefer_literal=True)  # type: ignore[untyped-decorator, unused-ignore]
def _some_warps(typing, registers, rounding, a, b, c, d, doubt, sa, sb, sc, sd, first, last):
    """Warps first..last of uint32 arrays, w at word w * sa of a, and so on; the first two arguments are literals."""
    fixed = (registers, rounding)
    if not all(isinstance(x, types.IntegerLiteral) for x in fixed):
        return None
    shape = Doubles(*(x.literal_value for x in fixed))

    def codegen(context, builder, sig, args):
        v, base = VectorBuilder(context, builder), len(fixed)
        arrays, strides, doubt, count, _ = warps(v, sig.args[base:], args[base:])
        return each_warp(v, count, arrays, strides, shape.images, lambda p: _emit(shape, v, p), doubt)

    return types.int64(*fixed, a, b, c, d, doubt, *[types.int64] * 6), codegen


@cache
def _kernel(registers: int, rounding: int) -> Callable[..., Any]:
    def many(a, b, c, d, sa, sb, sc, sd, first, last, fraction, floor, doubt):
        return _some_warps(registers, rounding, a, b, c, d, doubt, sa, sb, sc, sd, first, last)

    return jit(many)  # type: ignore[no-any-return]
