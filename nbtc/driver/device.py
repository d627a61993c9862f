"""One GPU: what it is, its primary context, and the PTX texts compiled for it."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from threading import Lock

from nbtc.driver.library import Driver, driver
from nbtc.errors import DeviceError, shown
from nbtc.isa.archs import ARCHS
from nbtc.isa.version import version_of, with_version

# every version of the PTX ISA since 7.0, the newest first (PTX ISA, "Release Notes")
PTX_VERSIONS = (
    "9.1", "9.0", "8.8", "8.7", "8.6", "8.5", "8.4", "8.3", "8.2", "8.1", "8.0", "7.8", "7.7", "7.6", "7.5", "7.4",
    "7.3", "7.2", "7.1", "7.0",
)  # fmt: skip
# numbers of the driver's header (cuda.h)
_MAJOR, _MINOR, _DYNAMIC_SHARED = 75, 76, 8
_ERROR_LOG, _ERROR_LOG_BYTES, _LOG_ROOM = 5, 6, 1 << 14
_UNSUPPORTED_PTX_VERSION = 222


class Device:
    """A GPU by its number.  arch: "sm_90"; target: what PTX for it names, such as "sm_90a"; name, driver_version."""

    def __init__(self, ordinal: int = 0) -> None:
        self.driver: Driver = driver()
        self.ordinal, handle, self.context = ordinal, ctypes.c_int(), ctypes.c_void_p()
        self.driver.call("cuDeviceGet", ctypes.byref(handle), ordinal)
        self.driver.call("cuDevicePrimaryCtxRetain", ctypes.byref(self.context), handle)
        major, minor = self._attribute(_MAJOR, handle), self._attribute(_MINOR, handle)
        number = 10 * major + minor
        self.arch = f"sm_{number}"
        row = ARCHS.get(self.arch)
        self.target = self.arch + ("a" if row is not None and "a" in row.suffixes else "")
        self.name = self._name(handle)
        self.driver_version = self._driver_version()
        self._newest: str | None = None  # the PTX version that texts are lowered to, once one was refused
        self._functions: dict[tuple[str, str], ctypes.c_void_p] = {}
        self._modules: dict[str, ctypes.c_void_p] = {}
        self._lock = Lock()

    @contextmanager
    def current(self) -> Iterator[Driver]:
        """Inside, the device's context is the calling thread's."""
        self.driver.call("cuCtxPushCurrent_v2", self.context)
        try:
            yield self.driver
        finally:
            self.driver.call("cuCtxPopCurrent_v2", ctypes.byref(ctypes.c_void_p()))

    def function(self, text: str, entry: str) -> ctypes.c_void_p:
        """The kernel `entry` of a PTX text, compiled once; call it inside of `current`.

        A `.version` that the driver is too old for is lowered to the newest it takes.  DeviceError carries what the
        driver says of a text that does not compile.
        """
        found = self._functions.get((text, entry))
        if found is None:
            with self._lock:
                if text not in self._modules:
                    self._modules[text] = self._load(text)
                found = ctypes.c_void_p()
                code = self.driver.code("cuModuleGetFunction", ctypes.byref(found), self._modules[text], entry.encode())
                if code:
                    raise DeviceError(f"the PTX text has no kernel {shown(entry)} ({self.driver.meaning(code)})")
                self._functions[text, entry] = found
        return found

    def forget(self, text: str) -> None:
        """Unload a text; its kernels must have ended."""
        with self._lock:
            module = self._modules.pop(text, None)
            self._functions = {key: f for key, f in self._functions.items() if key[0] != text}
        if module is not None:
            self.driver.call("cuModuleUnload", module)

    def allow_shared(self, function: ctypes.c_void_p, size: int) -> None:
        """Let a kernel have so many bytes of dynamic shared memory."""
        self.driver.call("cuFuncSetAttribute", function, _DYNAMIC_SHARED, size)

    def _load(self, text: str) -> ctypes.c_void_p:
        own = version_of(text)
        if own is None:
            raise DeviceError("the PTX text has no .version line: it begins with .version 8.0, .target and so on")
        older = [v for v in PTX_VERSIONS if _numbers(v) < own]
        tries = [f"{own[0]}.{own[1]}", *older]
        if self._newest in older:
            tries = tries[tries.index(self._newest) :]
        for version in tries:
            code, module, said = self._try(with_version(text, _numbers(version)))
            if code == 0:
                self._newest = version if version != tries[0] else self._newest
                return module
            if code != _UNSUPPORTED_PTX_VERSION:
                break
        raise DeviceError(
            f"the driver refuses the PTX text for {self.name} ({self.target}), {self.driver.meaning(code)}: {said}"
        )

    def _try(self, text: str) -> tuple[int, ctypes.c_void_p, str]:
        log, module = ctypes.create_string_buffer(_LOG_ROOM), ctypes.c_void_p()
        options = (ctypes.c_int * 2)(_ERROR_LOG, _ERROR_LOG_BYTES)
        values = (ctypes.c_void_p * 2)(ctypes.addressof(log), len(log))
        code = self.driver.code("cuModuleLoadDataEx", ctypes.byref(module), text.encode(), 2, options, values)
        return code, module, log.value.decode(errors="replace").strip()

    def _attribute(self, which: int, handle: ctypes.c_int) -> int:
        value = ctypes.c_int()
        self.driver.call("cuDeviceGetAttribute", ctypes.byref(value), which, handle)
        return value.value

    def _name(self, handle: ctypes.c_int) -> str:
        buffer = ctypes.create_string_buffer(256)
        self.driver.call("cuDeviceGetName", buffer, len(buffer), handle)
        return buffer.value.decode(errors="replace")

    def _driver_version(self) -> str:
        """The newest CUDA version the driver serves: 13000 is 13.0."""
        value = ctypes.c_int()
        self.driver.call("cuDriverGetVersion", ctypes.byref(value))
        return f"{value.value // 1000}.{value.value % 1000 // 10}"


@cache
def device(ordinal: int = 0) -> Device:
    """The GPU of that number, opened once."""
    return Device(ordinal)


def _numbers(version: str) -> tuple[int, int]:
    major, minor = version.split(".")
    return int(major), int(minor)
