"""f64 mma.sync and wmma as vector code: a chain of multiply-adds with the form's rounding, eight columns a vector.

Only NaN results need the fallback: which payload survives is for the general path to say.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from llvmlite import ir

from nbtc.compiler.builder import F64, I1, I8, VectorBuilder, vector
from nbtc.compiler.cpu.float_mode import DOWN, NEAREST, TOWARD_ZERO, UP
from nbtc.kernels.warps.code import ProductCode
from nbtc.numerics.models import ROUNDINGS

D8 = vector(F64, 8)
MODES = {"rn": NEAREST, "rz": TOWARD_ZERO, "rm": DOWN, "rp": UP}


@dataclass(frozen=True)
class DoubleCode(ProductCode):
    """What is compiled in: A's registers (2 in products of eight rows), and the number of the rounding."""

    registers: int
    rounding: int

    kind = "doubles"

    @property
    def mode(self) -> str:
        """The rounding mode that its multiply-adds are in."""
        return next(MODES[name] for name, number in ROUNDINGS.items() if number == self.rounding)

    @property
    def images(self) -> tuple[int, ...]:
        """Registers of A, B, C and D."""
        accumulators = 4 if self.registers == 2 else 8
        return self.registers, max(2, self.registers // 2), accumulators, accumulators


def emit(s: DoubleCode, v: VectorBuilder, pointers: list[Any]) -> Any:
    """The code of one warp; returns an i1: whether a result is NaN."""
    b, (a, right, c, d) = v.b, pointers
    of_a, of_b, rows = s.registers // 2, s.images[1] // 2, s.images[2] // 4  # f64 of a lane; rows of a lane
    columns = []
    for k in range(4 * of_b):
        x = ir.Constant(D8, ir.Undefined)
        for n in range(8):
            y = v.load(right, F64, 4, 8 * ((4 * n + k % 4) * of_b + k // 4))
            x = b.insert_element(x, y, v.int(n))
        columns.append(x)
    bad = ir.Constant(vector(I1, 8), [0] * 8)
    for j in range(8):
        both = v.load(c, vector(F64, 8 * rows), 4, 64 * rows * j)
        order = [2 * rows * (n // 2) + n % 2 for n in range(8)]  # of the first row's columns in the image
        sums = [v.shuffle(both, both, [2 * r + n for n in order]) for r in range(rows)]
        for k, x in enumerate(columns):
            for r in range(rows):
                y = v.load(a, F64, 4, 8 * ((4 * j + k % 4) * of_a + r + rows * (k // 4)))
                sums[r] = v.fma(v.splat(y, 8), x, sums[r])
        for x in sums:
            bad = b.or_(bad, b.fcmp_unordered("uno", x, x))
        back = [8 * r + 2 * t + i for t in range(4) for r in range(rows) for i in (0, 1)]
        v.store(v.shuffle(sums[0], sums[-1], back), d, 4, 64 * rows * j)
    return b.icmp_unsigned("!=", b.bitcast(bad, I8), ir.Constant(I8, 0))
