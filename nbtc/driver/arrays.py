"""Memory of GPUs: buffers of our own, and which GPU an address is of."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from nbtc.driver.device import device
from nbtc.driver.library import driver
from nbtc.errors import DeviceError


class Buffer:
    """Device memory of our own, a row of bytes, freed with the object.

    It speaks `__cuda_array_interface__`, so that a launch takes it as any array.
    """

    def __init__(self, size: int, ordinal: int = 0) -> None:
        self.size, self._device, pointer = size, device(ordinal), ctypes.c_uint64()
        with self._device.current() as d:
            d.call("cuMemAlloc_v2", ctypes.byref(pointer), ctypes.c_size_t(max(16, size)))
        self.address = pointer.value

    @classmethod
    def of(cls, x: np.ndarray[Any, Any], ordinal: int = 0) -> Buffer:
        """A copy of a host array."""
        x = np.ascontiguousarray(x)
        made = cls(x.nbytes, ordinal)
        with made._device.current() as d:
            d.call("cuMemcpyHtoD_v2", ctypes.c_uint64(made.address), x.ctypes.data_as(ctypes.c_void_p),
                   ctypes.c_size_t(x.nbytes))  # fmt: skip
        return made

    def read(self, out: np.ndarray[Any, Any]) -> None:
        """Copy the first bytes into a contiguous host array, after all launches before."""
        with self._device.current() as d:
            d.call("cuMemcpyDtoH_v2", out.ctypes.data_as(ctypes.c_void_p), ctypes.c_uint64(self.address),
                   ctypes.c_size_t(out.nbytes))  # fmt: skip

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {"shape": (self.size,), "typestr": "|u1", "data": (self.address, False), "version": 3}

    def __del__(self) -> None:
        if getattr(self, "address", 0):
            with self._device.current() as d:
                d.code("cuMemFree_v2", ctypes.c_uint64(self.address))


_ORDINAL = 9  # CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL


def device_of(address: int) -> int:
    """The number of the GPU whose memory an address is in; DeviceError where it is in none."""
    found, d = ctypes.c_int(), driver()
    code = d.code("cuPointerGetAttribute", ctypes.byref(found), _ORDINAL, ctypes.c_uint64(address))
    if code:
        raise DeviceError(f"address {address:#x} is in no GPU's memory ({d.meaning(code)})")
    return found.value
