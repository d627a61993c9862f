"""nvJitLink: PTX in, PTX out; LTO-IR goes through NVIDIA's own first, which makes PTX of it."""

from __future__ import annotations

import ctypes
from ctypes import byref, c_size_t, c_void_p

from nbtc.executor.control.grid_barrier import GRID_BARRIER
from nbtc.libcuda import fatbin, host
from nbtc.libcuda.code import texts_of
from nbtc.libcuda.compilers.find import INTERNAL_ERROR, real
from nbtc.libcuda.errors import CudaError
from nbtc.libcuda.registry import Implementation
from nbtc.libcuda.rows import VERSION
from nbtc.libcuda.state import handles

LTOIR = 3  # NVJITLINK_INPUT_LTOIR
INVALID_INPUT = 4  # NVJITLINK_ERROR_INVALID_INPUT
MOST_OPTIONS = 1 << 10
ARCHIVE = b"!<arch>"


class Linking:
    """A link under way: options, PTX, LTO-IR by name, what came of it."""

    def __init__(self, options: list[bytes]) -> None:
        self.options = options
        self.texts: list[str] = []
        self.lto: list[tuple[bytes, bytes]] = []
        self.out = self.log = b"\0"

    def add(self, kind: int, raw: bytes, name: bytes) -> int:
        """An input; nvJitLink's code."""
        magic = int.from_bytes(raw[:4], "little")
        if kind == LTOIR:
            self.lto.append((raw, name))
        elif magic in (fatbin.FATBIN, fatbin.WRAPPER):
            buffer = ctypes.create_string_buffer(raw)
            self.texts += texts_of(ctypes.addressof(buffer), name.decode("utf-8", "replace"))
        elif b".version" in raw:
            self.texts.append(raw.rstrip(b"\0").decode("utf-8", "replace"))
        elif raw.startswith(ARCHIVE):  # libcudadevrt.a: what cooperative grids need of it
            self.texts.append(GRID_BARRIER)
        else:
            self.log = b"nbtc links PTX, LTO-IR and fat binaries with PTX: " + name + b" is none of these\0"
            return INVALID_INPUT
        return 0


def create(out: int, count: int, options: int) -> None:
    host.put64(out, 0)
    words = [host.text(at) for at in host.words(options, min(count, MOST_OPTIONS))]
    host.put64(out, handles.add(Linking(words)))


def destroy(at: int) -> None:
    handle = host.u64(at)
    handles.get(handle, Linking)
    handles.drop(handle)


def add_data(handle: int, kind: int, data: int, size: int, name: int) -> int:
    return handles.get(handle, Linking).add(kind, host.read(data, size), host.text(name) if name else b"")


def add_file(handle: int, kind: int, path: int) -> int:
    link, name = handles.get(handle, Linking), host.text(path)
    try:
        with open(name, "rb") as file:
            return link.add(kind, file.read(), name)
    except OSError:
        return INVALID_INPUT


def ptx_of(link: Linking) -> str:
    """The PTX of all LTO-IR, by NVIDIA's linker."""
    library = real("nvjitlink")
    if library is None:
        raise CudaError(INTERNAL_ERROR["nvjitlink"])
    given = [o for o in link.options if o != b"-lineinfo"]
    options = [*given, *(o for o in (b"-lto", b"-ptx") if o not in given)]
    made, size = c_void_p(), c_size_t()

    def checked(code: int) -> None:
        if code:
            raise CudaError(code)

    checked(library.nvJitLinkCreate(byref(made), len(options), (ctypes.c_char_p * len(options))(*options)))
    try:
        for raw, name in link.lto:
            checked(library.nvJitLinkAddData(made, LTOIR, raw, c_size_t(len(raw)), name))
        checked(library.nvJitLinkComplete(made))
        checked(library.nvJitLinkGetLinkedPtxSize(made, byref(size)))
        buffer = ctypes.create_string_buffer(size.value)
        checked(library.nvJitLinkGetLinkedPtx(made, buffer))
    finally:
        library.nvJitLinkDestroy(byref(made))
    return buffer.value.decode()


def complete(handle: int) -> None:
    link = handles.get(handle, Linking)
    texts = [*([ptx_of(link)] if link.lto else []), *link.texts]
    link.out = "\n".join(texts).encode() + b"\0"


def out_size(handle: int, at: int) -> None:
    host.put64(at, len(handles.get(handle, Linking).out))


def out(handle: int, at: int) -> None:
    host.write(at, handles.get(handle, Linking).out)


def error_size(handle: int, at: int) -> None:
    host.put64(at, len(handles.get(handle, Linking).log))


def error(handle: int, at: int) -> None:
    host.write(at, handles.get(handle, Linking).log)


def info_size(handle: int, at: int) -> None:
    host.put64(at, 1)


def info(handle: int, at: int) -> None:
    host.write(at, b"\0")


_PLAIN: dict[str, Implementation] = {
    "Create": create, "Destroy": destroy, "AddData": add_data, "AddFile": add_file, "Complete": complete,
    "GetLinkedCubinSize": out_size, "GetLinkedCubin": out, "GetLinkedPtxSize": out_size, "GetLinkedPtx": out,
    "GetErrorLogSize": error_size, "GetErrorLog": error, "GetInfoLogSize": info_size, "GetInfoLog": info,
}  # fmt: skip
# names with a version are what the headers of CUDA 13.x call
_NAMES = (("nvJitLink", ""), *(("__nvJitLink", f"_13_{minor}") for minor in range(VERSION % 1000 // 10 + 1)))
LINKER = {f"{prefix}{name}{end}": function for name, function in _PLAIN.items() for prefix, end in _NAMES}
