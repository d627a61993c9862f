"""The context in which numba-cuda's programs run on the CPU: what of numba-cuda it exchanges, and how it puts it back.

`nbtc.cuda.install` runs programs on nbtc's CUDA driver with nothing exchanged.  What follows is for what no driver can
give: arrays of the host without copies, errors as Python's exceptions, and several devices one after the other in a
process, which may have a real driver too (a process loads one libcuda.so.1, whose handles cuda.core keeps).

| exchanged | why |
|---|---|
| the state of `driver.driver`: its functions, `devices` | numba-cuda reaches its driver through this one object |
| the state of `nrt.rtsys` | the runtime of reference counts is loaded once for each device |
| `devices._runtime._tls`, the cache of `_DeviceList.lst` | threads' current contexts, of this device alone |
| `driver.ExperimentalDevice` | cuda.core's device looks for a driver |
| `driver._to_core_stream`, `nrt._to_core_stream` | cuda.core's streams belong to its devices |
| `driver.Context.create_module_ptx` | would hand the text to cuda.core, which loads it with a driver |
| `codegen.CUDACodeLibrary.get_cufunc` | keeps loaded code by the number of the device, which is 0 for each here |
| `dispatcher.launch`, `nrt.launch` | faults become exceptions, arrays are passed by their own memory |
| `dispatcher.LaunchConfig`, `nrt.LaunchConfig` | cuda.core's asks the driver about cooperative launches |
| `devicearray._to_strided_memory_view`, `_make_strided_memory_view` | views of the host's memory, no copies |
| `nvrtc.compile`, `nrt._Linker` | CUDA C++ becomes PTX, also where LTO-IR is asked for, and PTX stays text |

Tested with numba-cuda 0.30.4 (docs/numba-cuda.md).
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from typing import Any, NamedTuple
from unittest.mock import patch
from weakref import WeakKeyDictionary

from cuda.core._utils.cuda_utils import CUDAError
from numba.cuda import codegen, dispatcher
from numba.cuda.cudadrv import devicearray, devices, driver, nvrtc
from numba.cuda.memory_management import nrt

from nbtc.errors import OptionError, ProgramError
from nbtc.executor.control.grid_barrier import GRID_BARRIER
from nbtc.executor.launch.process_wide import launches
from nbtc.executor.profile.result import Profile
from nbtc.interop.numba_cuda import image, sources
from nbtc.interop.numba_cuda.arguments import host_view, viewer
from nbtc.interop.numba_cuda.functions import Processor
from nbtc.isa.archs import arch as find_arch

DESTROYERS = (
    "cuMemFree", "cuMemFreeHost", "cuMemHostUnregister", "cuStreamDestroy", "cuEventDestroy", "cuLibraryUnload",
)  # fmt: skip


class LaunchError(OptionError, CUDAError):
    """A launch that CUDA's driver would refuse, an error of cuda.core and of nbtc."""


class Linker(driver._Linker):
    """A linker that gathers PTX: everything that is linked stays text."""

    def __init__(self, *args: Any, lto: Any = None, **options: Any) -> None:
        super().__init__(*args, lto=False, **options)

    def texts(self) -> list[str]:
        """The modules, kernels first."""
        for code in self._object_codes:
            if code.code_type != "ptx":
                raise ProgramError(f"{code.name} is {code.code_type}: only PTX and CUDA C++ can be linked")
        return [c.code if isinstance(c.code, str) else bytes(c.code).rstrip(b"\0").decode() for c in self._object_codes]

    def complete(self) -> image.Image:
        """What the driver is to load."""
        return _image(self.texts())


class Stream(NamedTuple):
    """What stands for cuda.core's stream: launches are synchronous, so it is only a name."""

    handle: int


def _core_stream(stream: Any) -> Stream:
    """`driver._to_core_stream`."""
    return Stream(int(getattr(stream, "handle", stream) or 0))


class Active:
    """One emulated device with the state of numba-cuda's modules that belongs to it."""

    def __init__(self, arch: str) -> None:
        self.processor = Processor(arch)
        self.functions: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()  # loaded kernels by their code libraries
        self.contexts = threading.local()
        self.runtime: dict[str, Any] = {"_memsys_module": None, "_memsys": None, "_initialized": False}
        self.state = {
            "devices": type(driver.driver.devices)(),
            "is_initialized": True,
            "initialization_error": None,
            "pid": None,
            "_cuda_python_wrap_fn": self.processor.refuse,
            **self.processor.functions,
        }

    def load(self, library: Any) -> Any:
        """The kernel of a code library, loaded once for this device."""
        found = self.functions.get(library)
        if found is None:
            context = devices.get_context()
            capability = library._ensure_cc(None)
            linker = Linker(cc=capability)
            for text in library.get_asm_strs(cc=capability):
                linker.add_ptx(text.encode())
            for path in library._linking_files:
                linker.add_file_guess_ext(path)
            texts = linker.texts() + [GRID_BARRIER] * bool(library.needs_cudadevrt)
            made = _image(texts)
            module = context.create_module_image(made, library._setup_functions, library._teardown_functions)
            found = self.functions[library] = module.get_function(library._entry_name)
        return found

    def launch(self, stream: Any, config: image.Config, kernel: image.Kernel, *args: Any) -> None:
        """What stands for cuda.core's launch."""
        try:
            image.launch(kernel, config, args, self.processor.memory, self.processor.threads)
        except OptionError as refused:
            raise LaunchError(f"CUDA_ERROR_INVALID_VALUE: {refused}") from refused

    def images(self, texts: list[str]) -> image.Image:
        """PTX, loaded."""
        made = image.Image(texts, self.processor.arch.name)
        self.processor.images[made.handle] = made
        return made


class Context(NamedTuple):
    """A context that has not ended: its device, and threads of the CPU."""

    device: Active
    threads: int | None


_LOCK = threading.RLock()  # of what follows
_contexts: list[Context] = []  # in any thread of the process
_restored = ExitStack()  # puts back what the last one's device has in place of numba-cuda's
_made: list[Active] = []


def _image(texts: list[str]) -> image.Image:
    return _contexts[-1].device.images(texts)


def _module_of_text(context: Any, text: str | bytes) -> Any:
    """`Context.create_module_ptx`."""
    made = _image([text if isinstance(text, str) else text.decode()])
    return context.create_module_image(made)


@cache
def device(arch: str) -> Active:
    """The emulated device of an architecture: it lasts, and so does its memory."""
    made = Active(arch)
    _made.append(made)
    vars(driver).setdefault("_logger", driver.make_logger())  # the real driver makes it when it is initialised
    for name in DESTROYERS:
        driver.driver.__dict__.setdefault(name, Destroyer(name, _made))
    return made


class Destroyer:
    """A driver's function that destroys things, for those of emulated devices that outlive the context."""

    def __init__(self, name: str, devices: list[Active]) -> None:
        self.name, self.devices = name, devices
        self.__name__ = name  # numba-cuda's log says it

    def __call__(self, handle: Any) -> Any:
        for one in self.devices:
            if one.processor.owns(int(handle)):
                return one.processor.functions[self.name](handle)
        real = driver.driver._cuda_python_wrap_fn(self.name)  # which takes this one's place
        setattr(driver.driver, self.name, self)
        return real(handle)


def _forget_devices() -> None:
    """Let the list of devices be asked for anew."""
    devices._DeviceList.lst.fget.cache_clear()


@contextmanager
def _state_of(owner: Any, state: dict[str, Any]) -> Iterator[None]:
    """An object with other attributes; `state` has what becomes of them."""
    before = dict(owner.__dict__)
    owner.__dict__.clear()
    owner.__dict__.update(state)
    try:
        yield
    finally:
        state.clear()
        state.update(owner.__dict__)
        owner.__dict__.clear()
        owner.__dict__.update(before)


def _exchange(one: Active) -> None:
    """Put a device in the place of numba-cuda's driver; `_restored` puts that back."""
    exchanged = [
        (driver, "ExperimentalDevice", lambda number: one.processor),
        (driver, "_to_core_stream", _core_stream),
        (driver.Context, "create_module_ptx", _module_of_text),
        (devices._runtime, "_tls", one.contexts),
        (codegen.CUDACodeLibrary, "get_cufunc", lambda library: one.load(library)),
        (dispatcher, "launch", one.launch),
        (dispatcher, "LaunchConfig", image.Config),
        (devicearray, "_to_strided_memory_view", viewer(one.processor.memory)),
        (devicearray, "_make_strided_memory_view", host_view),
        (nvrtc, "compile", sources.compile),
        (nrt, "launch", one.launch),
        (nrt, "LaunchConfig", image.Config),
        (nrt, "_to_core_stream", _core_stream),
        (nrt, "_Linker", Linker),
    ]
    _restored.enter_context(_state_of(driver.driver, one.state))
    _restored.enter_context(_state_of(nrt.rtsys, one.runtime))
    for owner, name, replacement in exchanged:
        _restored.enter_context(patch.object(owner, name, replacement))
    _forget_devices()
    _restored.callback(_forget_devices)


def _change(contexts: list[Context]) -> None:
    """Let these be the contexts that have not ended: the last one's device is numba-cuda's."""
    before = _contexts[-1].device if _contexts else None
    _contexts[:] = contexts
    now = _contexts[-1].device if _contexts else None
    if now is not before:
        _restored.close()
        if now is not None:
            _exchange(now)
    if now is not None:
        now.processor.threads = _contexts[-1].threads


@contextmanager
def emulated(
    arch: str = "sm_90", *, threads: int | None = None, checked: bool = False, profiles: list[Profile] | None = None
) -> Iterator[Processor]:
    """See `nbtc.cuda.emulated`.

    Contexts of several threads may end in any order.  So one device at a time is exchanged for numba-cuda's own parts,
    and those are put back before another's turn: each context putting back what it had found would leave another's.
    """
    mine = Context(device(find_arch(arch).name), threads)
    with _LOCK:
        _change([*_contexts, mine])
    try:
        with launches(checked, profiles):
            yield mine.device.processor
    finally:
        with _LOCK:
            _change([c for c in _contexts if c is not mine])
