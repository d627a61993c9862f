"""Fused products in one piece: all of B is packed at once, and one compiled call does everything, on one thread."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from nbtc.compiler.machine_code.emitted import run_in_words
from nbtc.compiler.pools.workspace_pool import WORKSPACE_POOL, Arrays, Key
from nbtc.formats.table import Format
from nbtc.gemm.engines.packed_memory import columns_storage, rows_storage
from nbtc.kernels.panels.fused_sum import PANEL
from nbtc.kernels.panels.panel_code import form, packer
from nbtc.kernels.panels.panel_drivers import BlockArguments, drivers
from nbtc.kernels.panels.panel_elements import element_bits
from nbtc.kernels.panels.panel_operands import (
    BlockCode,
    BlockSpace,
    Geometry,
    Marks,
    Numbers,
    Packed,
    Packing,
    Scales,
    Source,
    State,
    Workspace,
)

MOST = 1 << 24  # multiply-adds, a few milliseconds: an interrupt waits for all of them
NO_SCALES = Scales(np.zeros(0, np.int32), 0, 0)
ANY = 1 << 62


class Piece(NamedTuple):
    """What is known of products of one form and size."""

    code: BlockCode
    geometry: Geometry
    key: Key


@lru_cache(maxsize=256)
def piece(
    packing: Packing, shape: tuple[int, int, int], places: int, formats: tuple[Format, Format],
    sum_of: tuple[int, int, bool], most: int,
) -> Piece:  # fmt: skip
    """Those of (M, N, K), packed as `places` products; formats: of A and of B.

    sum_of: F, a code of `OUTS`, whether each result is watched.  most: significands of a block of 16 products of B that
    can't leave 32 bits sum to less.
    """
    (m, n, k), (left, right) = shape, formats
    panels = -(-n // PANEL)
    checked = bool(packing.in_f64) and packing.block > 16
    fraction, out, watched = sum_of
    code = BlockCode(
        packer(packing, right, True),
        most if packing.in_f64 and packing.block == 16 else ANY,
        form(packing, left, fraction, out, checked, watched),
    )
    key = (*columns_storage(packing, panels, places), (PANEL * places * element_bits(right) // 8, "|u1"))
    return Piece(
        code, Geometry(0, m, 0, panels, k, places), (*key, *rows_storage(packing, places, element_bits(left) // 8))
    )


def multiply(known: Piece, operands: tuple[Source, Source], state: State, marks: Marks, numbers: Numbers) -> bool:
    """state += A B; False where the sums that `known` has could leave 32 bits, and nothing is done.

    operands: sources of whole ones.
    """
    arrays: tuple[Any, ...] = WORKSPACE_POOL.take(known.key)
    arguments = block_arguments(known, operands, state, marks, numbers, arrays)
    done = run_in_words(drivers().block, arguments)
    WORKSPACE_POOL.give(known.key, arrays)
    return bool(done)


def block_arguments(
    known: Piece, operands: tuple[Source, Source], state: State, marks: Marks, numbers: Numbers, arrays: Arrays
) -> BlockArguments:
    """Those of the driver; arrays: its memory."""
    space = BlockSpace(Packed(*arrays[:3]), arrays[3], Workspace(Packed(*arrays[4:7]), *arrays[7:]))
    return BlockArguments(known.code, *operands, NO_SCALES, space, state, known.geometry, marks, numbers)
