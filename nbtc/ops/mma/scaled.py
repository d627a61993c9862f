"""Block-scaled mma.sync on register images (PTX ISA, "Block Scaling for mma.sync")."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nbtc.compiler.threads import parallel_for
from nbtc.errors import UnsupportedInstructionError
from nbtc.formats.arrays import to_bits
from nbtc.formats.block_scales import scale_table
from nbtc.formats.table import FORMATS
from nbtc.fragments.pack import image, pack, unpack
from nbtc.fragments.scales import require_scales, scale_codes
from nbtc.isa.archs import arch as arch_row
from nbtc.isa.spec import Operand, Row
from nbtc.numerics.models import model, params
from nbtc.numerics.scaled import ScaledOperands, StepScales, scaled_outputs
from nbtc.ops.images import Words, batch
from nbtc.ops.mma.vector_code import present

_EVERY = np.zeros(0, np.int64)
NANOSECONDS = 60_000  # of one product of 16 x 8 outputs


def _matrices(operand: Operand, registers: Any, name: str) -> NDArray[Any]:
    return np.asarray(to_bits(unpack(operand, image(operand, registers, name), name), operand.format))


def execute(
    row: Row, a: Any, b: Any, c: Any, scale_a: Any, scale_b: Any, arch: object = "sm_90", threads: int | None = None
) -> Words:
    """D of one block-scaled instruction for a batch of warps: uint32 images (..., 32, registers) in and out.

    scale_a, scale_b: `Selected` registers, uint32 (..., 32).  Leading axes broadcast.  Raises ShapeError, FormatError,
    OptionError or UnsupportedInstructionError.
    """
    target = arch_row(arch)
    require_scales(row).require(target)
    oa, ob, oc = present(row.a), present(row.b), present(row.c)
    numerics = model(target.numerics, row.unit, oa.format, label=target.name, validated=target.validated)
    vector = params(numerics, oa.format, ob.format, oc.format, ob.rows)
    given = [
        _matrices(oa, a, "a"), _matrices(ob, b, "b"), _matrices(oc, c, "c"),
        scale_codes(row, "a", scale_a), scale_codes(row, "b", scale_b).swapaxes(-1, -2),
    ]  # fmt: skip
    names = ("a", "b", "c", "scale_a", "scale_b")
    lead = batch([(n, x, 2) for n, x in zip(names, given, strict=True)], row.mnemonic)
    d = np.empty((*lead, oc.rows, oc.cols), np.uint32)
    sizes = np.array([oc.rows, oc.cols, ob.rows, row.chunks])
    operands, scales = flattened(given, lead), StepScales(row.chunks, scale_table(FORMATS[row.scale]))
    flat, outputs = d.reshape(-1), oc.rows * oc.cols

    def work(first: int, last: int) -> None:
        scaled_outputs(operands, flat, _EVERY, sizes, scales, vector, first * outputs, last * outputs)

    parallel_for(math.prod(lead), NANOSECONDS, threads, work)
    return pack(oc, d.view(oc.format.dtype), "D")


def flattened(given: list[NDArray[Any]], lead: tuple[int, ...]) -> ScaledOperands:
    """Matrices (..., rows, cols) as flat arrays, and which matrix of each an item of the batch `lead` has."""
    maps = np.empty((len(given), math.prod(lead)), np.int64)
    for line, x in zip(maps, given, strict=True):
        own = np.arange(math.prod(x.shape[:-2])).reshape(x.shape[:-2])
        line[:] = np.broadcast_to(own, lead).reshape(-1)
    flat = [np.ascontiguousarray(x).reshape(-1) for x in given]
    a, b, c, xs, ys = (x if x.flags.writeable else x.copy() for x in flat)
    return ScaledOperands(a, b, c, xs, ys, maps)


def refuse_unscaled(row: Row) -> UnsupportedInstructionError:
    """The error of a call that takes no scale registers."""
    return UnsupportedInstructionError(
        f"{row.mnemonic} has block scales, which this call does not take: from Python, pass scale_a= and scale_b= to "
        "nbtc.instruction(mnemonic) or nbtc.ptx.mma_sync"
    )
