"""The caller's memory: numbers and texts that a function's arguments point to, read and written without following a
bad pointer.

`process_vm_readv` and `process_vm_writev` on the process itself copy like memcpy, and return an error where that would
crash.  What is surely mapped as long as the process lives, its main stack and the data of its executable, is reached
without a system call: nearly all results of C programs lie there.
"""

from __future__ import annotations

import ctypes
import os
import re
import struct
from collections.abc import Callable
from typing import Any, NamedTuple

from nbtc.libcuda.errors import INVALID_VALUE, CudaError

_MAPS = re.compile(r"^([0-9a-f]+)-([0-9a-f]+) (r)(w)\S+ \S+ \S+ \S+ *(\S*)$", re.MULTILINE)
_libc = ctypes.CDLL(None, use_errno=True)
WORD, HALF = struct.Struct("<Q"), struct.Struct("<I")
MOST_TEXT = 1 << 16
PAGE = 4096
LARGE = 1 << 14  # bytes of a copy from which the system's own copy costs more than reading the process's map


class Vector(ctypes.Structure):
    """struct iovec."""

    _fields_ = [("base", ctypes.c_uint64), ("length", ctypes.c_uint64)]


def _mover(library: ctypes.CDLL) -> Any:
    """The system's copy between processes."""
    move = library.process_vm_readv
    move.argtypes = [ctypes.c_int, ctypes.POINTER(Vector), ctypes.c_ulong, ctypes.POINTER(Vector), ctypes.c_ulong,
                     ctypes.c_ulong]  # fmt: skip
    move.restype = ctypes.c_ssize_t
    return move


# Small copies keep Python's lock.  A client may call with a lock of its own held, as PyTorch does when it makes its
# streams: a thread that gets Python's lock in the midst of that, and waits for the client's, would wait for ever.
_move, _move_little = _mover(_libc), _mover(ctypes.PyDLL(None, use_errno=True))


class Steady(NamedTuple):
    """Memory that stays mapped."""

    low: int
    high: int
    view: Any


def _steady() -> list[Steady]:
    """The main stack, and the executable's data."""
    try:
        with open("/proc/self/maps", encoding="utf-8", errors="replace") as file:
            text = file.read()
        executable = os.readlink("/proc/self/exe")
    except OSError:
        return []
    found = []
    for m in _MAPS.finditer(text):
        if m[5] in ("[stack]", executable):
            low, high = int(m[1], 16), int(m[2], 16)
            found.append(Steady(low, high, (ctypes.c_ubyte * (high - low)).from_address(low)))
    return sorted(found, key=lambda s: s.view is None or -s.high)[:4]  # the stack first


_ranges: list[Steady] = _steady()
_slow = 0


def _copy(target: int, source: int, size: int) -> bool:
    """Copy bytes; False where either side can't be."""
    pid, done = os.getpid(), 0
    move = _move if size >= LARGE else _move_little
    while done < size:  # the kernel moves 2 GB at most at once
        moved = move(pid, Vector(target + done, size - done), 1, Vector(source + done, size - done), 1, 0)
        if moved <= 0:
            return False
        done += moved
    return True


_guards: list[tuple[int, int, Callable[[int, int], bool]]] = []


def guard(low: int, high: int, allowed: Callable[[int, int], bool]) -> None:
    """Of a range of addresses only what `allowed` says of an address and a size may be reached."""
    _guards.append((low, high, allowed))


def _is_address(at: int, size: int) -> bool:
    if not PAGE <= at <= (1 << 47) - PAGE - size:
        return False
    return all(at >= high or at + size <= low or allowed(at, size) for low, high, allowed in _guards)


regions: list[tuple[int, int]] = []  # ranges that `mapped` has found to be readable and writable


def mapped(at: int, size: int, write: bool) -> bool:
    """Whether all of a range may be read, or written, by what the system says of the process's memory."""
    end, reached, first, writable = at + size, at, 0, True
    with open("/proc/self/maps", encoding="utf-8", errors="replace") as file:
        for line in file:
            extent, access = line.split(" ", 2)[:2]
            low, high = (int(x, 16) for x in extent.split("-"))
            if high <= reached:
                continue
            if low > reached or access[write] != "rw"[write]:
                return False
            first, writable = first or low, writable and access[:2] == "rw"
            reached = high
            if reached >= end:
                if writable:
                    regions[:] = [*regions[-3:], (first, high)]
                return True
    return False


def _to_the_end(target: int, source: int, size: int) -> bool:
    """Whether a copy would come to its end: one that stops half-way has overwritten what it should not."""
    if size >= LARGE:
        return mapped(target, size, True) and mapped(source, size, False)
    buffer = ctypes.create_string_buffer(1)
    at = ctypes.addressof(buffer)
    return _copy(at, target + size - 1, 1) and _copy(at, source + size - 1, 1)


def copy(target: int, source: int, size: int) -> None:
    """Copy between any two places of the process."""
    possible = _is_address(target, size) and _is_address(source, size)
    if possible and size > PAGE:
        possible = _to_the_end(target, source, size)
    if possible and size >= LARGE:  # all of it is there: the system's copy takes three times as long (measured)
        ctypes.memmove(target, source, size)
    elif not possible or not _copy(target, source, size):
        raise CudaError(INVALID_VALUE)


def _refresh() -> None:
    """Look again, now and then, at how far the stack reaches."""
    global _slow, _ranges
    _slow += 1
    if _slow & (_slow - 1) == 0:
        _ranges = _steady()


def read(at: int, size: int) -> bytes:
    """Bytes that a pointer of the caller leads to."""
    for low, high, view in _ranges:
        if low <= at <= high - size:
            return bytes(view[at - low : at - low + size])
    _refresh()
    buffer = ctypes.create_string_buffer(max(size, 1))
    if not _is_address(at, size) or not _copy(ctypes.addressof(buffer), at, size):
        raise CudaError(INVALID_VALUE)
    return buffer.raw[:size]


def write(at: int, data: bytes) -> None:
    """Bytes to where a pointer of the caller leads."""
    size = len(data)
    for low, high, view in _ranges:
        if low <= at <= high - size:
            view[at - low : at - low + size] = data
            return
    _refresh()
    if not _is_address(at, size) or not _copy(at, _address(data), size):
        raise CudaError(INVALID_VALUE)


def _address(data: bytes) -> int:
    return ctypes.cast(ctypes.c_char_p(data), ctypes.c_void_p).value or 0


def put64(at: int, value: int) -> None:
    """A word to where a result goes."""
    for low, high, view in _ranges:
        if low <= at <= high - 8:
            WORD.pack_into(view, at - low, value)
            return
    write(at, WORD.pack(value))


def put32(at: int, value: int) -> None:
    """An int to where a result goes."""
    for low, high, view in _ranges:
        if low <= at <= high - 4:
            HALF.pack_into(view, at - low, value & 0xFFFFFFFF)
            return
    write(at, HALF.pack(value & 0xFFFFFFFF))


def put_float(at: int, value: float) -> None:
    """A float to where a result goes."""
    write(at, struct.pack("<f", value))


def given64(at: int, value: int) -> None:
    """A word for a caller who wants it: NULL says not."""
    if at:
        put64(at, value)


def given32(at: int, value: int) -> None:
    """An int for a caller who wants it."""
    if at:
        put32(at, value)


def u64(at: int) -> int:
    """A word of the caller's."""
    for low, high, view in _ranges:
        if low <= at <= high - 8:
            found: int = WORD.unpack_from(view, at - low)[0]
            return found
    return int.from_bytes(read(at, 8), "little")


def u32(at: int) -> int:
    """An unsigned int of the caller's."""
    return int.from_bytes(read(at, 4), "little")


def words(at: int, count: int) -> tuple[int, ...]:
    """An array of words."""
    if not 0 <= count <= MOST_TEXT:
        raise CudaError(INVALID_VALUE)
    return struct.unpack(f"<{count}Q", read(at, 8 * count)) if count else ()


def halves(at: int, count: int) -> tuple[int, ...]:
    """An array of unsigned ints."""
    if not 0 <= count <= MOST_TEXT:
        raise CudaError(INVALID_VALUE)
    return struct.unpack(f"<{count}I", read(at, 4 * count)) if count else ()


def text(at: int, most: int = MOST_TEXT) -> bytes:
    """A text of C, at most that long, page by page so that one that ends before an unmapped page can be read."""
    if not at:
        raise CudaError(INVALID_VALUE)
    found = bytearray()
    while len(found) < most:
        size = PAGE - at % PAGE
        piece = read(at, size)
        end = piece.find(b"\0")
        if end >= 0:
            return bytes(found + piece[:end])
        found += piece
        at += size
    raise CudaError(INVALID_VALUE)


def name(at: int) -> str:
    """A text of C as a name."""
    return text(at).decode("utf-8", "replace")


def path(at: int) -> str:
    """A text of C as a path of a file.  Unreadable bytes are a stray pointer's: no file gets such a name."""
    try:
        found = text(at).decode("utf-8")
    except UnicodeDecodeError:
        raise CudaError(INVALID_VALUE) from None
    if not found.isprintable():
        raise CudaError(INVALID_VALUE)
    return found
