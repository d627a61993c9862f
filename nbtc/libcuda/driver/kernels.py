"""Kernels' names, parameters and attributes (CUDA Driver API, "Execution Control", "Library Management")."""

from __future__ import annotations

from nbtc.libcuda import host
from nbtc.libcuda.code import REGISTERS, Function
from nbtc.libcuda.direct.words import changed
from nbtc.libcuda.errors import INVALID_VALUE, NOT_SUPPORTED, SUCCESS
from nbtc.libcuda.registry import driver, driver_as
from nbtc.libcuda.state import handles, processor

MAX_DYNAMIC_SHARED = 8  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
MOST_ATTRIBUTE = 16


@driver
def cuKernelGetFunction(out: int, kernel: int) -> None:
    handles.get(kernel, Function)
    host.put64(out, kernel)


@driver
def cuKernelGetLibrary(out: int, kernel: int) -> int:
    library = handles.get(kernel, Function).loaded.library
    if library is None:
        return NOT_SUPPORTED
    host.put64(out, library.handle)
    return SUCCESS


@driver_as("cuKernelGetName", "cuFuncGetName")
def cuFuncGetName(out: int, function: int) -> None:
    host.put64(out, handles.get(function, Function).label_at)


@driver
def cuFuncGetModule(out: int, function: int) -> None:
    host.put64(out, handles.get(function, Function).loaded.shared_handle())


@driver_as("cuKernelGetParamInfo", "cuFuncGetParamInfo")
def cuFuncGetParamInfo(function: int, index: int, offset: int, size: int) -> int:
    f = handles.get(function, Function)
    if index >= len(f.parameters):
        return INVALID_VALUE
    host.put64(offset, f.parameters[index][0])
    host.given64(size, f.parameters[index][1])
    return SUCCESS


@driver_as("cuKernelGetParamCount", "cuFuncGetParamCount")
def cuFuncGetParamCount(function: int, out: int) -> None:
    host.put64(out, len(handles.get(function, Function).parameters))


def attribute(f: Function, what: int) -> int:
    """CUfunction_attribute.

    5 (PTX_VERSION) is the architecture of a kernel's text and 6 (BINARY_VERSION) the GPU's: CUB chooses among the
    kernels of a program by the first.
    """
    width, height, depth = (*f.directives.get("reqnctapercluster", (0, 0, 0)), 1, 1)[:3]
    known = {0: f.threads, 1: f.shared, 2: f.constant, 3: f.local, 4: REGISTERS, 5: f.virtual_architecture,
             6: processor().number, 7: 0, MAX_DYNAMIC_SHARED: f.dynamic, 9: -1, 10: 0,
             11: width, 12: height, 13: depth}  # fmt: skip
    return f.attributes.get(what, known.get(what, 0))


def set_attribute(f: Function, what: int, value: int) -> int:
    """Set an attribute; of dynamic shared memory it is how much a launch may ask for."""
    if not 0 <= what < MOST_ATTRIBUTE:
        return INVALID_VALUE
    if what == MAX_DYNAMIC_SHARED:
        if not 0 <= value <= processor().facts.shared_block - f.shared:
            return INVALID_VALUE
        f.dynamic = value
        changed()
    f.attributes[what] = value
    return SUCCESS


@driver
def cuFuncGetAttribute(out: int, what: int, function: int) -> int:
    f = handles.get(function, Function)
    if not 0 <= what < MOST_ATTRIBUTE:
        return INVALID_VALUE
    host.put32(out, attribute(f, what))
    return SUCCESS


@driver
def cuKernelGetAttribute(out: int, what: int, kernel: int, device: int) -> int:
    found: int = cuFuncGetAttribute(out, what, kernel)
    return found


@driver
def cuFuncSetAttribute(function: int, what: int, value: int) -> int:
    return set_attribute(handles.get(function, Function), what, value)


@driver
def cuKernelSetAttribute(what: int, value: int, kernel: int, device: int) -> int:
    return set_attribute(handles.get(kernel, Function), what, value)


@driver_as("cuFuncSetCacheConfig", "cuFuncSetSharedMemConfig")
def cuFuncSetCacheConfig(function: int, config: int) -> None:
    handles.get(function, Function)


@driver
def cuKernelSetCacheConfig(kernel: int, config: int, device: int) -> None:
    handles.get(kernel, Function)


@driver
def cuFuncIsLoaded(out: int, function: int) -> None:
    handles.get(function, Function)
    host.put32(out, 1)


@driver
def cuFuncLoad(function: int) -> None:
    handles.get(function, Function)
