"""torch's device "cuda" for launch code that asks for it: its tensors are the CPU's, and say that they are on a GPU.

| private name of PyTorch | why |
|---|---|
| `torch.cuda._lazy_init`, `_DeviceGuard` (`interop.torch_device`) | they would start a driver |
| `torch.autograd._engine_run_backward` | backward passes written in Python run inside a call of PyTorch, where no \
mode is on |
| `torch.autocast._enabled`, `.fast_dtype` | what it casts to, for the CPU's operations |
| `torch._C._cuda_getCurrentRawStream` | libraries that launch kernels themselves ask for it |
| `torch.utils._device.CURRENT_DEVICE`, `_device_constructors` | what is made on the default device, if that is a GPU |

Tested with torch 2.11.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from types import FunctionType
from typing import Any
from unittest.mock import patch

import torch
import triton.testing
from torch.overrides import TorchFunctionMode
from torch.utils import _device

from nbtc.errors import OptionError, shown
from nbtc.interop.torch_device import Guard, cuda_names, nothing, properties
from nbtc.isa.archs import gpu
from nbtc.triton import capture, cublas_handle, driver, graphs, places, wide_products
from nbtc.triton.operators import OPERATORS, Operators

CPU, CUDA = torch.device("cpu"), torch.device("cuda", 0)
MAKERS = _device._device_constructors()  # functions that take the default device
MOVES = ("to", "cpu", "cuda", "pin_memory")  # of a tensor


def is_cuda(x: Any) -> bool:
    """Whether what a call was given names a device that is a GPU."""
    if isinstance(x, str):
        return x == "cuda" or x.startswith("cuda:")
    return isinstance(x, torch.device) and x.type == "cuda"


class OnCpu(TorchFunctionMode):
    """Operations on "cuda" run on the CPU, and the CPU's tensors say that they are on "cuda"."""

    def __init__(self) -> None:
        super().__init__()
        self.operators = Operators()

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None) -> Any:
        given = dict(kwargs or {})
        if func in READERS:
            return READERS[func](func(*args, **given))
        if isinstance(func, OPERATORS):
            self.operators.route(func)
        name = getattr(func, "__name__", "")
        if name in MOVES and args and isinstance(args[0], torch.Tensor):
            return _moved(name, func, args, given)
        given.pop("pin_memory", None)
        asked = given.get("device") or (_device.CURRENT_DEVICE if func in MAKERS else None)
        if is_cuda(asked):
            given["device"] = CPU
        found = func(*(CPU if isinstance(x, torch.device) and is_cuda(x) else x for x in args), **given)
        made_for_cpu = func in MAKERS and not is_cuda(asked) and not (args and isinstance(args[0], torch.Tensor))
        return places.mark(found) if made_for_cpu else found


def _on_gpu(device: torch.device) -> torch.device:
    return CUDA if device.type == "cpu" else device


READERS: dict[Any, Callable[[Any], Any]] = {
    torch.Tensor.device.__get__: _on_gpu,
    torch.Tensor.is_cuda.__get__: lambda _: True,
    torch.Tensor.is_cpu.__get__: lambda _: False,
    torch.Tensor.get_device: lambda _: 0,
}


def _moved(name: str, func: Any, args: Any, given: dict[str, Any]) -> Any:
    """A tensor at another place, which is a copy; to the GPU from there it is the tensor itself."""
    x, *rest = args
    if name == "pin_memory":
        return x
    if name == "cuda":
        return x.clone() if places.for_cpu(x) else x
    wanted = [*rest, given.get("device")]
    to_cpu = name == "cpu" or any(d == "cpu" or (isinstance(d, torch.device) and d.type == "cpu") for d in wanted)
    to_gpu = any(map(is_cuda, wanted))
    if is_cuda(given.get("device")):
        given["device"] = CPU
    found = func(x, *(CPU if is_cuda(d) else d for d in rest), **given)
    if found is not x:
        return found
    if to_cpu:
        return places.mark(x.clone())
    return x.clone() if to_gpu and places.for_cpu(x) else x


class Stream(Guard):
    """A stream: launches are synchronous."""

    cuda_stream, device, priority = 0, CUDA, 0
    synchronize = wait_stream = wait_event = staticmethod(nothing)
    query = staticmethod(lambda: True)

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


def _entering(enter: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """`torch.autocast.__enter__` of "cuda", which sets what the CPU casts to as well."""

    def entering(self: Any) -> Any:
        if self.device == "cuda":
            self.on_cpu = torch.autocast("cpu", self.fast_dtype, self._enabled)
            enter(self.on_cpu)
        return enter(self)

    return entering


def _leaving(leave: Callable[..., Any]) -> Callable[..., Any]:
    def leaving(self: Any, *failure: Any) -> Any:
        found = leave(self, *failure)
        if self.device == "cuda":
            leave(self.on_cpu, *failure)
        return found

    return leaving


class Generator(torch.Generator):
    """Random numbers of the device are the CPU's."""

    def __new__(cls, device: Any = CPU) -> Generator:
        made: Generator = super().__new__(cls, CPU if is_cuda(device) else device)
        return made


ACCELERATOR = {  # names of torch.accelerator
    "is_available": lambda: True,
    "current_accelerator": lambda check_available=False: torch.device("cuda"),
    "device_count": lambda: 1,
    "current_device_index": lambda: 0,
    "set_device_index": nothing,
    "synchronize": nothing,
}


def _cuda(arch: str) -> dict[str, Any]:
    """Names of torch.cuda."""
    about = properties(gpu(arch))
    memory = ("memory_reserved", "max_memory_reserved", "memory_allocated", "max_memory_allocated")
    idle = ("init", "empty_cache", "ipc_collect", "reset_peak_memory_stats", "reset_max_memory_allocated")
    return {
        **cuda_names(lambda: about),
        **dict.fromkeys(memory, lambda _=None: 0),
        **dict.fromkeys(idle, nothing),
        "current_stream": lambda _=None: Stream(),
        "default_stream": lambda _=None: Stream(),
        "Stream": Stream,
        "stream": Guard,
        "device_of": Guard,
        "Event": Event,
        "CUDAGraph": graphs.Graph,
        "graph": graphs.capturing,
        "graph_pool_handle": graphs.pool_handle,
        "is_current_stream_capturing": lambda: capture.steps() is not None,
        "manual_seed": torch.default_generator.manual_seed,  # `torch.manual_seed` calls these
        "manual_seed_all": torch.default_generator.manual_seed,
        "initial_seed": torch.initial_seed,
    }


def _its_own(value: Any) -> Any:
    """A function as an object of its own: torch.compile keeps rules by the objects that names have."""
    return (lambda *args, **named: value(*args, **named)) if isinstance(value, FunctionType) else value


def _nvsmi(arch: str) -> Callable[[Sequence[str]], list[int]]:
    """`triton.testing.nvsmi`: what nvidia-smi says of the clocks, in MHz."""
    about = gpu(arch)
    clocks = {"sm": about.clock // 1000, "mem": about.memory_clock // 1000, "memory": about.memory_clock // 1000}

    def nvsmi(attributes: Sequence[str]) -> list[int]:
        known = {f"clocks.{when}.{part}": clock for part, clock in clocks.items() for when in ("max", "current")}
        for name in attributes:
            if name not in known:
                raise OptionError(f"nvsmi({shown(name)}): the emulated device knows {', '.join(known)}")
        return [known[name] for name in attributes]

    return nvsmi


@contextmanager
def on_cpu(arch: str) -> Iterator[None]:
    """Inside, torch has one GPU of an architecture, which is the CPU."""
    mode, engine = OnCpu(), torch.autograd._engine_run_backward

    def run_backward(*args: Any, **kwargs: Any) -> Any:
        with mode:
            return engine(*args, **kwargs)

    with ExitStack() as stack:
        stack.enter_context(torch.compiler.set_stance("force_eager"))  # first: it looks into torch.cuda
        for name, value in _cuda(arch).items():
            stack.enter_context(patch.object(torch.cuda, name, _its_own(value), create=True))
        for name, value in ACCELERATOR.items():
            stack.enter_context(patch.object(torch.accelerator, name, value, create=True))
        stack.enter_context(patch.object(torch.autograd, "_engine_run_backward", run_backward))
        stack.enter_context(patch.object(torch, "Generator", Generator))
        stack.enter_context(patch.object(torch, "from_numpy", places.from_numpy))
        stack.enter_context(patch.object(torch._C, "_cuda_getCurrentRawStream", lambda _: 0, create=True))
        for name, made in (("__enter__", _entering), ("__exit__", _leaving)):
            stack.enter_context(patch.object(torch.autocast, name, made(getattr(torch.autocast, name))))
        stack.enter_context(cublas_handle.exchanged())
        # Its parser takes no other stream than torch's before any mode is asked.
        stack.enter_context(patch.object(torch.Tensor, "record_stream", nothing))
        stack.enter_context(patch.object(triton.testing, "nvsmi", _nvsmi(arch)))
        stack.enter_context(patch.object(torch.version, "cuda", torch.version.cuda or "13.0"))
        stack.callback(mode.operators.close)
        stack.callback(wide_products.registered()._destroy)
        stack.enter_context(mode)
        yield
