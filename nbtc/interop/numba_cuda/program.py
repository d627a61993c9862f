"""One kernel of numba-cuda that always runs on the CPU, with its launch syntax."""

from __future__ import annotations

from threading import RLock
from typing import Any

from numba.cuda.dispatcher import CUDADispatcher

from nbtc.errors import FormatError, shown
from nbtc.interop.numba_cuda.active import emulated

# Launches of several threads one after the other: numba-cuda knows one driver, and two may want different devices.
_ONE_DEVICE = RLock()


class Emulated:
    """A kernel for the CPU: `kernel[grid, block, stream, shared_bytes](*args)`."""

    def __init__(self, kernel: Any, arch: str, threads: int | None) -> None:
        if not isinstance(kernel, CUDADispatcher):
            raise FormatError(f"{shown(kernel)} is not a kernel of numba.cuda: pass what @cuda.jit returned")
        self.kernel, self.arch, self.threads = kernel, arch, threads

    def on(self, arch: str) -> Emulated:
        """The same kernel with another architecture's arithmetic."""
        return Emulated(self.kernel, arch, self.threads)

    def __getitem__(self, configuration: Any) -> Any:
        """Bind a launch configuration, in Numba's order."""

        def launched(*args: Any) -> None:
            with _ONE_DEVICE, emulated(self.arch, threads=self.threads):
                self.kernel[configuration](*args)

        return launched

    def forall(self, tasks: int, tpb: int = 0, stream: Any = 0, sharedmem: int = 0) -> Any:
        """As `forall` of numba.cuda."""

        def launched(*args: Any) -> None:
            with _ONE_DEVICE, emulated(self.arch, threads=self.threads):
                self.kernel.forall(tasks, tpb, stream, sharedmem)(*args)

        return launched
