"""Arrays of the host as arguments of kernels: the device is the host, so nothing need be copied."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba.cuda.core import config
from numba.cuda.cudadrv import devicearray, devices
from numba.cuda.cudadrv.driver import is_device_memory

from nbtc.executor.launch.launch import aligned
from nbtc.interop.numba_cuda.memory import Memory

ALIGN = 16  # bytes: the widest access of a thread


class View(devicearray._StridedMemoryViewShim):
    """An array as numba-cuda hands it to a kernel."""

    __slots__ = ("__weakref__", "array")

    def __init__(self, array: np.ndarray[Any, Any]) -> None:
        c, f = array.flags.c_contiguous, array.flags.f_contiguous
        layout = devicearray._StridedLayoutShim(
            strides_in_bytes=array.strides, is_contiguous_c=c, is_contiguous_f=f, is_contiguous_any=c or f
        )
        super().__init__(ptr=array.ctypes.data, shape=array.shape, dtype=array.dtype, size=array.size, _layout=layout)
        self.array = array


def _aligned(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """A copy as device memory has it; numba-cuda copies back from it where the argument is output, too."""
    whole = array.flags.c_contiguous or array.flags.f_contiguous
    made = np.ndarray(array.shape, array.dtype, aligned(array.nbytes, ALIGN), strides=array.strides if whole else None)
    made[...] = array
    return made


class _Interface:
    """Memory that `__cuda_array_interface__` describes, as NumPy's interface does."""

    def __init__(self, about: dict[str, Any]) -> None:
        self.__array_interface__ = {k: about.get(k) for k in ("data", "shape", "strides", "typestr", "descr")} | {
            "version": 3
        }
        if self.__array_interface__["descr"] is None:
            del self.__array_interface__["descr"]


def viewer(memory: Memory) -> Any:
    """What stands for `devicearray._to_strided_memory_view`."""

    def view(
        x: Any, stream: Any = 0, copy: bool | None = None, user_explicit: bool = False
    ) -> tuple[devicearray._StridedMemoryViewShim, bool]:
        """The view, and whether x lies on the host.  copy: None for arrays that are input alone, which kernels may
        change without anybody seeing it."""
        if is_device_memory(x):
            return x._strided_memory_view_shim, False
        about = getattr(x, "__cuda_array_interface__", None)
        if about is not None:
            if about.get("stream") is not None and config.CUDA_ARRAY_INTERFACE_SYNC:
                devices.get_context().create_external_stream(about["stream"]).synchronize()
            return View(np.asarray(_Interface(about))), False
        array = np.asarray(x) if not hasattr(x, "__dlpack__") or isinstance(x, np.ndarray) else np.from_dlpack(x)
        if copy is None or array.ctypes.data % ALIGN:
            array = _aligned(array)
        found = View(array)
        memory.map_host(array, found)
        return found, True

    return view


def host_view(x: Any, *, stream_ptr: Any = 0) -> View:
    """What stands for `devicearray._make_strided_memory_view`."""
    return View(np.asarray(x))
