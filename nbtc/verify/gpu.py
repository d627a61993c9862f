"""A GPU through NVIDIA's driver library alone: load PTX text, launch it on arrays, read the result.

Nothing here needs a CUDA toolkit or a package: the driver that comes with the GPU compiles PTX itself.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nbtc.errors import OptionError
from nbtc.isa.archs import ARCHS

Array = NDArray[Any]
LIBRARIES = {"win32": "nvcuda.dll"}
PTX_VERSIONS = ("9.0", "8.8", "8.7", "8.6", "8.5", "8.4", "8.3", "8.2", "8.1", "8.0", "7.8", "7.4", "7.0")
_MAJOR, _MINOR, _DYNAMIC_SHARED = 75, 76, 8  # device and function attributes of the driver's header
_ERROR_LOG, _ERROR_LOG_BYTES = 5, 6  # options of cuModuleLoadDataEx


class Gpu:
    """The first GPU of the machine.  arch: its name, such as "sm_90"; target: what PTX for it names, such as "sm_90a".

    Raises OptionError where there is no driver, no GPU, or one nbtc has no row for.
    """

    def __init__(self) -> None:
        try:
            self._cuda = ctypes.CDLL(LIBRARIES.get(sys.platform, "libcuda.so.1"))
        except OSError as error:
            raise OptionError(
                f"--hw runs recordings on an NVIDIA GPU, and this machine has no driver for one ({error}): "
                "run nbtc verify without --hw, or on a machine with a GPU"
            ) from None
        self._modules: dict[tuple[str, str], ctypes.c_void_p] = {}
        device, self._context = ctypes.c_int(), ctypes.c_void_p()
        self._do("cuInit", 0)
        self._do("cuDeviceGet", ctypes.byref(device), 0)
        self._do("cuDevicePrimaryCtxRetain", ctypes.byref(self._context), device)
        self._do("cuCtxSetCurrent", self._context)
        number = 10 * self._attribute(_MAJOR, device) + self._attribute(_MINOR, device)
        self.arch = f"sm_{number}"
        if self.arch not in ARCHS:
            raise OptionError(f"this GPU is {self.arch}, which nbtc has no row for; it knows {', '.join(ARCHS)}")
        self.target = f"sm_{number}a" if number >= 90 else self.arch
        self._version = next(v for v in PTX_VERSIONS if self._loads(v))

    def launch(self, body: str, blocks: int, threads: int, shared: int, inputs: Sequence[Array], out: Array) -> None:
        """Run a PTX module of one entry `replay`, whose parameters are addresses of `inputs` and then of `out`.

        `out` is sent to the GPU first (with what it holds) and overwritten with what the kernel left there.
        Raises OptionError with the driver's message when the text does not compile or the launch fails.
        """
        function = self._function(body)
        if shared:
            self._do("cuFuncSetAttribute", function, _DYNAMIC_SHARED, shared)
        arrays = [*(np.ascontiguousarray(x) for x in inputs), out]
        pointers = [self._sent(x) for x in arrays]
        try:
            values = (ctypes.c_void_p * len(pointers))(*(ctypes.addressof(p) for p in pointers))
            self._do("cuLaunchKernel", function, blocks, 1, 1, threads, 1, 1, shared, None, values, None)
            self._do("cuCtxSynchronize")
            self._do("cuMemcpyDtoH_v2", out.ctypes.data_as(ctypes.c_void_p), pointers[-1], ctypes.c_size_t(out.nbytes))
        finally:
            for p in pointers:
                self._do("cuMemFree_v2", p)

    def _sent(self, x: Array) -> ctypes.c_uint64:
        pointer = ctypes.c_uint64()
        self._do("cuMemAlloc_v2", ctypes.byref(pointer), ctypes.c_size_t(max(16, x.nbytes)))
        self._do("cuMemcpyHtoD_v2", pointer, x.ctypes.data_as(ctypes.c_void_p), ctypes.c_size_t(x.nbytes))
        return pointer

    def _function(self, body: str) -> ctypes.c_void_p:
        function = ctypes.c_void_p()
        self._do("cuModuleGetFunction", ctypes.byref(function), self._module(body, self._version), b"replay")
        return function

    def _module(self, body: str, version: str) -> ctypes.c_void_p:
        if (body, version) in self._modules:
            return self._modules[body, version]
        text = f".version {version}\n.target {self.target}\n.address_size 64\n{body}\n"
        log, module = ctypes.create_string_buffer(8192), ctypes.c_void_p()
        options = (ctypes.c_int * 2)(_ERROR_LOG, _ERROR_LOG_BYTES)
        values = (ctypes.c_void_p * 2)(ctypes.addressof(log), len(log))
        code = self._cuda.cuModuleLoadDataEx(ctypes.byref(module), text.encode(), 2, options, values)
        if code:
            said = log.value.decode(errors="replace").strip()
            raise OptionError(f"the GPU's driver refuses PTX {version} for {self.target} (error {code}): {said}")
        self._modules[body, version] = module
        return module

    def _loads(self, version: str) -> bool:
        try:
            self._module(".visible .entry replay() { ret; }", version)
        except OptionError:
            return version == PTX_VERSIONS[-1]  # let the first kernel say what is wrong
        return True

    def _attribute(self, which: int, device: ctypes.c_int) -> int:
        value = ctypes.c_int()
        self._do("cuDeviceGetAttribute", ctypes.byref(value), which, device)
        return value.value

    def _do(self, name: str, *arguments: Any) -> None:
        code = getattr(self._cuda, name)(*arguments)
        if code:
            raise OptionError(
                f"the GPU's driver answers {name} with error {code}: check that nvidia-smi lists the GPU, "
                "or run nbtc verify without --hw"
            )
