"""Fat binaries: the PTX texts in what nvcc puts into an executable.

(fatbinary_section.h for the wrapper; the rest as `cuobjdump` lists it.)  A header, then entries: PTX or machine code
for one architecture, plain or compressed by LZ4 or Zstandard.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import struct
from collections.abc import Iterator
from functools import cache
from typing import Any, NamedTuple

from nbtc.libcuda import host
from nbtc.libcuda.errors import INVALID_IMAGE, JIT_COMPILER_NOT_FOUND, CudaError, say

WRAPPER, FATBIN = 0x466243B1, 0xBA55ED50
PTX = 1
LZ4, ZSTD = 0x2000, 0x8000
HEADER = 64
MOST = 1 << 32  # bytes of an image


class Entry(NamedTuple):
    """An entry: its kind, the number of its architecture, how it is compressed."""

    kind: int
    arch: int
    flags: int
    raw: bytes
    size: int

    def text(self) -> str:
        """The PTX."""
        raw = self.raw
        try:
            if self.flags & LZ4:
                raw = lz4_block(raw, self.size)
            elif self.flags & ZSTD:
                raw = zstd(raw, self.size)
        except (IndexError, ValueError):
            raise CudaError(INVALID_IMAGE) from None
        return raw.rstrip(b"\0").decode("utf-8", "replace")


def _length(data: bytes, i: int, short: int) -> tuple[int, int]:
    """A length of LZ4: 15 says that more bytes follow, up to the first below 255."""
    if short == 15:
        while True:
            b = data[i]
            i, short = i + 1, short + b
            if b != 255:
                break
    return short, i


def lz4_block(data: bytes, size: int) -> bytes:
    """A block of LZ4 without a frame (LZ4 Block Format Description): literals and matches in turn."""
    out, i = bytearray(), 0
    while i < len(data) and len(out) < size:
        token = data[i]
        count, i = _length(data, i + 1, token >> 4)
        out += data[i : i + count]
        i += count
        if i >= len(data) or len(out) >= size:
            break
        back = data[i] | data[i + 1] << 8
        count, i = _length(data, i + 2, token & 15)
        count += 4
        if not 0 < back <= len(out):
            raise ValueError("a match before the block")
        piece = bytes(out[len(out) - back :][:count])
        out += (piece * (count // len(piece) + 1))[:count]
    return bytes(out[:size])


@cache
def _libzstd() -> Any:
    """The system's own library, which package managers of Linux need."""
    for name in ("libzstd.so.1", ctypes.util.find_library("zstd")):
        if name:
            try:
                return ctypes.CDLL(name)
            except OSError:
                continue
    return None


def zstd(data: bytes, size: int) -> bytes:
    """Zstandard: Python's from 3.14, the package zstandard, or the system's library."""
    try:
        from compression import zstd as module  # type: ignore[import-not-found,unused-ignore]

        return bytes(module.decompress(data))
    except ImportError:
        pass
    try:
        import zstandard  # type: ignore[import-not-found,unused-ignore]

        return bytes(zstandard.ZstdDecompressor().decompress(data, max_output_size=size))
    except ImportError:
        pass
    library = _libzstd()
    if library is None:
        say("this program's PTX is compressed by Zstandard: install zstandard, or pass nvcc --compress-mode=none", True)
        raise CudaError(JIT_COMPILER_NOT_FOUND)
    buffer = ctypes.create_string_buffer(max(size, 1))
    library.ZSTD_decompress.restype = ctypes.c_size_t
    library.ZSTD_decompress.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p, ctypes.c_size_t]
    done = library.ZSTD_decompress(buffer, size, data, len(data))
    if done != size:
        raise ValueError("not Zstandard")
    return buffer.raw[:size]


def entries_at(address: int) -> list[Entry]:
    """The entries of a fat binary in memory, or of what its wrapper leads to."""
    magic = host.u32(address)
    if magic == WRAPPER:
        version, data, more = host.u32(address + 4), host.u64(address + 8), host.u64(address + 16)
        found = entries_at(data)
        while version == 2 and more and (part := host.u64(more)):  # relocatable device code: those linked before
            found += entries_at(part)
            more += 8
        return found
    if magic != FATBIN:
        raise CudaError(INVALID_IMAGE)
    header, size = host.u32(address + 4) >> 16, host.u64(address + 8)
    if size > MOST:
        raise CudaError(INVALID_IMAGE)
    return list(parse(host.read(address + header, size)))


def parse(data: bytes) -> Iterator[Entry]:
    """The entries of a fat binary's body."""
    at = 0
    while at + HEADER <= len(data):
        kind, _, header, payload = struct.unpack_from("<HHII", data, at)
        (compressed,), (arch,) = struct.unpack_from("<I", data, at + 16), struct.unpack_from("<I", data, at + 28)
        (flags,), (size,) = struct.unpack_from("<Q", data, at + 40), struct.unpack_from("<Q", data, at + 56)
        packed = bool(flags & (LZ4 | ZSTD))
        body = data[at + header : at + header + (compressed if packed else payload)]
        yield Entry(kind, arch, flags, body, size if packed else payload)
        if header + payload <= 0:
            raise CudaError(INVALID_IMAGE)
        at += header + max(payload, compressed if packed else 0)
