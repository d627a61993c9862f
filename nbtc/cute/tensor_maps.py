"""Tensor maps as CuTe DSL's host code writes them: the hardware's 128 bytes, read into the executor's own layout.

NVIDIA documents no layout.  CuTe DSL packs a map inline, in the code that it compiles for the host, so what each field
is shows in its output: every row below was read off from maps of 1 to 5 dimensions that differ in one property (CuTe
DSL 4.8.1; the same for sm_90a, sm_100a and sm_120a).  A map with any other bit set is refused.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from nbtc.errors import UnsupportedInstructionError
from nbtc.executor.transfer.tensor_map import ELEMENTS, LAYOUT, MOST_DIMS, UNIT

WORDS = 8  # of 64 bits that have fields; the others stay as they were
ALIGN = 64  # bytes of a parameter that is a map (CUDA driver API, "Tensor Map Object Management")


class Field(NamedTuple):
    """Bits of a map: the 64-bit word, the lowest bit, how many."""

    word: int
    bit: int
    bits: int


RANK = Field(1, 4, 3)  # dimensions - 1
ELEMENT = Field(1, 7, 4)  # as PTX's `.elemtype` numbers them
SWIZZLE = Field(1, 13, 2)  # as PTX's `.swizzle_mode` numbers them
ROUNDED = Field(1, 16, 1)  # f32 elements become tf32
PROMOTION = Field(1, 21, 2)  # how much of a row the level 2 cache fetches: nothing that a program sees
SET = (Field(1, 1, 1), Field(1, 18, 1))  # always 1
STRIDES = (Field(1, 32, 32), Field(2, 0, 32), Field(2, 32, 32), Field(3, 0, 32))  # of 16 bytes, from dimension 1 on
STRIDES_ABOVE = tuple(Field(3, 32 + 4 * i, 4) for i in range(MOST_DIMS - 1))  # their bits from 32 up
DIMS = (Field(4, 0, 32), Field(4, 32, 32), Field(5, 0, 32), Field(5, 32, 32), Field(6, 0, 32))  # each - 1
BOX = (Field(6, 56, 8), *(Field(7, 8 * i, 8) for i in range(MOST_DIMS - 1)))  # each - 1
_ADDRESS = Field(0, 0, 64)
_KNOWN = (_ADDRESS, RANK, ELEMENT, SWIZZLE, ROUNDED, PROMOTION, *SET, *STRIDES, *STRIDES_ABOVE, *DIMS, *BOX)


def decoded(raw: bytes) -> bytes:
    """A map in the executor's layout, from one in the hardware's."""
    words = [int.from_bytes(raw[8 * i : 8 * i + 8], "little") for i in range(WORDS)]

    def read(f: Field) -> int:
        return words[f.word] >> f.bit & (1 << f.bits) - 1

    unknown = [w & ~sum((1 << f.bits) - 1 << f.bit for f in _KNOWN if f.word == i) for i, w in enumerate(words)]
    element, rank = read(ELEMENT), read(RANK) + 1
    if any(unknown) or not all(map(read, SET)) or rank > MOST_DIMS or element >= len(ELEMENTS):
        raise UnsupportedInstructionError(
            f"a tensor map of unknown layout, {b''.join(w.to_bytes(8, 'little') for w in words).hex()}: nbtc reads the "
            "tiled maps without interleave, element strides and NaN fill that make_tiled_tma_atom makes"
        )
    record = np.zeros(1, LAYOUT)
    r = record[0]
    r["global_address"], r["rank"], r["swizzle_mode"] = words[0], rank - 1, read(SWIZZLE)
    r["elemtype"] = ELEMENTS["tf32"].number if read(ROUNDED) else element
    r["global_dim"][:rank] = [read(f) + 1 for f in DIMS[:rank]]
    r["box_dim"][:rank] = [read(f) + 1 for f in BOX[:rank]]
    r["element_stride"][:rank] = 1
    strides = zip(STRIDES[: rank - 1], STRIDES_ABOVE, strict=False)
    r["global_stride"][: rank - 1] = [UNIT * (read(low) + (read(high) << low.bits)) for low, high in strides]
    return record.tobytes()
