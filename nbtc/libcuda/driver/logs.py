"""What the driver says of errors (CUDA Driver API, "Error Log Management Functions").

Callbacks hear each line that goes to stderr, and the last ones are kept for programs that ask later.
"""

from __future__ import annotations

import ctypes
from collections import deque
from pathlib import Path

from nbtc.libcuda import errors, host
from nbtc.libcuda.driver.streams import check_code
from nbtc.libcuda.errors import FILE_NOT_FOUND, INVALID_VALUE, SUCCESS
from nbtc.libcuda.registry import driver
from nbtc.libcuda.state import handles

ERROR = 0  # CU_LOG_LEVEL_ERROR
MOST_LINES, MOST_BYTES = 100, 25600  # that are kept, and that a program gets at once, as CUDA's documentation has it
CALLBACK = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int, ctypes.c_char_p, ctypes.c_size_t)
_kept: deque[tuple[int, str]] = deque(maxlen=MOST_LINES)  # numbers of lines, and lines
_next = 0


class Listener:
    """A function of the client's that hears what is said."""

    def __init__(self, function: int, data: int) -> None:
        self.function, self.data = CALLBACK(function), data


_listeners: dict[int, Listener] = {}


def _heard(message: str) -> None:
    global _next
    _kept.append((_next, message))
    _next += 1
    line = message.encode()
    for listener in list(_listeners.values()):
        listener.function(listener.data, ERROR, line, len(line))


errors.heard.append(_heard)


def _since(iterator: int) -> str:
    """The lines from an iterator on, or all; the iterator is at the end then."""
    first = host.u32(iterator) if iterator else 0
    lines = [line for number, line in _kept if number >= first]
    while sum(len(line.encode()) + 1 for line in lines) >= MOST_BYTES:
        del lines[0]
    if iterator:
        host.put32(iterator, _next)
    return "".join(f"{line}\n" for line in lines)


@driver
def cuLogsRegisterCallback(function: int, data: int, out: int) -> int:
    if not check_code(function):
        return INVALID_VALUE
    host.put64(out, 0)
    made = Listener(function, data)
    handle = handles.add(made)
    _listeners[handle] = made
    host.put64(out, handle)
    return SUCCESS


@driver
def cuLogsUnregisterCallback(handle: int) -> None:
    handles.get(handle, Listener)
    del _listeners[handle]
    handles.drop(handle)


@driver
def cuLogsCurrent(out: int, flags: int) -> int:
    if flags:
        return INVALID_VALUE
    host.put32(out, _next)
    return SUCCESS


@driver
def cuLogsDumpToFile(iterator: int, path: int, flags: int) -> int:
    if flags:
        return INVALID_VALUE
    file = Path(host.path(path))
    try:
        file.write_text(_since(iterator), encoding="utf-8")
    except OSError:
        return FILE_NOT_FOUND
    return SUCCESS


@driver
def cuLogsDumpToMemory(iterator: int, buffer: int, size: int, flags: int) -> int:
    """As much as fits into the buffer, with a zero at the end; `size` is what there is, and then what was written."""
    capacity = host.u64(size)
    if flags or not capacity:
        return INVALID_VALUE
    raw = _since(iterator).encode()[: capacity - 1]
    host.write(buffer, raw + b"\0")
    host.put64(size, len(raw))
    return SUCCESS
