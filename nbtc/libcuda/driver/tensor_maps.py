"""Tensor maps (CUDA Driver API, "Tensor Map Object Management"), in nbtc's own layout: NVIDIA keeps theirs secret."""

from __future__ import annotations

import numpy as np

from nbtc.executor.transfer.tensor_map import (
    LAYOUT,
    MOST_BOX,
    MOST_DIMS,
    PADDED,
    PADDED_ALIGN,
    PADDED_ROW,
    SWIZZLES,
    UNIT,
)
from nbtc.libcuda import host
from nbtc.libcuda.errors import INVALID_VALUE, NOT_SUPPORTED, SUCCESS, CudaError, say
from nbtc.libcuda.memory import memory
from nbtc.libcuda.registry import driver

# CUtensorMapDataType to the numbers of `tensormap.replace.elemtype` (PTX ISA): the two number f64, bf16 and f32 with
# flushed subnormals differently.
ELEMENTS = {0: 0, 1: 1, 2: 2, 3: 3, 4: 4, 5: 5, 6: 6, 7: 7, 8: 9, 9: 10, 10: 8, 11: 11, 12: 12, 14: PADDED}
MOST_STRIDE = 1 << 40


@driver
def cuTensorMapEncodeTiled(out, kind, rank, address, dims, strides, box, steps, interleave, swizzle, promotion, fill):
    """`out` may be anywhere: a map is aligned where a kernel's parameters are (cuda.core has it in a Python object)."""
    if interleave:
        say("interleaved tensor maps aren't there: they return CUDA_ERROR_NOT_SUPPORTED", once=True)
        raise CudaError(NOT_SUPPORTED)
    if kind not in ELEMENTS or not 1 <= rank <= MOST_DIMS or not 0 <= swizzle <= 3 or not 0 <= fill <= 1:
        return INVALID_VALUE
    sizes, steps = host.words(dims, rank), host.halves(steps, rank)
    boxes = host.halves(box, rank)
    pitches = host.words(strides, rank - 1)
    memory.inside(address, 1)
    if address % UNIT or any(p % UNIT or p >= MOST_STRIDE for p in pitches):
        return INVALID_VALUE
    if any(not 1 <= n <= MOST_BOX for n in boxes) or any(not 1 <= n <= 1 << 32 for n in sizes):
        return INVALID_VALUE
    if any(not 1 <= n <= 8 for n in steps):
        return INVALID_VALUE
    if kind == PADDED and (
        any(x % PADDED_ALIGN for x in (address, *pitches))
        or sizes[0] % PADDED_ROW
        or boxes[0] != PADDED_ROW
        or swizzle not in (0, SWIZZLES["128B"])
    ):
        return INVALID_VALUE
    record = np.zeros(1, LAYOUT)
    r = record[0]
    r["global_address"], r["rank"], r["elemtype"] = address, rank - 1, ELEMENTS[kind]
    r["swizzle_mode"], r["fill_mode"] = swizzle, fill
    r["global_dim"][:rank], r["global_stride"][: rank - 1] = [n & 0xFFFFFFFF for n in sizes], pitches
    r["box_dim"][:rank], r["element_stride"][:rank] = boxes, steps
    host.write(out, record.tobytes())
    return SUCCESS


@driver
def cuTensorMapReplaceAddress(out: int, address: int) -> int:
    if address % UNIT:
        return INVALID_VALUE
    memory.inside(address, 1)
    host.put64(out, address)
    return SUCCESS
