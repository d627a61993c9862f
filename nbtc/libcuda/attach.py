"""What runs when a library's first function is called: the library's table gets entries that call Python.

An entry is made at its function's first call.  A function that isn't there is named on stderr then, and gives
CUDA_ERROR_NOT_SUPPORTED.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import re
import signal
import sys
import traceback
from collections.abc import Callable, Sequence
from typing import Any

from nbtc.libcuda import attach_points, state
from nbtc.libcuda.direct import shared
from nbtc.libcuda.direct.calls import direct_names, form
from nbtc.libcuda.errors import INVALID_CONFIGURATION, INVALID_VALUE, NOT_SUPPORTED, UNKNOWN, CudaError, say, unexpected
from nbtc.libcuda.registry import DRIVER, RUNTIME, Implementation, implementation
from nbtc.libcuda.rows import COMPILERS, SONAMES, Row, rows

RESOLVER = ctypes.CFUNCTYPE(None, ctypes.c_int64)
CLOSER = ctypes.CFUNCTYPE(None)
_keep: list[Any] = []  # callbacks, which C calls as long as the process lives
_attached: dict[str, Attached] = {}
# Functions of the driver that need no context, or look after it themselves.
FREE = ("cuInit", "cuDriverGet", "cuGetError", "cuGetProc", "cuGetExport", "cuDevice", "cuCtx", "cuPointer",
        "cuLibrary", "cuKernel", "cuMemPool", "cuMemAddress", "cuMemCreate", "cuMemRelease", "cuMemMap", "cuMemUnmap",
        "cuMemSetAccess", "cuMemGetAllocation", "cuMemExport", "cuMemImport", "cuMemGetDefault", "cuMemGetMem",
        "cuThread", "cuGraph", "cuLink", "cuLogs",
        "cuTensorMap", "cuProfiler", "cuUserObject", "cuStreamIsCapturing", "cuModuleGetLoadingMode")  # fmt: skip


class Attached:
    """A library of this process: its table and what fills it."""

    def __init__(self, which: str, count: int, table: int, direct: int, own: bool) -> None:
        self.which, self.rows = which, rows(which)
        if len(self.rows) != count:
            raise RuntimeError(f"{SONAMES[which]} has {count} functions, its table {len(self.rows)}: delete the file")
        self.words = (ctypes.c_uint64 * count).from_address(table)
        self.index = {row.name: i for i, row in enumerate(self.rows)}
        self.direct = Direct(which, [row.name for row in self.rows], direct, own)

    def resolve(self, index: int) -> None:
        """A function is called for the first time."""
        try:
            row = self.rows[index]
            self.words[index] = self.direct.before(row.name, entry(self.which, row))
        except BaseException:
            traceback.print_exc()
            self.words[index] = _address(ctypes.CFUNCTYPE(ctypes.c_int32)(lambda: UNKNOWN))


class Direct:
    """The compiled forms of a library's functions (`emit.Shared.described`)."""

    def __init__(self, which: str, names: Sequence[str], about: int, own: bool) -> None:
        self.names = direct_names(which, names) if about else []
        head = (ctypes.c_uint64 * (2 + len(self.names))).from_address(about) if about else None
        if head is not None:
            self.functions = list(head[2:])
            self.python = (ctypes.c_uint64 * len(self.names)).from_address(head[1])
            ctypes.c_uint64.from_address(head[0]).value = shared.ready(own)

    def before(self, name: str, address: int) -> int:
        """The address of a function's compiled form, which goes on to that of Python's; or the latter."""
        if name not in self.names:
            return address
        at = self.names.index(name)
        self.python[at] = address
        return self.functions[at]


def _address(callback: Any) -> int:
    _keep.append(callback)
    return ctypes.cast(callback, ctypes.c_void_p).value or 0


def guarded(function: Implementation, needs_context: bool) -> Callable[..., int]:
    """A function whose exceptions are its result."""
    current = state.current

    def checked(*args: Any) -> int:
        try:
            current()
            return function(*args) or 0
        except CudaError as error:
            return INVALID_VALUE if error.code == INVALID_CONFIGURATION else error.code
        except BaseException:
            return unexpected()

    def unchecked(*args: Any) -> int:
        try:
            return function(*args) or 0
        except CudaError as error:
            return INVALID_VALUE if error.code == INVALID_CONFIGURATION else error.code
        except BaseException:
            return unexpected()

    return checked if needs_context else unchecked


def entry(which: str, row: Row) -> int:
    """The address of a function's entry."""
    found = implementation(DRIVER if which == "driver" else RUNTIME, row.name)
    if which in COMPILERS:
        return _compiler_entry(which, row)
    if found is None:
        say(f"{row.name} isn't there: it returns an error (CUDA_ERROR_NOT_SUPPORTED)", once=True)
        return _address(ctypes.CFUNCTYPE(ctypes.c_int32)(_missing(which)))
    if which == "driver":
        function = guarded(found, not row.name.startswith(FREE))
    else:
        from nbtc.libcuda.runtime.results import tracked

        function = tracked(found, row)
    direct = form(which, row.name)
    if direct is not None:
        function = shared.arriving(function, row.name, direct.stream)
    return _address(row.prototype(function))


def _missing(which: str) -> Callable[[], int]:
    """A function that isn't there; many programs ask the runtime for its last error instead of looking at results."""
    if which == "driver":
        return lambda: NOT_SUPPORTED
    from nbtc.libcuda.runtime.results import note

    return lambda: note(NOT_SUPPORTED)


def _compiler_entry(which: str, row: Row) -> int:
    """A compiler's own function, or what goes before it."""
    from nbtc.libcuda.compilers import INTERNAL_ERROR, instead, real

    found = instead(row.name)
    if found is not None:
        return _address(row.prototype(guarded(found, False)))
    library = real(which)
    if library is None:
        code = INTERNAL_ERROR[which]
        return _address(ctypes.CFUNCTYPE(ctypes.c_int32)(lambda: code))
    return ctypes.cast(library[row.name], ctypes.c_void_p).value or 0


def _warn_of_another(folder: str) -> None:
    """Say it where NVIDIA's driver is in the process too."""
    try:
        with open("/proc/self/maps", encoding="utf-8", errors="replace") as file:
            paths = set(re.findall(r"(/\S*/libcuda\.so[.\d]*)$", file.read(), re.MULTILINE))
    except OSError:
        return
    others = sorted(p for p in paths if not p.startswith(folder))
    if others:
        say(f"this process has NVIDIA's driver too ({', '.join(others)}): what was loaded first counts", once=True)


class _Output:
    """Python's standard output in a process that isn't Python's: C's own, whose order is kept so."""

    def __init__(self) -> None:
        libc = ctypes.CDLL(None)
        self._stream = ctypes.c_void_p.in_dll(libc, "stdout")
        self._write, self._flush = libc.fwrite, libc.fflush
        self._write.argtypes = [ctypes.c_char_p, ctypes.c_size_t, ctypes.c_size_t, ctypes.c_void_p]
        self._flush.argtypes = [ctypes.c_void_p]

    def write(self, text: str) -> int:
        """Text, as C's buffer takes it."""
        raw = text.encode("utf-8", "surrogateescape")
        self._write(raw, 1, len(raw), self._stream)
        return len(text)

    def flush(self) -> None:
        """Write what C's buffer holds."""
        self._flush(self._stream)


def _write_profiles() -> None:
    from nbtc.libcuda import launching

    if launching.settings.profile and os.getpid() == state._process[0]:
        with open(launching.settings.profile, "w", encoding="utf-8") as file:
            file.write(launching.reported_profiles() + "\n")


def _at_exit(own: bool, close: int) -> None:
    """Profiles are written, and the table closed before Python ends (where Python isn't the host's, it never does)."""
    if own:
        libc = ctypes.CDLL(None)
        callback = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_void_p)(lambda status, data: _write_profiles())
        _keep.append(callback)
        libc.on_exit(callback, None)
    else:
        atexit.register(CLOSER(close))
        atexit.register(_write_profiles)


def attach(which: str, count: int, own: int, table: int, slot: int, close: int, direct: int, folder: str) -> None:
    """Called by a library, which lies in `folder`, at its first call; own: Python was started for it."""
    if which in _attached:
        return
    attach_points.folder = folder
    import nbtc.libcuda.driver
    import nbtc.libcuda.runtime  # noqa: F401

    if own and not _attached:
        sys.stdout = _Output()
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            # importing `signal` has taken Ctrl-C, which is the program's: it ends it, a running kernel included
            ctypes.CDLL(None).signal(ctypes.c_int(signal.SIGINT), None)
    made = _attached[which] = Attached(which, count, table, direct, bool(own))
    resolver = RESOLVER(made.resolve)
    if not own or len(_attached) == 1:
        _at_exit(bool(own), close)
    _warn_of_another(folder)
    ctypes.c_uint64.from_address(slot).value = _address(resolver)
