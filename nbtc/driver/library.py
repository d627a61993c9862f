"""The driver library itself: loaded when first needed, each call checked."""

from __future__ import annotations

import ctypes
import sys
from functools import cache
from typing import Any

from nbtc.errors import DeviceError

LIBRARIES = {"win32": "nvcuda.dll"}
INSTALL = (
    "install NVIDIA's driver for the GPU (nvidia-smi then lists it), or run on the CPU, which takes NumPy arrays and "
    "gives the same bits"
)


class Driver:
    """The functions of libcuda by name, results checked."""

    def __init__(self, library: Any) -> None:
        self._library = library

    def code(self, name: str, *arguments: Any) -> int:
        """The result code of a call."""
        return int(getattr(self._library, name)(*arguments))

    def call(self, name: str, *arguments: Any) -> None:
        """Call; DeviceError names the function and says what the code means."""
        code = self.code(name, *arguments)
        if code:
            raise DeviceError(f"the GPU's driver answers {name} with {self.meaning(code)}")

    def meaning(self, code: int) -> str:
        """A result code in the driver's words."""
        name, text = ctypes.c_char_p(), ctypes.c_char_p()
        self._library.cuGetErrorName(code, ctypes.byref(name))
        self._library.cuGetErrorString(code, ctypes.byref(text))
        said = [v.value.decode(errors="replace") for v in (name, text) if v.value]
        return f"error {code}" + (f" ({', '.join(said)})" if said else "")


@cache
def driver() -> Driver:
    """The driver, initialised.  DeviceError where the machine has none, or no GPU."""
    name = LIBRARIES.get(sys.platform, "libcuda.so.1")
    try:
        found = Driver(ctypes.CDLL(name))
    except OSError as error:
        raise DeviceError(
            f"this needs an NVIDIA GPU, and the machine has no driver for one ({error}): {INSTALL}"
        ) from None
    code = found.code("cuInit", 0)
    if code:
        raise DeviceError(f"this needs an NVIDIA GPU, and the driver finds none ({found.meaning(code)}): {INSTALL}")
    return found
