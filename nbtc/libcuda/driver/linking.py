"""The linker (CUDA Driver API, "Module Management"): PTX in, PTX out."""

from __future__ import annotations

import ctypes
from typing import Any

from nbtc.libcuda import fatbin, host
from nbtc.libcuda.code import texts_of
from nbtc.libcuda.errors import FILE_NOT_FOUND, INVALID_VALUE, NOT_SUPPORTED, CudaError, say
from nbtc.libcuda.registry import driver
from nbtc.libcuda.state import handles

PTX, FATBINARY = 1, 2  # CUjitInputType
MOST = 1 << 28


class Link:
    """A linker's inputs, and its output while somebody may read it."""

    def __init__(self) -> None:
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
            say(f"{name} can't be linked: only PTX and fat binaries with PTX can")
            raise CudaError(NOT_SUPPORTED)


@driver
def cuLinkCreate_v2(count: int, options: int, values: int, out: int) -> None:
    host.put64(out, 0)
    host.put64(out, handles.add(Link()))


@driver
def cuLinkAddData_v2(h: int, kind: int, data: int, size: int, name: int, n: int, o: int, v: int) -> None:
    link = handles.get(h, Link)
    if not 0 < size <= MOST:
        raise CudaError(INVALID_VALUE)
    link.add(kind, host.read(data, size), host.name(name) if name else "an input")


@driver
def cuLinkAddFile_v2(h: int, kind: int, path: int, n: int, o: int, v: int) -> None:
    link, name = handles.get(h, Link), host.name(path)
    try:
        with open(name, "rb") as file:
            raw = file.read()
    except OSError:
        raise CudaError(FILE_NOT_FOUND) from None
    link.add(kind, raw, name)


@driver
def cuLinkComplete(h: int, out: int, size: int) -> None:
    link = handles.get(h, Link)
    link.out = ctypes.create_string_buffer("\n".join(link.texts).encode())
    host.put64(out, ctypes.addressof(link.out))
    host.given64(size, len(link.out))


@driver
def cuLinkDestroy(h: int) -> None:
    handles.get(h, Link)
    handles.drop(h)
