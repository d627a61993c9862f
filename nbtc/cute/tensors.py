"""Arrays of the host as CuTe DSL's tensors in global memory, and their memory."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Mapping
from typing import Any

import cutlass
import numpy as np
from cutlass.cute.runtime import from_dlpack

from nbtc.errors import FormatError, shown
from nbtc.executor.launch.arguments import memory_of
from nbtc.executor.memory.ranges import Memory

CPU, CUDA = 1, 2  # DLPack, "DLDeviceType"
DEVICE_TYPE = 8  # byte of a DLTensor: after the data pointer (DLPack, "DLTensor")
STORED = {  # types that DLPack does not carry: what they travel as
    "bfloat16": (np.uint16, cutlass.BFloat16),
    "float8_e4m3fn": (np.uint8, cutlass.Float8E4M3FN),
    "float8_e5m2": (np.uint8, cutlass.Float8E5M2),
}
_pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi)
)


class Exported:
    """An array that says it lies in a GPU's memory: CuTe DSL takes other tensors for generic memory."""

    def __init__(self, array: Any) -> None:
        self.array = array

    def __dlpack__(self, **_: Any) -> Any:
        """The array's own capsule, with the device changed."""
        capsule = self.array.__dlpack__()
        ctypes.c_int32.from_address(_pointer(capsule, b"dltensor") + DEVICE_TYPE).value = CUDA
        return capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        return CUDA, 0


def tensor(x: Any, assumed_align: int | None) -> Any:
    """See `nbtc.cute.tensor`."""
    if not hasattr(x, "__dlpack__") or x.__dlpack_device__()[0] != CPU:
        raise FormatError(
            f"{shown(x)} is not an array in the host's memory: pass NumPy's, or a tensor of torch on the CPU"
        )
    stored, element = STORED.get(x.dtype.name, (None, None)) if isinstance(x, np.ndarray) else (None, None)
    if isinstance(x, np.ndarray) and not x.flags.writeable:
        raise FormatError("the array is read-only, which DLPack can't say: pass a copy")
    made = from_dlpack(Exported(x if stored is None else x.view(stored)), assumed_align=assumed_align)
    if element is not None:
        made.element_type = element
    return made


def leaves(x: Any) -> Iterator[Any]:
    """The values inside of tuples, lists and dictionaries."""
    if isinstance(x, Mapping):
        x = tuple(x.values())
    if isinstance(x, tuple | list):
        for part in x:
            yield from leaves(part)
    else:
        yield x


def is_tensor(x: Any) -> bool:
    """Whether it is a tensor of CuTe DSL with memory of its own."""
    return hasattr(x, "data_ptr") and hasattr(x, "dynamic_shapes_mask")


def dynamic_sizes(x: Any) -> int:
    """Extents and strides of a tensor that are passed when a function is called."""
    return int(sum(x.dynamic_shapes_mask) + sum(x.dynamic_strides_mask))


def memory_behind(x: Any, name: str) -> Memory | None:
    """The memory of a tensor or an array; None for other values."""
    if not is_tensor(x):
        return memory_of(x, name)
    steps = [(n - 1) * s for n, s in zip(x.shape, x.stride, strict=True)]
    bits = x.element_type.width
    first = x.data_ptr + sum(s for s in steps if s < 0) * bits // 8
    return Memory(name, first, (sum(map(abs, steps)) + 1) * bits // 8 if all(x.shape) else 0, True, x)
