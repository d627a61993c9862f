"""Names of torch.cuda and torch.accelerator where the one device is emulated.

| private name of PyTorch | why |
|---|---|
| `torch._C._cuda_getCurrentRawStream`, `_cuda_getDevice`, `_cuda_setDevice` | libraries that launch kernels \
themselves ask for them |
| `torch.cuda.memory._record_memory_history`, `torch.cuda._sleep` | tests of libraries call them |

Tested with torch 2.11.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from types import FunctionType
from typing import Any

import torch

from nbtc.interop.torch_device import Guard, cuda_names, nothing, properties
from nbtc.isa.archs import gpu
from nbtc.triton import capture, driver, graphs

CUDA = torch.device("cuda", 0)
ELEMENTS = ("Float", "Double", "Half", "BFloat16", "Byte", "Char", "Short", "Int", "Long", "Bool")  # of tensors' types
MEMORY = ("memory_reserved", "max_memory_reserved", "memory_allocated", "max_memory_allocated")
IDLE = (
    "init", "empty_cache", "ipc_collect", "reset_peak_memory_stats", "reset_max_memory_allocated", "set_stream",
    "reset_accumulated_memory_stats", "set_per_process_memory_fraction", "set_sync_debug_mode", "_sleep",
)  # fmt: skip


class Stream(Guard):
    """A stream: launches are synchronous."""

    cuda_stream, stream_id, device, device_index, device_type, priority = 0, 0, CUDA, 0, 1, 0
    synchronize = wait_stream = wait_event = staticmethod(nothing)
    query = staticmethod(lambda: True)

    def __init__(self, *_: Any, **__: Any) -> None:
        super().__init__()

    @staticmethod
    def record_event(event: Any = None) -> Any:
        """An event of now."""
        event = event or Event()
        event.record()
        return event

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Stream)

    def __hash__(self) -> int:
        return hash(Stream)


class Event(driver.Event):
    """A moment in time, and what is done by then."""

    def __init__(self, enable_timing: bool = False, **_: Any) -> None:
        super().__init__(enable_timing)

    wait = staticmethod(nothing)
    query = staticmethod(lambda: True)


class Pool(Guard):
    """A pool of memory, which is the process's."""

    id = (0, 0)


def _zero(*_: Any, **__: Any) -> int:
    return 0


def _stream(*_: Any, **__: Any) -> Stream:
    return Stream()


def _numbers(*_: Any, **__: Any) -> Counter[str]:
    return Counter()


def _cuda(arch: str) -> dict[str, Any]:
    about = gpu(arch)
    device = properties(about)
    return {
        **cuda_names(lambda: device),
        **dict.fromkeys(MEMORY, _zero),
        **dict.fromkeys(IDLE, nothing),
        **{f"{kind}Tensor": getattr(torch, f"{kind}Tensor") for kind in ELEMENTS},
        "memory_stats": _numbers,
        "memory_summary": lambda *_, **__: "The emulated device counts no memory.",
        "clock_rate": lambda *_, **__: about.clock // 1000,
        "can_device_access_peer": lambda *_: True,
        "current_blas_handle": _zero,
        "current_stream": _stream,
        "default_stream": _stream,
        "Stream": Stream,
        "ExternalStream": Stream,
        "stream": Guard,
        "device_of": Guard,
        "Event": Event,
        "MemPool": Pool,
        "use_mem_pool": Guard,
        "CUDAGraph": graphs.Graph,
        "graph": graphs.capturing,
        "graph_pool_handle": graphs.pool_handle,
        "is_current_stream_capturing": lambda: capture.steps() is not None,
        "default_generators": (torch.default_generator,),
        "manual_seed": torch.default_generator.manual_seed,  # `torch.manual_seed` calls these
        "manual_seed_all": torch.default_generator.manual_seed,
        "initial_seed": torch.initial_seed,
        "seed": torch.default_generator.seed,
        "seed_all": torch.default_generator.seed,
    }


ACCELERATOR = {
    "is_available": lambda: True,
    "current_accelerator": lambda check_available=False: torch.device("cuda"),
    "device_count": lambda: 1,
    "current_device_index": _zero,
    "current_device_idx": _zero,
    "device_index": Guard,
    "set_device_index": nothing,
    "set_device_idx": nothing,
    "current_stream": _stream,
    "set_stream": nothing,
    "synchronize": nothing,
    "memory_stats": _numbers,
    **dict.fromkeys(MEMORY, _zero),
    **dict.fromkeys(("empty_cache", "reset_peak_memory_stats", "reset_accumulated_memory_stats"), nothing),
}
BINDINGS = {"_cuda_getCurrentRawStream": _zero, "_cuda_getDevice": _zero, "_cuda_setDevice": nothing}


def _its_own(value: Any) -> Any:
    """A function as an object of its own: torch.compile keeps rules by the objects that names have."""
    return (lambda *args, **named: value(*args, **named)) if isinstance(value, FunctionType) else value


def _module_of(ask: Callable[..., Any]) -> Callable[..., Any]:
    """`torch.get_device_module`, whose default is the module of the GPU."""
    return lambda device=None: ask("cuda" if device is None else device)


def names(arch: str) -> Iterator[tuple[Any, str, Any]]:
    """(where, name, what it is on a GPU of an architecture)."""
    for where, own in ((torch.cuda, _cuda(arch)), (torch.accelerator, ACCELERATOR), (torch._C, BINDINGS)):
        yield from ((where, name, _its_own(value)) for name, value in own.items())
    yield torch, "get_device_module", _module_of(torch.get_device_module)
    yield torch.cuda.memory, "_record_memory_history", nothing
