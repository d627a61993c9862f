"""Arrays that live on a GPU, of any library: where they begin, and what they hold; the driver is not needed for that.

`__cuda_array_interface__` (Numba, "CUDA Array Interface") is asked first, DLPack where an array has no such
interface or cannot say its type in it.
"""

from __future__ import annotations

import ctypes
from typing import Any, NamedTuple

import numpy as np

from nbtc.errors import FormatError
from nbtc.formats.arrays import as_format

CUDA, CUDA_MANAGED = 2, 13  # device types of DLPack
_LETTERS = {0: "i", 1: "u", 2: "f", 5: "c", 6: "b"}  # type codes of DLPack that are NumPy kinds
# and those that ml_dtypes has; 15 to 17, of 6 and 4 bits, it keeps one a byte where DLPack packs them
_NAMED = {4: "bfloat16", 10: "float8_e4m3fn", 12: "float8_e5m2", 14: "float8_e8m0fnu"}
_PAIR_OF_FP4 = (17, 4, 2)  # code, bits and lanes of torch's float4_e2m1fn_x2: two elements a byte
_CAPSULE = b"dltensor"


class DeviceArray(NamedTuple):
    """What a launch knows of an array: first address, shape, strides in bytes, dtype, whether it may be written."""

    address: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: np.dtype[Any]
    writable: bool = True


def is_device_array(x: object) -> bool:
    """Whether x is an array in a GPU's memory: CuPy's, numba-cuda's, torch's, JAX's, or any that says so.

    >>> import numpy as np
    >>> is_device_array(np.zeros(3))
    False
    """
    where = getattr(x, "__dlpack_device__", None)
    if where is not None:
        return int(where()[0]) in (CUDA, CUDA_MANAGED)
    return hasattr(x, "__cuda_array_interface__")


def device_array(x: Any) -> DeviceArray:
    """Address, shape, strides and dtype of a device array; FormatError for what is none."""
    if not is_device_array(x):
        raise FormatError(
            f"{type(x).__name__} is not an array in a GPU's memory: pass a CuPy, numba-cuda or torch CUDA array"
        )
    if getattr(x, "requires_grad", False):
        raise FormatError("a tensor that requires a gradient was given: a kernel would lose it, pass x.detach()")
    try:
        about = x.__cuda_array_interface__
    except (AttributeError, TypeError, KeyError):  # narrow types that have no letter there
        return _from_dlpack(x)
    dtype = np.dtype(about["typestr"])
    if dtype.kind == "V" and hasattr(x, "dtype"):
        dtype = np.dtype(as_format(x.dtype).dtype)
    shape = tuple(int(n) for n in about["shape"])
    strides = about.get("strides")
    address, read_only = about["data"]
    return DeviceArray(int(address), shape, tuple(strides) if strides else dense(shape, dtype), dtype, not read_only)


def dense(shape: tuple[int, ...], dtype: np.dtype[Any]) -> tuple[int, ...]:
    """Strides in bytes of a row-major array.

    >>> dense((2, 3), np.dtype(np.float16))
    (6, 2)
    """
    steps, step = [], dtype.itemsize
    for n in reversed(shape):
        steps.append(step)
        step *= n
    return tuple(reversed(steps))


class _Tensor(ctypes.Structure):
    """DLTensor of dlpack.h; a DLManagedTensor begins with one."""

    _fields_ = (
        ("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32), ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)), ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )  # fmt: skip


def _from_dlpack(x: Any) -> DeviceArray:
    capsule = x.__dlpack__()  # lives to the end of this function; x keeps the memory
    get = ctypes.pythonapi.PyCapsule_GetPointer
    get.restype, get.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
    t = _Tensor.from_address(get(capsule, _CAPSULE))
    letter, name = _LETTERS.get(t.code), _NAMED.get(t.code)
    if (t.code, t.bits, t.lanes) == _PAIR_OF_FP4:
        dtype = np.dtype(np.uint8)  # packed, as nbtc's functions take them
    elif t.lanes != 1 or (letter is None and name is None):
        raise FormatError(
            f"an array of DLPack type {t.code} with {t.bits} bits has no NumPy dtype: pass a view of bytes"
        )
    else:
        dtype = np.dtype(f"{letter}{t.bits // 8}") if letter else np.dtype(as_format(name).dtype)
    shape = tuple(t.shape[: t.ndim])
    strides = tuple(s * dtype.itemsize for s in t.strides[: t.ndim]) if t.strides else dense(shape, dtype)
    return DeviceArray((t.data or 0) + t.byte_offset, shape, strides, dtype)
