"""Tensor maps as the GPU knows them: NVIDIA keeps their 128 bytes secret, so the driver writes them.

(CUDA driver API, "Tensor Map Object Management", `cuTensorMapEncodeTiled`, `cuTensorMapEncodeIm2col`.)
"""

from __future__ import annotations

import ctypes
from typing import Any

from nbtc.driver.library import Driver
from nbtc.errors import FormatError
from nbtc.executor.transfer.tensor_map import BYTES, FILLS, INTERLEAVES, SWIZZLES, TensorMap

ALIGN = 64  # bytes: what the driver wants the map to lie at
# CUtensorMapDataType in the order of its numbers (cuda.h)
TYPES = (
    "u8", "u16", "u32", "s32", "u64", "s64", "f16", "f32", "f64", "bf16", "f32_ftz", "tf32", "tf32_ftz",
)  # fmt: skip
PROMOTION = 2  # CU_TENSOR_MAP_L2_PROMOTION_L2_128B: what the second-level cache fetches at once


def encoded(x: TensorMap, driver: Driver) -> bytes:
    """The bytes of the map of a device array."""
    if not x.on_device:
        raise FormatError("the map of an array in host memory among device arrays: make one of an array on the GPU")
    rank = len(x.dims)
    buffer = (ctypes.c_uint8 * (BYTES + ALIGN))()
    first = ctypes.addressof(buffer) + -ctypes.addressof(buffer) % ALIGN
    strides = (ctypes.c_uint64 * max(1, rank - 1))(*x.strides)
    box: tuple[Any, ...]
    if x.pixel_box is None:
        name, box = "cuTensorMapEncodeTiled", ((ctypes.c_uint32 * rank)(*x.box),)
    else:
        corners = ((ctypes.c_int * (rank - 2))(*c) for c in (x.pixel_box.lower, x.pixel_box.upper))
        name, box = "cuTensorMapEncodeIm2col", (*corners, x.pixel_box.channels, x.pixel_box.pixels)
    driver.call(
        name, ctypes.c_void_p(first), TYPES.index(x.dtype), rank, ctypes.c_void_p(x.address),
        (ctypes.c_uint64 * rank)(*x.dims), strides, *box, (ctypes.c_uint32 * rank)(*x.element_strides),
        INTERLEAVES[x.interleave], SWIZZLES[x.swizzle], PROMOTION, FILLS[x.oob],
    )  # fmt: skip
    return ctypes.string_at(first, BYTES)
