"""Which vector code, if any, does a warp-level product on this host."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from nbtc.compiler.cpu.lowering import host
from nbtc.errors import UnsupportedInstructionError
from nbtc.formats.table import Format, f16, f32
from nbtc.isa.spec import Operand, Row
from nbtc.kernels.warps.code import ProductCode
from nbtc.kernels.warps.float_code import FloatCode
from nbtc.kernels.warps.warp_f64 import DoubleCode
from nbtc.kernels.warps.warp_fp8 import Fp8Code
from nbtc.kernels.warps.warp_words import IntegerCode
from nbtc.numerics.models import BIT_OP, BLOCK, FRACTION, OUT, OUTS, ROUNDING, SATURATE, STEP, Kind, Model


def present(operand: Operand | None) -> Operand:
    """An operand that products have."""
    if operand is None:
        raise UnsupportedInstructionError(
            "the form has no such operand: it is not a matrix product; see nbtc.instructions()"
        )
    return operand


def accumulator(row: Row) -> Format:
    """The format that a form accumulates in: f32 as soon as C or D is f32, else C's own."""
    c, d = present(row.c).format, present(row.d).format
    return f32 if f16 in (c, d) and c != d else d


def vector_code(row: Row, numerics: Model, params: NDArray[np.int64]) -> ProductCode | None:
    """The `ProductCode` of a form, or None where the form or the host has none."""
    a, c, d = (present(o) for o in (row.a, row.c, row.d))
    processor = host()
    if row.unit == "quad" or c.format != d.format or not _regular(row) or processor is None:
        return None
    if row.sparse and not processor.shuffles_bytes:
        return None
    if numerics.kind == Kind.FMA64:
        return DoubleCode(a.registers, int(params[ROUNDING])) if processor.lowering.row.fma else None
    if numerics.kind in (Kind.INTEGER, Kind.BITS):
        return _integers(row, params)
    return _floats(row, numerics, params)


def _regular(row: Row) -> bool:
    """Whether fragments follow the one formula: not those of sm_70, nor 8 x 32 accumulators of sm_75."""
    a, b, c = (present(o) for o in (row.a, row.b, row.c))
    turned = b.cols == 32  # such a tile is one of 32 x 8 with A and B exchanged
    return all(
        o.layout is None or o.layout.lane[2] == step for o, step in ((a, (1, 0)), (c, (0, 1) if turned else (1, 0)))
    )


def _integers(row: Row, params: NDArray[np.int64]) -> ProductCode | None:
    """Of integers and bits."""
    a, b = present(row.a), present(row.b)
    bits = a.format.bits
    left, right = (int(o.format.name.startswith("s")) for o in (a, b))
    mode = params[BIT_OP] if bits == 1 else params[SATURATE]
    registers = 2 if tiles(row, 2) else a.registers  # wmma tiles have 16 bytes of K
    return IntegerCode(bits, left, right, int(mode), registers, int(row.sparse))


def _floats(row: Row, numerics: Model, params: NDArray[np.int64]) -> ProductCode | None:
    """Of f16, bf16, tf32, and of fp8 where it is made of f16."""
    a, b, d = (present(o) for o in (row.a, row.b, row.d))
    if params[FRACTION] > 25 or params[OUT] == OUTS["rz14"]:  # sums are 32-bit integers
        return None
    if numerics.kind == Kind.EMULATED_FP8:
        return Fp8Code(a.format.code, b.format.code, a.registers, int(d.format == f16), int(row.sparse))
    if numerics.kind != Kind.FUSED:
        return None
    blocks, rest = divmod(int(params[STEP]), int(params[BLOCK]))
    registers = a.cols // (2 * a.format.per_word)  # of 16 rows of A
    known = a.format.name in ("f16", "bf16", "tf32")
    if not known or rest or blocks > registers // 2 or registers not in (2, 4):
        return None
    return FloatCode(a.format, registers, d.format == f16, blocks, sparse=row.sparse)


def tiles(row: Row, registers: int) -> tuple[tuple[slice, slice, slice], ...]:
    """The m16n8 products that a wmma product consists of: registers of A, B and C (D); none where it is a single one.

    A tile of 8 x 32 is one of 32 x 8 with A and B exchanged: its fragments are laid out so.
    """
    a, b, c = (present(o) for o in (row.a, row.b, row.c))
    rows, cols = max(a.rows, b.cols) // 16, min(a.rows, b.cols) // 8
    if row.family != "wmma.mma" or rows == 0:
        return ()
    accumulators = c.registers // (rows * cols)
    left, right = registers, registers // 2
    return tuple(
        (
            slice(left * r, left * (r + 1)),
            slice(right * n, right * (n + 1)),
            slice(accumulators * (r * cols + n), accumulators * (r * cols + n + 1)),
        )
        for r in range(rows)
        for n in range(cols)
    )
