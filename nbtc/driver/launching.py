"""Launches: arguments to parameter bytes, streams of any library, and the call itself."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from nbtc.driver.arrays import device_of
from nbtc.driver.device import Device, device
from nbtc.driver.tensor_map import encoded
from nbtc.errors import DeviceError, FormatError, shown
from nbtc.executor.launch.arguments import Parameter, value_bytes
from nbtc.executor.launch.launch import geometry
from nbtc.executor.text.data import WIDTHS
from nbtc.executor.transfer.tensor_map import TensorMap
from nbtc.formats.device_arrays import device_array, is_device_array

_ENTRY = r"\.entry\s+{}\s*(?:\((?P<list>[^)]*)\))?"
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_PARAMETER = re.compile(
    r"\.param\s*(?:\.align\s+(?P<align>\d+)\s*)?\.(?P<type>\w+)(?:\s*\.ptr[\w.:\s]*?)?\s+(?P<name>[%\w$]+)"
    r"(?:\s*\[(?P<count>\d+)\])?$"
)


@lru_cache(maxsize=1024)
def parameters(text: str, entry: str) -> tuple[Parameter, ...]:
    """The parameters of a kernel, as its header declares them.

    >>> parameters(".visible .entry k(.param .u64 x, .param .align 4 .b8 y[12]) { ret; }", "k")[1]
    Parameter(name='y', type='b8', bytes=12, alignment=4)
    """
    found = re.search(_ENTRY.format(re.escape(entry)), text)
    if found is None:
        raise DeviceError(f"the PTX text has no kernel {shown(entry)}")
    listed = _COMMENT.sub(" ", found["list"] or "").split(",")
    return tuple(_parameter(part.strip()) for part in listed if part.strip())


def _parameter(text: str) -> Parameter:
    m = _PARAMETER.match(text)
    if m is None or m["type"] not in WIDTHS:
        raise DeviceError(f"{shown(text)} is not a kernel parameter that nbtc can fill")
    size = WIDTHS[m["type"]] // 8
    return Parameter(m["name"], m["type"], size * int(m["count"] or 1), int(m["align"] or size))


def launch(
    ptx_text: str, entry: str, grid: Any, block: Any, shared_bytes: int, stream: Any, args: Sequence[Any]
) -> None:
    """Start a kernel of a PTX text on the GPU that holds its arrays, and return without waiting for it.

    ptx_text: whole, with .version (lowered to what the driver takes) and .target; compiled on first use.  entry: the
    kernel's name there.  grid, block: int or up to 3 ints.  shared_bytes: dynamic shared memory.  stream: None for the
    default one, a handle, or a stream of CuPy, numba-cuda, torch or of anything with `__cuda_stream__`.  args: one a
    parameter: a device array (its address) or an address for 64 bits, a number for a scalar, bytes for a struct, an
    `nbtc.TensorMap` of a device array for 128 bytes.

    Raises DeviceError where there is no GPU or driver, or the driver refuses the text or the launch; FormatError and
    RangeError for arguments that don't fit their parameters.  A kernel that fails later makes `synchronize` raise.
    """
    wanted = parameters(ptx_text, entry)
    if len(args) != len(wanted):
        raise FormatError(f"{entry} takes {len(wanted)} arguments ({_names(wanted)}), not {len(args)}")
    addresses = [device_array(x).address if is_device_array(x) else None for x in args]
    where = _device([*addresses, *(x.address for x in args if isinstance(x, TensorMap) and x.on_device)])
    with where.current() as d:  # the driver writes a map only where a context is current
        raw = [encoded(x, d) if isinstance(x, TensorMap) else x for x in args]
    values = [_value(p, x, at) for p, x, at in zip(wanted, raw, addresses, strict=True)]
    g = geometry(grid, block, None)
    handle = ctypes.c_void_p(stream_handle(stream))
    pointers = (ctypes.c_void_p * max(1, len(values)))(*(ctypes.addressof(v) for v in values))
    with where.current() as d:
        function = where.function(ptx_text, entry)
        if shared_bytes:
            where.allow_shared(function, shared_bytes)
        d.call("cuLaunchKernel", function, *g.grid, *g.block, shared_bytes, handle, pointers, None)


def synchronize(stream: Any = None, ordinal: int = 0) -> None:
    """Wait for a stream's work, or without one for all of a GPU's; DeviceError if a kernel failed."""
    with device(ordinal).current() as d:
        if stream is None:
            d.call("cuCtxSynchronize")
        else:
            d.call("cuStreamSynchronize", ctypes.c_void_p(stream_handle(stream)))


def stream_handle(stream: Any) -> int | None:
    """The driver's handle of a stream of any library; None is the default stream.

    >>> stream_handle(None), stream_handle(7)
    (None, 7)
    """
    if stream is None or isinstance(stream, int):
        return stream
    if hasattr(stream, "__cuda_stream__"):
        protocol = stream.__cuda_stream__
        return int((protocol() if callable(protocol) else protocol)[1])
    for name in ("cuda_stream", "ptr", "handle"):  # torch, CuPy, numba-cuda
        found: Any = getattr(stream, name, None)
        if found is not None:
            value = found.value if hasattr(found, "value") else found
            return None if value is None else int(value)
    raise FormatError(
        f"{type(stream).__name__} is not a stream: pass None, a handle, or a CuPy, torch or numba-cuda stream"
    )


def _names(wanted: Sequence[Parameter]) -> str:
    return ", ".join(f".{p.type} {p.name}" for p in wanted)


def _value(p: Parameter, x: Any, address: int | None) -> Any:
    """The bytes of an argument as a ctypes array."""
    if address is not None:
        if p.bytes != 8:
            raise FormatError(f"{p.name} is .{p.type}: it takes no array")
        raw = address.to_bytes(8, "little")
    elif x is None and p.bytes == 8:
        raw = bytes(8)
    elif hasattr(x, "__array_interface__") and np.ndim(x):
        raise FormatError(
            f"{p.name}: a {type(x).__name__} in host memory among device arrays: copy it to the GPU first"
        )
    else:
        raw = value_bytes(p, x)
    buffer = (ctypes.c_uint64 * -(-len(raw) // 8))()  # aligned, whatever the type
    ctypes.memmove(buffer, raw, len(raw))
    return buffer


def _device(addresses: Sequence[int | None]) -> Device:
    """The GPU of the arrays, which must all be of one; the first GPU where there are none."""
    found = {device_of(a) for a in addresses if a}
    if len(found) > 1:
        raise DeviceError(f"arrays of several GPUs ({sorted(found)}) in one launch: move them to one")
    return device(found.pop() if found else 0)
