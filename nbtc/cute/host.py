"""The host's side of a compiled function: CuTe DSL's own machine code, with functions here in the CUDA runtime's place.

The code calls the runtime's functions under their names with a "_" in front (CUDA Runtime API, "Execution Control",
"Library Management"; CUDA driver API, "cuKernelGetAttribute").  It can't run on nbtc's CUDA driver: CuTe DSL's launcher
has a static runtime, which asks the driver for private tables.  Nothing of CuTe DSL is exchanged, but these are used:

| private name of CuTe DSL | why |
|---|---|
| `cutlass._mlir.execution_engine` | to compile the host's code again, with other functions under those names |
| `ir_module`, `function_name`, `has_gpu_module` of what `cute.compile` returned | the host's code, and whether there \
are kernels |
| `__ptx__` of the same (`emulated`) | the kernels |
| `execution_args` of the same (`emulated`) | packs arguments as the host's code takes them |

Tested with CuTe DSL 4.8.1.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from cutlass._mlir import execution_engine

from nbtc.errors import UnsupportedInstructionError
from nbtc.executor.launch.shared_memory import MOST_SHARED

_P, _I = ctypes.c_void_p, ctypes.c_int32
FAILED = 999  # cudaErrorUnknown
OPT_IN_SHARED = 97  # cudaDevAttrMaxSharedMemoryPerBlockOptin, less which the host's code takes...
KERNEL_SHARED = 1  # ... CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES: none, the executor sees to what a kernel has of its own
ANSWERS = {"_cudaDeviceGetAttribute": {OPT_IN_SHARED: MOST_SHARED}, "_cuKernelGetAttribute": {KERNEL_SHARED: 0}}
COOPERATIVE, CLUSTER = 2, 4  # cudaLaunchAttributeID; no other attribute changes what a kernel computes
TYPES = {  # the arguments of each function; all return cudaError_t
    "_cudaLibraryLoadData": (_P, _P, _P, _P, _I, _P, _P, _I),
    "_cudaLibraryGetKernel": (_P, _P, _P),
    "_cuKernelGetAttribute": (_P, _I, _P, _I),
    "_cudaDeviceGetAttribute": (_P, _I, _I),
    "_cudaGetDevice": (_P,),
    "_cudaFuncSetAttribute": (_P, _I, _I),
    "_cudaKernelSetAttributeForDevice": (_P, _I, _I, _I),
    "_cudaLaunchKernelEx": (_P, _P, _P),
}


class Attribute(ctypes.Structure):
    """cudaLaunchAttribute."""

    _fields_ = (("id", ctypes.c_uint), ("pad", ctypes.c_uint), ("value", ctypes.c_uint * 16))


class Config(ctypes.Structure):
    """cudaLaunchConfig_t."""

    _fields_ = (
        ("grid", ctypes.c_uint * 3),
        ("block", ctypes.c_uint * 3),
        ("shared", ctypes.c_size_t),
        ("stream", _P),
        ("attributes", ctypes.POINTER(Attribute)),
        ("count", ctypes.c_uint),
    )


class Launch(NamedTuple):
    """A launch that the host's code asks for; parameters are the addresses of their values."""

    kernel: str
    grid: tuple[int, ...]
    block: tuple[int, ...]
    shared: int
    cluster: tuple[int, ...] | None
    cooperative: bool
    parameters: Any


class Host:
    """The host's code of one compiled function; `launch` gets every launch it makes."""

    def __init__(self, compiled: Any, launch: Callable[[Launch], None]) -> None:
        missing = set(re.findall(r"llvm\.call @(_cu\w+)", str(compiled.ir_module))) - set(TYPES)
        if missing:
            raise UnsupportedInstructionError(
                f"{compiled.function_name} calls {', '.join(sorted(missing))} on the host, which has no emulation; "
                f"these have: {', '.join(TYPES)}"
            )
        self._launch, self._kernels, self._error = launch, list[str](), list[BaseException]()
        self._engine = execution_engine.ExecutionEngine(compiled.ir_module, opt_level=2, shared_libs=[])
        self._functions = {name: ctypes.CFUNCTYPE(_I, *kinds)(getattr(self, name)) for name, kinds in TYPES.items()}
        for name, function in self._functions.items():
            self._engine.raw_register_runtime(name, ctypes.cast(function, _P))
        self._entry = self._engine.lookup(compiled.function_name)
        library, device = _P(), _I(0)
        place = _P(ctypes.addressof(library))
        if compiled.has_gpu_module:
            self._run("cuda_init", place)
            self._run("cuda_load_to_device", place, device)

    def __call__(self, arguments: Sequence[Any]) -> None:
        """Run the function; `arguments` are the addresses of the values, as CuTe DSL packs them."""
        addresses = [x if isinstance(x, int) else ctypes.cast(x, _P).value for x in arguments]
        self._call(self._entry, addresses)

    def _run(self, name: str, *values: Any) -> None:
        entry = ctypes.CFUNCTYPE(None, _P)(self._engine.raw_lookup(name))
        self._call(entry, [ctypes.addressof(x) for x in values])

    def _call(self, entry: Callable[..., Any], addresses: Sequence[int | None]) -> None:
        result = _I(0)
        entry((_P * (len(addresses) + 1))(*addresses, ctypes.addressof(result)))
        if self._error:
            raise self._error.pop()

    def _cudaLibraryLoadData(self, library: int, *_: int) -> int:
        _P.from_address(library).value = 1
        return 0

    def _cudaLibraryGetKernel(self, kernel: int, _library: int, name: int) -> int:
        self._kernels.append(ctypes.string_at(name).decode())
        _P.from_address(kernel).value = len(self._kernels)
        return 0

    def _cuKernelGetAttribute(self, value: int, what: int, *_: int) -> int:
        return self._answer("_cuKernelGetAttribute", value, what)

    def _cudaDeviceGetAttribute(self, value: int, what: int, *_: int) -> int:
        return self._answer("_cudaDeviceGetAttribute", value, what)

    def _answer(self, function: str, value: int, what: int) -> int:
        if what not in ANSWERS[function]:
            self._error.append(UnsupportedInstructionError(f"the host's code asks {function} for {what}: no answer"))
            return FAILED
        _I.from_address(value).value = ANSWERS[function][what]
        return 0

    def _cudaGetDevice(self, device: int) -> int:
        _I.from_address(device).value = 0
        return 0

    def _cudaFuncSetAttribute(self, *_: int) -> int:
        return 0

    def _cudaKernelSetAttributeForDevice(self, *_: int) -> int:
        return 0

    def _cudaLaunchKernelEx(self, config: int, kernel: int, parameters: int) -> int:
        c = Config.from_address(config)
        attributes = {a.id: tuple(a.value) for a in c.attributes[: c.count]}
        try:
            self._launch(
                Launch(
                    self._kernels[kernel - 1],
                    tuple(c.grid),
                    tuple(c.block),
                    c.shared,
                    attributes[CLUSTER][:3] if CLUSTER in attributes else None,
                    bool(attributes.get(COOPERATIVE, (0,))[0]),
                    ctypes.cast(parameters, ctypes.POINTER(_P)),
                )
            )
        except BaseException as error:  # raised when the host's code has returned: none may pass through it
            self._error.append(error)
            return FAILED
        return 0
