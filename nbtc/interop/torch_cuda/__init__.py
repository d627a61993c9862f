"""PyTorch's builds for CUDA on nbtc's driver: what their own kernels, which are machine code, would compute.

PyTorch calls `autoload` when it has been imported (its entry points "torch.backends").
"""

from __future__ import annotations

import os
import warnings
from pathlib import Path


def on_driver() -> bool:
    """Whether this process's CUDA driver is nbtc's."""
    folder = os.environ.get("TRITON_LIBCUDA_PATH")  # what `nbtc run` and `nbtc.cuda.install` set
    if not folder or not Path(folder, "bin", "ptxas").is_file():
        return False
    library = str(Path(folder, "libcuda.so.1"))
    try:
        with open("/proc/self/maps", encoding="utf-8", errors="replace") as file:
            return any(line.rstrip("\n").endswith(library) for line in file)
    except OSError:
        return False


def autoload() -> None:
    """Let PyTorch's CPU kernels compute what its CUDA kernels would, where nbtc is the CUDA driver.

    An exception here would make `import torch` fail, so a PyTorch whose internals differ gets a warning instead.
    """
    if not on_driver():
        return
    import torch

    if torch.version.cuda is None:
        return
    try:
        from nbtc.interop.torch_cuda.operations import register

        register()
    except Exception as error:
        warnings.warn(
            f"nbtc: the operations of PyTorch {torch.__version__} can't be handed to the CPU, so only Triton's "
            f"kernels and copies work on its CUDA device: {type(error).__name__}: {error}",
            RuntimeWarning,
            stacklevel=2,
        )
