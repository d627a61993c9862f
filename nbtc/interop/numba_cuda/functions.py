"""The functions of the CUDA driver that numba-cuda calls, for one device that is the CPU (CUDA Driver API).

Launches and copies are synchronous, so streams only have names and events only times.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable
from itertools import count
from threading import local
from typing import Any, NamedTuple
from uuid import UUID

from cuda.bindings import driver as binding
from numba.cuda.cudadrv.driver import CudaAPIError, CudaDriverError

from nbtc.errors import ArchError
from nbtc.interop.devices import DEVICES, REGISTERS, THREADS
from nbtc.interop.numba_cuda import memory as mem
from nbtc.interop.numba_cuda.image import Image
from nbtc.isa.archs import arch as find_arch

CUDA_VERSION = 13000  # 1000 * major + 10 * minor
RESIDENT_THREADS = 2048  # of a multiprocessor ("Compute Capabilities"; 1536 and less on some)
DEVICE = 0
HANDLES = 1 << 40  # of streams and events from here on: neither addresses nor handles of a driver
Function = Callable[..., Any]


class Capability(NamedTuple):
    """A compute capability."""

    major: int
    minor: int


class CoreContext(NamedTuple):
    """A context as cuda.core has it."""

    handle: Any

    @property
    def _handle(self) -> Any:
        return self.handle


class Processor:
    """The driver of one architecture: its memory, its images, and `functions` by their names in the driver API."""

    def __init__(self, arch: str, threads: int | None = None) -> None:
        self.arch = find_arch(arch)
        if self.arch.name not in DEVICES:
            raise ArchError(f"arch={arch!r}: numba-cuda compiles for {', '.join(DEVICES)}")
        self.threads = threads
        self.memory = mem.Memory()
        self.images: dict[int, Image] = {}
        self.events: dict[int, float] = {}
        self.context = CoreContext(binding.CUcontext(1 + self.arch.number))
        self._stacks = local()
        self._numbers = count(HANDLES)
        self.functions: dict[str, Function] = {**self._memory(), **self._contexts(), **self._order(), **self._code()}

    # --- what numba-cuda asks of cuda.core.Device
    device_id, uuid = DEVICE, UUID(int=0)

    @property
    def name(self) -> str:
        """What the device calls itself."""
        return f"nbtc {self.arch.name}"

    @property
    def compute_capability(self) -> Capability:
        """Major and minor number."""
        return Capability(*divmod(self.arch.number, 10))

    def set_current(self) -> None:
        """Make the device's context the thread's."""
        self._push(self.context.handle)

    # --- memory
    def _memory(self) -> dict[str, Function]:
        memory = self.memory

        def pointer(size: int, flags: int = 0) -> Any:
            return binding.CUdeviceptr(memory.allocate(int(size)))

        def extent(address: Any) -> tuple[Any, int]:
            found = memory.find(int(address))
            if found is None:
                raise CudaAPIError(binding.CUresult.CUDA_ERROR_NOT_FOUND, f"{int(address):#x} is not device memory")
            return binding.CUdeviceptr(found.first), found.bytes

        def moves(target: Any, source: Any, size: int, stream: Any = 0) -> None:
            mem.copy(target, source, size)

        def fills(target: Any, byte: int, size: int, stream: Any = 0) -> None:
            mem.fill(target, byte, size)

        copies = {f"cuMemcpy{way}{late}": moves for way in ("HtoD", "DtoH", "DtoD") for late in ("", "Async")}
        return {
            **copies,
            "cuMemAlloc": pointer,
            "cuMemAllocManaged": pointer,
            "cuMemHostAlloc": lambda size, flags: memory.allocate(int(size)),
            "cuMemHostRegister": lambda first, size, flags: memory.register(int(first), size),
            "cuMemHostUnregister": lambda first: memory.free(int(first)),
            "cuMemHostGetDevicePointer": lambda first, flags: binding.CUdeviceptr(int(first)),
            "cuMemFree": lambda first: memory.free(int(first)),
            "cuMemFreeHost": lambda first: memory.free(int(first)),
            "cuMemGetInfo": lambda: (mem.TOTAL - memory.used, mem.TOTAL),
            "cuMemGetAddressRange": extent,
            "cuPointerGetAttribute": lambda what, address: address,
            "cuMemsetD8": fills,
            "cuMemsetD8Async": fills,
        }

    # --- devices and contexts
    def _push(self, context: Any) -> None:
        self._stack().append(context)

    def _stack(self) -> list[Any]:
        if not hasattr(self._stacks, "contexts"):
            self._stacks.contexts = []
        found: list[Any] = self._stacks.contexts
        return found

    def _contexts(self) -> dict[str, Function]:
        none = binding.CUcontext(0)
        return {
            "cuInit": lambda flags: None,
            "cuDriverGetVersion": lambda: CUDA_VERSION,
            "cuDeviceGetCount": lambda: 1,
            "cuDeviceGetAttribute": self._attribute,
            "cuDeviceCanAccessPeer": lambda device, other: 0,
            "cuCtxGetCurrent": lambda: self._stack()[-1] if self._stack() else none,
            "cuCtxGetDevice": lambda: DEVICE,
            "cuCtxPushCurrent": self._push,
            "cuCtxPopCurrent": lambda: self._stack().pop(),
            "cuCtxSynchronize": lambda: None,
            "cuDevicePrimaryCtxRelease": lambda device: None,
            "cuDevicePrimaryCtxReset": lambda device: None,
            "cuProfilerStart": lambda: None,
            "cuProfilerStop": lambda: None,
        }

    def _attribute(self, code: Any, device: int) -> int:
        """Facts of the device; of what has no counterpart on a CPU, 0."""
        row = DEVICES[self.arch.name]
        major, minor = self.compute_capability
        block, grid = (THREADS, THREADS, 64), ((1 << 31) - 1, 65535, 65535)
        known = {
            "COMPUTE_CAPABILITY_MAJOR": major, "COMPUTE_CAPABILITY_MINOR": minor, "WARP_SIZE": 32,
            "MULTIPROCESSOR_COUNT": row.processors, "MAX_THREADS_PER_BLOCK": THREADS,
            "MAX_THREADS_PER_MULTIPROCESSOR": RESIDENT_THREADS, "MAX_SHARED_MEMORY_PER_BLOCK": 48 << 10,
            "MAX_SHARED_MEMORY_PER_BLOCK_OPTIN": row.shared << 10, "TOTAL_CONSTANT_MEMORY": 64 << 10,
            "MAX_SHARED_MEMORY_PER_MULTIPROCESSOR": (row.shared + 1) << 10,
            "MAX_REGISTERS_PER_BLOCK": REGISTERS, "MAX_REGISTERS_PER_MULTIPROCESSOR": REGISTERS,
            **{f"MAX_BLOCK_DIM_{a}": n for a, n in zip("XYZ", block, strict=True)},
            **{f"MAX_GRID_DIM_{a}": n for a, n in zip("XYZ", grid, strict=True)},
            "CAN_MAP_HOST_MEMORY": 1, "UNIFIED_ADDRESSING": 1, "MANAGED_MEMORY": 1, "CONCURRENT_MANAGED_ACCESS": 1,
            "COOPERATIVE_LAUNCH": 1, "CONCURRENT_KERNELS": 1,
        }  # fmt: skip
        return known.get(code.name.removeprefix("CU_DEVICE_ATTRIBUTE_"), 0)

    # --- streams and events
    def _order(self) -> dict[str, Function]:
        events, numbers = self.events, self._numbers

        def record(event: Any, stream: Any) -> None:
            events[int(event)] = time.perf_counter()

        def called_back(stream: Any, function: Any, data: int, flags: int) -> None:
            kind = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int, ctypes.py_object)
            kind(int(function))(int(stream or 0), 0, ctypes.cast(data, ctypes.py_object).value)

        return {
            "cuStreamCreate": lambda flags: binding.CUstream(next(numbers)),
            "cuStreamDestroy": lambda stream: None,
            "cuStreamSynchronize": lambda stream: None,
            "cuStreamWaitEvent": lambda stream, event, flags: None,
            "cuStreamAddCallback": called_back,
            "cuEventCreate": lambda flags: binding.CUevent(next(numbers)),
            "cuEventDestroy": lambda event: events.pop(int(event), None),
            "cuEventRecord": record,
            "cuEventQuery": lambda event: None,
            "cuEventSynchronize": lambda event: None,
            "cuEventElapsedTime": lambda first, last: 1e3 * (events[int(last)] - events[int(first)]),
        }

    # --- code
    def _code(self) -> dict[str, Function]:
        def blocks(kernel: Any, threads: int, shared: int, flags: int = 0) -> int:
            return RESIDENT_THREADS // threads

        return {
            "cuLibraryGetGlobal": lambda handle, name: self.images[handle].variable(name.decode()),
            "cuLibraryUnload": lambda handle: self.images.pop(handle, None),
            "cuKernelSetCacheConfig": lambda kernel, flag, device: None,
            "cuKernelSetAttribute": lambda what, value, kernel, device: None,
            "cuOccupancyMaxActiveBlocksPerMultiprocessor": blocks,
            "cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags": blocks,
        }

    def owns(self, handle: int) -> bool:
        """Whether a handle or address is this device's."""
        return handle in self.memory.ranges or handle in self.images or HANDLES <= handle < 2 * HANDLES

    def refuse(self, name: str) -> Any:
        """What is asked for and is not there."""
        raise CudaDriverError(f"nbtc emulates no {name}")
