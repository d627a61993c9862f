"""wgmma in a program by the vector code of a warp's slice (`kernels.slice_product`), where that serves a form."""

from __future__ import annotations

from typing import Any, NamedTuple

from numpy.typing import NDArray

from nbtc.compiler.builder import I1, I32, VectorBuilder
from nbtc.compiler.cpu.lowering import host
from nbtc.executor.matrix.product_records import VECTOR
from nbtc.executor.matrix.product_split import place
from nbtc.executor.matrix.warpgroup_memory import ROWS, DescribedTile, SharedMemory, row_addresses, tile_offsets
from nbtc.isa.spec import Row
from nbtc.kernels.slices.slice_shape import UNITS, SliceShape
from nbtc.numerics.models import BLOCK, FLOOR, FRACTION, KIND, OUT, OUTS, Kind
from nbtc.ops.mma.vector_code import present


class Flags(NamedTuple):
    """What is compiled in beside the form: A in registers, transposed operands, negated operands."""

    registers: bool = False
    trans_a: bool = False
    trans_b: bool = False
    minus_a: bool = False
    minus_b: bool = False


def slice_shape(row: Row, params: NDArray[Any], flags: Flags) -> SliceShape | None:
    """The shape of the mma form of a slice and the parameters of its unit, or None where slices don't serve it.

    Sparse forms of more than 8 bits are better served by code that selects elements of B.
    """
    a, b = (present(o).format for o in (row.a, row.b))
    if (row.sparse and a.bits != 8) or params[KIND] != Kind.FUSED or host() is None or max(a.exponent, b.exponent) > 5:
        return None
    out, fraction = int(params[OUT]), int(params[FRACTION])
    f16_acc, short = (out == OUTS[name] for name in ("rne11", "rz14"))
    read = not (flags.registers or flags.trans_a)  # else an image is made first
    signs = read and flags.minus_a, flags.minus_b
    shape = SliceShape(a, b, f16_acc, fraction, int(params[FLOOR]), short, read, flags.trans_b, *signs, row.sparse)
    most = 25 if shape.in_f64 else 13  # sums of more bits leave 32 bits, or what an f32 has below M
    return shape if a.bits in (8, 16) and params[BLOCK] == shape.depth and fraction <= most else None


def unit_places(
    v: VectorBuilder, shared: SharedMemory, tile: DescribedTile, shape: SliceShape, tiles: int
) -> tuple[Any, Any]:
    """(where the addresses of the units of B stand, tile by tile; i1: some lie outside of shared memory)."""
    units = UNITS * shape.lines
    memory, bad = place(v, 8 * units * tiles), v.const(I1, 0)
    for n in range(tiles):
        offsets = tile_offsets(v, tile, v.const(I32, n), units // ROWS, shape.by_rows)
        addresses, outside = row_addresses(v, shared, offsets)
        v.store(addresses, memory, VECTOR, 8 * units * n)
        bad = v.b.or_(bad, outside)
    return memory, bad
