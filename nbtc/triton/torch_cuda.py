"""torch's device "cuda" for launch code that asks for it: its tensors are the CPU's, and say that they are on a GPU.

| private name of PyTorch | why |
|---|---|
| `torch.cuda._lazy_init`, `_DeviceGuard` (`interop.torch_device`) | they would start a driver |
| `torch.autograd._engine_run_backward` | backward passes written in Python run inside a call of PyTorch, where no \
mode is on |
| `torch.autocast._enabled`, `.fast_dtype` | what it casts to, for the CPU's operations |
| `torch.utils._device.CURRENT_DEVICE`, `_device_constructors` | what is made on the default device, if that is a GPU |

Tested with torch 2.11.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

import torch
import triton.testing
from torch.overrides import TorchFunctionMode
from torch.utils import _device

from nbtc.errors import OptionError, shown
from nbtc.interop.torch_device import nothing
from nbtc.isa.archs import gpu
from nbtc.triton import cublas_handle, cuda_names, places, products
from nbtc.triton.operators import OPERATORS, Operators

CPU, CUDA = torch.device("cpu"), cuda_names.CUDA
MAKERS = _device._device_constructors()  # functions that take the default device
MOVES = ("to", "cpu", "cuda", "pin_memory")  # of a tensor


def is_cuda(x: Any) -> bool:
    """Whether what a call was given names a device that is a GPU."""
    if isinstance(x, str):
        return x == "cuda" or x.startswith("cuda:")
    return type(x) is int or (isinstance(x, torch.device) and x.type == "cuda")


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
        if func in OTHERS:
            return OTHERS[func](*args, **given)
        if name in MOVES and args and isinstance(args[0], torch.Tensor):
            return _moved(name, func, args, given)
        given.pop("pin_memory", None)
        asked = given.get("device")
        if asked is None and func in MAKERS:
            asked = _device.CURRENT_DEVICE
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


def _interface(x: torch.Tensor) -> dict[str, Any]:
    """`x.__cuda_array_interface__`, of memory that is the CPU's."""
    about = dict(x.detach().numpy().__array_interface__)
    about.pop("descr")
    return {**about, "version": 2}


def _typed(x: torch.Tensor, dtype: Any = None, *args: Any, **given: Any) -> Any:
    """`x.type()` is that of a GPU's tensors, and `x.type(...)` takes it."""
    if dtype is None:
        return str(x.type()).replace("torch.", "torch.cuda.")
    return x.type(dtype.replace(".cuda", "") if isinstance(dtype, str) else dtype, *args, **given)


OTHERS: dict[Any, Callable[..., Any]] = {
    torch.Tensor.__cuda_array_interface__.__get__: _interface,
    torch.Tensor.type: _typed,
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
        for where, name, value in cuda_names.names(arch):
            stack.enter_context(patch.object(where, name, value, create=True))
        stack.enter_context(patch.object(torch.autograd, "_engine_run_backward", run_backward))
        stack.enter_context(patch.object(torch, "Generator", Generator))
        stack.enter_context(patch.object(torch, "from_numpy", places.from_numpy))
        stack.enter_context(patch.object(torch, "load", places.load))
        stack.enter_context(patch.object(torch.Tensor, "_make_wrapper_subclass", staticmethod(places.make_wrapper)))
        for name, made in (("__enter__", _entering), ("__exit__", _leaving)):
            stack.enter_context(patch.object(torch.autocast, name, made(getattr(torch.autocast, name))))
        stack.enter_context(cublas_handle.exchanged())
        # Its parser takes no other stream than torch's before any mode is asked.
        stack.enter_context(patch.object(torch.Tensor, "record_stream", nothing))
        stack.enter_context(patch.object(triton.testing, "nvsmi", _nvsmi(arch)))
        stack.enter_context(patch.object(torch.version, "cuda", torch.version.cuda or "13.0"))
        stack.callback(mode.operators.close)
        stack.callback(products.registered()._destroy)
        stack.enter_context(mode)
        yield
