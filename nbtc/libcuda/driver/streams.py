"""Streams and events (CUDA Driver API, "Stream Management", "Event Management", "Stream Memory Operations")."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable

from nbtc.libcuda import host
from nbtc.libcuda.driver.contexts import PRIORITIES
from nbtc.libcuda.errors import INVALID_HANDLE, INVALID_VALUE, LAUNCH_TIMEOUT, SUCCESS, CudaError, say
from nbtc.libcuda.memory import memory
from nbtc.libcuda.registry import DRIVER, driver, driver_as
from nbtc.libcuda.state import current, disown, handles, own, primary
from nbtc.libcuda.streams import Event, NodeKind, Stream, standard, stream_of, submit, synchronous

DISABLE_TIMING, INTERPROCESS = 2, 4  # CU_EVENT_*
HOST_TASKS = (0, 1)  # CUhostTaskSyncMode: blocking, spinning
POLL_SECONDS = 0.0005
WAIT_SECONDS = 2  # for another thread of the host: streams here do one thing after the other


@driver
def cuStreamCreate(out: int, flags: int) -> int:
    return put_stream(out, flags, 0)


@driver
def cuStreamCreateWithPriority(out: int, flags: int, priority: int) -> int:
    return put_stream(out, flags, max(PRIORITIES[1], min(PRIORITIES[0], priority)))


def put_stream(out: int, flags: int, priority: int) -> int:
    """A stream of the current context."""
    if flags & ~1:
        return INVALID_VALUE
    host.put64(out, 0)
    made = Stream(flags, priority)
    made.handle = own(made, disown)
    host.put64(out, made.handle)
    return SUCCESS


@driver_as("cuStreamDestroy_v2")
def cuStreamDestroy(handle: int) -> int:
    if handle in standard:
        return INVALID_HANDLE
    handles.get(handle, Stream)
    disown(handle)
    return SUCCESS


@driver
def cuStreamSynchronize(handle: int) -> None:
    synchronous(stream_of(handle))


@driver
def cuStreamQuery(handle: int) -> None:
    synchronous(stream_of(handle))


@driver
def cuStreamWaitEvent(handle: int, event: int, flags: int) -> None:
    """Streams are in order already; in a capture it joins the stream to what the event stands for."""
    found, stream = handles.get(event, Event), stream_of(handle)
    if found.graph is None:
        return
    if stream.graph is None:
        stream.graph, stream.last = found.graph, list(found.last)
    else:
        stream.last += [n for n in found.last if n not in stream.last]


@driver
def cuStreamGetFlags(handle: int, out: int) -> None:
    host.put32(out, stream_of(handle).flags)


@driver
def cuStreamGetPriority(handle: int, out: int) -> None:
    host.put32(out, stream_of(handle).priority)


@driver
def cuStreamGetId(handle: int, out: int) -> None:
    host.put64(out, stream_of(handle).id)


@driver
def cuStreamGetCtx(handle: int, out: int) -> None:
    host.put64(out, (stream_of(handle).context or current() or primary).handle)


@driver
def cuStreamGetCtx_v2(handle: int, out: int, green: int) -> None:
    cuStreamGetCtx(handle, out)
    host.given64(green, 0)


@driver
def cuStreamGetDevice(handle: int, out: int) -> None:
    stream_of(handle)
    host.put32(out, 0)


@driver
def cuStreamGetGreenCtx(handle: int, out: int) -> None:
    stream_of(handle)
    host.put64(out, 0)


@driver
def cuStreamAttachMemAsync(handle: int, address: int, size: int, flags: int) -> None:
    stream_of(handle)
    memory.inside(address, size or 1)


@driver
def cuStreamGetAttribute(handle: int, what: int, out: int) -> None:
    stream_of(handle)
    host.write(out, bytes(64))


@driver
def cuStreamSetAttribute(handle: int, what: int, value: int) -> None:
    stream_of(handle)
    host.read(value, 64)


@driver
def cuStreamCopyAttributes(target: int, source: int) -> None:
    stream_of(target)
    stream_of(source)


def executable(address: int) -> bool:
    """Whether code lies there: a host function that isn't one would end the process."""
    with open("/proc/self/maps", encoding="utf-8", errors="replace") as file:
        for line in file:
            extent, access = line.split(" ", 2)[:2]
            low, high = (int(x, 16) for x in extent.split("-"))
            if low <= address < high:
                return access[2] == "x"
    return False


_known_code: set[int] = set()


def check_code(address: int) -> bool:
    """Whether a function of the host's may be called."""
    if address not in _known_code and executable(address):
        _known_code.add(address)
    return address in _known_code


@driver
def cuStreamAddCallback(handle: int, function: int, data: int, flags: int) -> int:
    if not check_code(function) or flags:
        return INVALID_VALUE
    call = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p)(function)
    synchronous(stream_of(handle))
    submit(handle, NodeKind.HOST, lambda: call(handle or None, 0, data or None))
    return SUCCESS


@driver
def cuLaunchHostFunc(handle: int, function: int, data: int) -> int:
    if not check_code(function):
        return INVALID_VALUE
    call = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(function)
    submit(handle, NodeKind.HOST, lambda: call(data or None), (function, data))
    return SUCCESS


@driver
def cuLaunchHostFunc_v2(handle: int, function: int, data: int, mode: int) -> int:
    """How a GPU's stream waits for the function (CUhostTaskSyncMode) is nothing to one that calls it at once."""
    return cuLaunchHostFunc(handle, function, data) if mode in HOST_TASKS else INVALID_VALUE


# CUstreamWaitValue_flags: at least (as a cyclic difference), equal, some bit of it, not all bits of either
def _satisfied(how: int, found: int, value: int, width: int) -> bool:
    bits = 8 * width
    if how == 0:
        return (found - value) & (1 << bits) - 1 < 1 << bits - 1
    if how == 1:
        return found == value
    return bool(found & value) if how == 2 else bool(~(found | value) & (1 << bits) - 1)


def _wait(width: int) -> Callable[..., int]:
    def waits(handle: int, address: int, value: int, flags: int) -> int:
        if address % width or flags & 7 > 3:
            return INVALID_VALUE
        memory.inside(address, width)
        value &= (1 << 8 * width) - 1

        def run() -> None:
            end = time.monotonic() + WAIT_SECONDS
            while not _satisfied(flags & 3, int.from_bytes(ctypes.string_at(address, width), "little"), value, width):
                if time.monotonic() > end:
                    say(f"a stream waited {WAIT_SECONDS} s for a value in memory that nobody wrote")
                    raise CudaError(LAUNCH_TIMEOUT)
                time.sleep(POLL_SECONDS)  # another thread of the host will write it
                memory.inside(address, width)

        submit(handle, NodeKind.EMPTY, run)
        return SUCCESS

    return waits


def _write(width: int) -> Callable[..., int]:
    def writes(handle: int, address: int, value: int, flags: int) -> int:
        if address % width:
            return INVALID_VALUE
        memory.inside(address, width)
        raw = (value & (1 << 8 * width) - 1).to_bytes(width, "little")

        def run() -> None:
            memory.inside(address, width)
            ctypes.memmove(address, raw, width)

        submit(handle, NodeKind.EMPTY, run)
        return SUCCESS

    return writes


for _width in (4, 8):
    for _end in ("", "_v2"):
        DRIVER[f"cuStreamWaitValue{8 * _width}{_end}"] = _wait(_width)
        DRIVER[f"cuStreamWriteValue{8 * _width}{_end}"] = _write(_width)


@driver
def cuEventCreate(out: int, flags: int) -> int:
    if flags & ~7 or flags & (DISABLE_TIMING | INTERPROCESS) == INTERPROCESS:
        return INVALID_VALUE
    host.put64(out, 0)
    host.put64(out, own(Event(flags), disown))
    return SUCCESS


@driver_as("cuEventDestroy_v2")
def cuEventDestroy(handle: int) -> None:
    handles.get(handle, Event)
    disown(handle)


@driver
def cuEventRecord(handle: int, stream: int) -> None:
    event, on = handles.get(handle, Event), stream_of(stream)
    event.graph, event.last = on.graph, list(on.last)
    if on.graph is None:
        event.at = time.perf_counter()


@driver
def cuEventRecordWithFlags(handle: int, stream: int, flags: int) -> None:
    cuEventRecord(handle, stream)


@driver_as("cuEventQuery", "cuEventSynchronize")
def cuEventSynchronize(handle: int) -> None:
    handles.get(handle, Event)


@driver_as("cuEventElapsedTime", "cuEventElapsedTime_v2")
def cuEventElapsedTime(out: int, first: int, last: int) -> int:
    a, b = handles.get(first, Event), handles.get(last, Event)
    if a.at is None or b.at is None or (a.flags | b.flags) & DISABLE_TIMING:
        return INVALID_HANDLE
    host.put_float(out, 1e3 * (b.at - a.at))
    return SUCCESS


@driver
def cuThreadExchangeStreamCaptureMode(mode: int) -> int:
    if host.u32(mode) > 2:
        return INVALID_VALUE
    host.put32(mode, 0)
    return SUCCESS
