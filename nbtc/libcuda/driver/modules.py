"""Modules and libraries (CUDA Driver API, "Module Management", "Library Management")."""

from __future__ import annotations

from nbtc.libcuda import host
from nbtc.libcuda.code import Library, Loaded, texts_of
from nbtc.libcuda.driver.linking import Logs
from nbtc.libcuda.errors import FILE_NOT_FOUND, INVALID_VALUE, NOT_FOUND, SUCCESS, CudaError
from nbtc.libcuda.registry import driver, driver_as
from nbtc.libcuda.state import disown, handles, own

LAZY = 2  # CU_MODULE_LAZY_LOADING


def end_module(handle: int) -> None:
    """Unload a module."""
    handles.get(handle, Loaded).unload()
    disown(handle)


def load(out: int, texts: list[str]) -> None:
    """A module of the current context."""
    host.put64(out, 0)
    made = Loaded(texts)
    host.put64(out, own(made, end_module))


def file_image(path: int) -> list[str]:
    """The PTX of a file."""
    import ctypes

    try:
        with open(host.path(path), "rb") as file:
            raw = file.read()
    except OSError:
        raise CudaError(FILE_NOT_FOUND) from None
    buffer = ctypes.create_string_buffer(raw)
    return texts_of(ctypes.addressof(buffer), host.path(path))


@driver_as("cuModuleLoadData", "cuModuleLoadFatBinary")
def cuModuleLoadData(out: int, image: int) -> None:
    load(out, texts_of(image))


@driver
def cuModuleLoadDataEx(out: int, image: int, count: int, options: int, values: int) -> None:
    with Logs(count, options, values):
        load(out, texts_of(image))


@driver
def cuModuleLoad(out: int, path: int) -> None:
    load(out, file_image(path))


@driver_as("cuModuleUnload")
def cuModuleUnload(handle: int) -> None:
    end_module(handle)


@driver
def cuModuleGetFunction(out: int, handle: int, name: int) -> None:
    host.put64(out, handles.get(handle, Loaded).function(host.name(name)).handle)


@driver
def cuModuleGetGlobal_v2(out: int, size: int, handle: int, name: int) -> None:
    put_variable(handles.get(handle, Loaded), out, size, name)


def put_variable(loaded: Loaded, out: int, size: int, name: int) -> None:
    """Address and bytes of a variable, to those who want them."""
    address, count = loaded.variable(host.name(name))
    host.given64(out, address)
    host.given64(size, count)


@driver
def cuModuleGetLoadingMode(out: int) -> None:
    host.put32(out, LAZY)


@driver_as("cuModuleGetTexRef", "cuModuleGetSurfRef")
def cuModuleGetTexRef(out: int, handle: int, name: int) -> int:
    handles.get(handle, Loaded)
    return NOT_FOUND


@driver
def cuModuleGetFunctionCount(out: int, handle: int) -> None:
    host.put32(out, len(handles.get(handle, Loaded).module.kernels))


@driver
def cuModuleEnumerateFunctions(out: int, count: int, handle: int) -> None:
    put_functions(handles.get(handle, Loaded), out, count)


def put_functions(loaded: Loaded, out: int, count: int) -> None:
    """Handles of a module's first kernels."""
    for i, name in enumerate(loaded.module.kernels[: max(0, count)]):
        host.put64(out + 8 * i, loaded.function(name).handle)


def add_library(out: int, texts: list[str]) -> None:
    """A library, of no context."""
    host.put64(out, 0)
    made = Library(texts)
    made.handle = handles.add(made)
    host.put64(out, made.handle)


@driver
def cuLibraryLoadData(out: int, code: int, o: int, v: int, n: int, lo: int, lv: int, ln: int) -> None:
    add_library(out, texts_of(code, "a library"))


@driver
def cuLibraryLoadFromFile(out: int, path: int, o: int, v: int, n: int, lo: int, lv: int, ln: int) -> None:
    add_library(out, file_image(path))


@driver
def cuLibraryUnload(handle: int) -> None:
    handles.get(handle, Library).unload()
    handles.drop(handle)


@driver
def cuLibraryGetKernel(out: int, handle: int, name: int) -> None:
    host.put64(out, handles.get(handle, Library).loaded.function(host.name(name)).handle)


@driver
def cuLibraryGetModule(out: int, handle: int) -> None:
    host.put64(out, handles.get(handle, Library).loaded.shared_handle())


@driver_as("cuLibraryGetGlobal", "cuLibraryGetManaged")
def cuLibraryGetGlobal(out: int, size: int, handle: int, name: int) -> None:
    put_variable(handles.get(handle, Library).loaded, out, size, name)


@driver
def cuLibraryGetKernelCount(out: int, handle: int) -> None:
    host.put32(out, len(handles.get(handle, Library).loaded.module.kernels))


@driver
def cuLibraryEnumerateKernels(out: int, count: int, handle: int) -> int:
    if count < 0:
        return INVALID_VALUE
    put_functions(handles.get(handle, Library).loaded, out, count)
    return SUCCESS
