"""The linker (CUDA Driver API, "Module Management"): PTX in, PTX out."""

from __future__ import annotations

import ctypes
import time
from types import TracebackType
from typing import Any

from nbtc.libcuda import fatbin, host
from nbtc.libcuda.code import texts_of
from nbtc.libcuda.errors import FILE_NOT_FOUND, INVALID_VALUE, NOT_SUPPORTED, CudaError, say, text_of
from nbtc.libcuda.registry import driver
from nbtc.libcuda.state import handles

PTX, FATBINARY = 1, 2  # CUjitInputType
MOST = 1 << 28
MOST_OPTIONS = 64
WALL_TIME, INFO, INFO_SIZE, ERROR, ERROR_SIZE = 2, 3, 4, 5, 6  # CUjit_option
LOGS = {INFO: INFO_SIZE, ERROR: ERROR_SIZE}


class Logs:
    """What the caller of a compiler or linker is told: texts in its buffers, their lengths and a time in its options.

    A context: an error that leaves it is told.
    """

    def __init__(self, count: int = 0, options: int = 0, values: int = 0) -> None:
        if not 0 <= count <= MOST_OPTIONS or (count and not (options and values)):
            raise CudaError(INVALID_VALUE)
        self.places = {option: values + 8 * i for i, option in enumerate(host.halves(options, count))} if count else {}
        self.sizes = {log: host.u32(self.places[size]) for log, size in LOGS.items() if size in self.places}
        self.start = time.perf_counter()
        for log in LOGS:
            self.tell(log, "")

    def tell(self, log: int, text: str) -> None:
        """Put a text into a buffer, as much of it as fits, and its length in the place of the size."""
        size = self.sizes.get(log, 0)
        if log in self.places and size:
            raw = text.encode()[: size - 1]
            host.write(host.u64(self.places[log]), raw + b"\0")
            host.put32(self.places[LOGS[log]], len(raw))

    def __enter__(self) -> Logs:
        return self

    def __exit__(self, kind: object, error: BaseException | None, place: TracebackType | None) -> None:
        if isinstance(error, CudaError):
            self.tell(ERROR, str(error.__cause__ or text_of(error.code, "driver_errors") or ""))
        if WALL_TIME in self.places:
            host.put_float(self.places[WALL_TIME], 1e3 * (time.perf_counter() - self.start))


class Link:
    """A linker's inputs, and its output while somebody may read it."""

    def __init__(self, logs: Logs) -> None:
        self.logs = logs
        self.texts: list[str] = []
        self.out: Any = None

    def add(self, kind: int, raw: bytes, name: str) -> None:
        """An input."""
        magic = int.from_bytes(raw[:4], "little")
        if magic in (fatbin.FATBIN, fatbin.WRAPPER):
            buffer = ctypes.create_string_buffer(raw)
            self.texts += texts_of(ctypes.addressof(buffer), name)
        elif b".version" in raw:
            self.texts.append(raw.rstrip(b"\0").decode("utf-8", "replace"))
        else:
            why = f"{name} can't be linked: only PTX and fat binaries with PTX can"
            say(why)
            raise CudaError(NOT_SUPPORTED) from ValueError(why)


@driver
def cuLinkCreate_v2(count: int, options: int, values: int, out: int) -> None:
    host.put64(out, 0)
    host.put64(out, handles.add(Link(Logs(count, options, values))))


@driver
def cuLinkAddData_v2(h: int, kind: int, data: int, size: int, name: int, n: int, o: int, v: int) -> None:
    link = handles.get(h, Link)
    if not 0 < size <= MOST:
        raise CudaError(INVALID_VALUE)
    with link.logs:
        link.add(kind, host.read(data, size), host.name(name) if name else "an input")


@driver
def cuLinkAddFile_v2(h: int, kind: int, path: int, n: int, o: int, v: int) -> None:
    link, name = handles.get(h, Link), host.path(path)
    try:
        with open(name, "rb") as file:
            raw = file.read()
    except OSError:
        raise CudaError(FILE_NOT_FOUND) from None
    with link.logs:
        link.add(kind, raw, name)


@driver
def cuLinkComplete(h: int, out: int, size: int) -> None:
    link = handles.get(h, Link)
    with link.logs:
        link.out = ctypes.create_string_buffer("\n".join(link.texts).encode())
        host.put64(out, ctypes.addressof(link.out))
        host.given64(size, len(link.out))


@driver
def cuLinkDestroy(h: int) -> None:
    handles.get(h, Link)
    handles.drop(h)
