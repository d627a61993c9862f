"""The driver that Triton launches through: one device an architecture, whose binaries are PTX text."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from triton.backends.compiler import GPUTarget
from triton.backends.driver import DriverBase

from nbtc.errors import ArchError, OptionError, shown
from nbtc.executor.program import Module
from nbtc.interop.devices import DEVICES, REGISTERS, THREAD_REGISTERS, THREADS
from nbtc.isa.archs import arch as find_arch
from nbtc.isa.archs import gpu
from nbtc.triton.launcher import LANES, Launcher, Loaded

AUTOTUNE = ("time", "first")  # how a configuration of a tuner is chosen


class Utils:
    """What Triton calls the utilities of a driver: facts of the device, and loading of binaries."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._modules: dict[bytes, Module] = {}

    def get_device_properties(self, device: Any = None) -> dict[str, int]:
        """Facts that launch code asks for; clocks in kHz, the bus in bits."""
        about = gpu(self._driver.arch.name)
        return {
            "max_shared_mem": self._driver.device.shared << 10,
            "max_num_regs": REGISTERS,
            "multiprocessor_count": self._driver.device.processors,
            "warpSize": LANES,
            "sm_clock_rate": about.clock,
            "mem_clock_rate": about.memory_clock,
            "mem_bus_width": about.bus_width,
        }

    def load_binary(self, name: str, kernel: bytes, shared: int, device: int) -> tuple[Any, Loaded, int, int, int]:
        """(module, function, registers, spills, most threads) of a binary, which is PTX text."""
        module = self._modules.get(kernel)
        if module is None:
            # Instructions are read where no machine code of them is on disk: 35 programs take a second to read.
            module = self._modules[kernel] = Module(kernel.decode(), self._driver.arch.name, by_kernel=True)
        # No module: what Triton is given it unloads when the kernel dies, and no driver may be active by then.
        return None, Loaded(module[name], self._driver), THREAD_REGISTERS, 0, THREADS


class Event:
    """A moment in time, as benchmarks record it."""

    def __init__(self, enable_timing: bool = False) -> None:
        self.seconds = 0.0

    def record(self, stream: Any = None) -> None:
        """Now."""
        self.seconds = time.perf_counter()

    def elapsed_time(self, end: Event) -> float:
        """Milliseconds from here to another moment."""
        return 1e3 * (end.seconds - self.seconds)

    def synchronize(self) -> None:
        """Launches are synchronous."""


class Interface:
    """What Triton's benchmarks ask of a device's module in torch."""

    Event = Event

    @staticmethod
    def synchronize(device: Any = None) -> None:
        """Launches are synchronous."""


class Driver(DriverBase):
    """A driver of Triton's interface for one architecture."""

    launcher_cls = Launcher

    def __init__(self, arch: str | int, threads: int | None, autotune: str = "time", torch_cuda: bool = False) -> None:
        self.arch = find_arch(arch)
        if self.arch.name not in DEVICES:
            raise ArchError(f"arch={arch!r}: Triton compiles for {', '.join(DEVICES)}")
        if autotune not in AUTOTUNE:
            raise OptionError(f'autotune={shown(autotune)}: pass "time", as on a GPU, or "first", which times nothing')
        self.device = DEVICES[self.arch.name]
        self.threads, self.autotune, self.torch_cuda = threads, autotune, torch_cuda
        self.utils = Utils(self)
        self.get_device_capability = lambda device=None: divmod(self.arch.number, 10)

    @classmethod
    def is_active(cls) -> bool:
        """Never by itself: `emulated` makes it the active one."""
        return False

    def get_current_target(self) -> GPUTarget:
        """What Triton compiles for."""
        return GPUTarget("cuda", self.arch.number, LANES)

    def get_current_device(self) -> int:
        """The device's number: Triton's caches hold kernels by it, so each architecture has its own."""
        return self.arch.number

    def set_current_device(self, device: int) -> None:
        """The architecture is that of the context."""

    def get_current_stream(self, device: Any = None) -> int:
        """The one stream there is."""
        return 0

    def get_active_torch_device(self) -> Any:
        """Where tensors have to be."""
        import torch

        return torch.device("cuda", 0) if self.torch_cuda else torch.device("cpu")

    def get_device_interface(self) -> type[Interface]:
        """Events and synchronisation for benchmarks."""
        return Interface

    def map_python_to_cpp_type(self, ty: str) -> str:
        """A type of the signature; no C++ is made here."""
        return ty

    def get_empty_cache_for_benchmark(self) -> None:
        """No cache of a device has to be emptied."""

    def clear_cache(self, cache: Any) -> None:
        """No cache of a device has to be emptied."""

    def get_benchmarker(self) -> Callable[..., Any]:
        """How the autotuner times a configuration."""
        return benchmark


def benchmark(call: Callable[[], Any], *, quantiles: Sequence[float] = (0.5,), **_: Any) -> list[float]:
    """Milliseconds of the second of two calls (the first compiles), once for each quantile."""
    call()
    start = time.perf_counter()
    call()
    return [1e3 * (time.perf_counter() - start)] * len(quantiles)
