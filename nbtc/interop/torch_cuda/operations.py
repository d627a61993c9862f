"""PyTorch's own operations on device="cuda", computed by its kernels for the CPU.

The wheels of PyTorch have their CUDA kernels as machine code alone, which nothing but a GPU runs, so tensors could be
allocated and copied but not even filled.  An operation with a CUDA kernel gets another one here: it looks at the
tensors' memory, which is the process's own, as tensors of the CPU, and calls the same operation.  Kernels of Triton
and of torch.compile come from PTX and have a GPU's bits; what is computed here has those of a CPU.

PyTorch's private names are touched here alone, because nothing public lists the operations that have a CUDA kernel:
`torch._C._dispatch_get_registrations_for_dispatch_key`.  Tested with PyTorch 2.11.0 and 2.14.1.
"""

from __future__ import annotations

import ctypes
import warnings
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import torch
from torch.utils._pytree import tree_map

from nbtc.libcuda.errors import say

# What allocates or describes tensors, and launches nothing.
NO_KERNEL = {
    "aten::empty.memory_format", "aten::empty_strided", "aten::_efficientzerotensor", "aten::resize_", "aten::set_",
    "aten::record_stream", "aten::is_pinned", "aten::_pin_memory", "aten::is_set_to", "aten::_local_scalar_dense",
    "aten::_cudnn_init_dropout_state", "aten::_assert_async", "aten::_assert_async.msg",
}  # fmt: skip
# Operations of other dispatch keys, whose own way to CUDA leads to cuDNN or to machine code.
MORE = ("aten::copy_", "aten::convolution")
_library: list[torch.library.Library] = []
OFFSET = 4  # a state of a generator is a multiple of it, as long as four numbers are drawn at once
GOLDEN = 0x9E3779B97F4A7C15  # 2^64 over the golden ratio, and below the mixing of splitmix64 (Steele et al. 2014)


def host_view(x: torch.Tensor) -> torch.Tensor:
    """The memory of a tensor on the device, as a tensor of the CPU."""
    if not x.numel():
        return torch.empty_strided(x.shape, x.stride(), dtype=x.dtype)
    storage = x.untyped_storage()
    raw = (ctypes.c_char * storage.nbytes()).from_address(storage.data_ptr())
    count = storage.nbytes() // x.element_size()
    flat = torch.frombuffer(raw, dtype=x.dtype, count=count)
    made = flat.as_strided(x.shape, x.stride(), x.storage_offset())
    made = made.conj() if x.is_conj() else made
    return made._neg_view() if x.is_neg() else made


def on_device(x: torch.Tensor, device: torch.device) -> torch.Tensor:
    """A tensor of the CPU as a new one of the device."""
    x = x.resolve_conj().resolve_neg()
    made = torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, device=device)
    if x.numel():
        host_view(made).copy_(x)
    return made


def host_generator(generator: torch.Generator) -> torch.Generator:
    """What draws in place of a device's generator.

    It is made anew for each call, of the seed and of the offset, which counts what was drawn: so seeds and states that
    a program sets or restores count, as on a GPU.
    """
    offset = generator.get_offset()
    generator.set_offset(offset + OFFSET)
    mixed = (generator.initial_seed() + (offset + 1) * GOLDEN) % (1 << 64)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB), (31, 1)):
        mixed = (mixed ^ mixed >> shift) * factor % (1 << 64)
    return torch.Generator().manual_seed(mixed)


class Call:
    """The arguments of one call, as tensors of the CPU, and the way back."""

    def __init__(self) -> None:
        self.device: torch.device | None = None
        self.tensors: list[tuple[torch.Tensor, torch.Tensor]] = []

    def argument(self, x: Any) -> Any:
        """An argument, or a part of one, as the CPU's operation takes it."""
        if isinstance(x, torch.Tensor) and x.is_cuda:
            self.device = x.device
            self.tensors.append((host_view(x), x))
            return self.tensors[-1][0]
        if isinstance(x, torch.device) and x.type == "cuda":
            self.device = x
            return torch.device("cpu")
        return host_generator(x) if isinstance(x, torch.Generator) and x.device.type == "cuda" else x

    def resized(self) -> None:
        """Tensors that the operation has made larger: empty ones, as out= takes them."""
        for host, x in self.tensors:
            if host.shape != x.shape or host.stride() != x.stride():
                x.resize_(host.shape).as_strided_(host.shape, host.stride())
                host_view(x).copy_(host)

    def result(self, x: Any) -> Any:
        """A result, on the device; an argument that was written to is itself."""
        if not isinstance(x, torch.Tensor) or x.is_cuda:
            return x
        for host, argument in self.tensors:
            if host is x:
                return argument
        return on_device(x, self.device or torch.device("cuda"))


def _default_generator(operation: Any) -> Callable[[dict[str, Any]], None]:
    """Draw from the device's generator where an operation draws and is given none."""
    if not any(a.name == "generator" for a in operation._schema.arguments):
        return lambda named: None

    def give(named: dict[str, Any]) -> None:
        if named.get("generator") is None:
            named["generator"] = torch.cuda.default_generators[torch.cuda.current_device()]

    return give


def _numbers_as_tensors(operation: Any) -> Callable[[Any, dict[str, Any]], Any]:
    """Give numbers as tensors where an operation takes no others: PyTorch hands `1` of `x & 1` over as a number."""
    names = {a.name for a in operation._schema.arguments if str(a.type) in ("Tensor", "Optional[Tensor]")}
    places = [a.name in names for a in operation._schema.arguments]

    def tensor(x: Any) -> Any:
        return torch.tensor(x) if isinstance(x, (int, float, complex)) else x

    def give(args: Any, named: dict[str, Any]) -> Any:
        named.update({name: tensor(named[name]) for name in names & named.keys()})
        return [tensor(x) if wanted else x for x, wanted in zip(args, places, strict=False)]

    return give


@cache
def _begin() -> None:
    """What an operation does that is the first of the process."""
    say("PyTorch's own operations are machine code: its CPU kernels compute them, with a CPU's bits", once=True)
    # PyTorch makes all its streams with the first, under a lock.  Were that done by several threads at once, one could
    # hold this lock and need Python's, which nbtc's driver runs under, and another the other way round.
    torch.cuda.Stream()


def computed_on_host(operation: Any) -> Callable[..., Any]:
    """An operation's implementation for tensors of the device."""
    name, give, tensors = operation.name(), _default_generator(operation), _numbers_as_tensors(operation)

    def run(*args: Any, **named: Any) -> Any:
        if torch.cuda.is_current_stream_capturing():
            raise RuntimeError(
                f"nbtc: {name} is machine code in this build of PyTorch and would be computed on the host, at once: "
                "it can't become part of a CUDA graph"
            )
        _begin()
        call = Call()
        give(named)
        args, named = tree_map(call.argument, tensors(args, named)), tree_map(call.argument, named)
        try:
            found = operation(*args, **named)
        except NotImplementedError as error:
            raise NotImplementedError(
                f"nbtc: {name} is machine code in this build of PyTorch, which needs a GPU, and PyTorch has no such "
                "operation for the CPU"
            ) from error
        call.resized()
        return tree_map(call.result, found)

    return run


def _views(operation: Any) -> bool:
    """Whether an operation's result is another view of its argument, which launches nothing."""
    return any(r.alias_info is not None and not r.alias_info.is_write for r in operation._schema.returns)


def _overload(name: str) -> Any:
    """An operation by its name, such as "aten::add.Tensor"; None where Python doesn't know it."""
    packet, _, overload = name.removeprefix("aten::").partition(".")
    return getattr(getattr(torch.ops.aten, packet, None), overload or "default", None)


def operations() -> Iterator[tuple[str, Any]]:
    """Those that launch kernels of PyTorch."""
    for name in (*torch._C._dispatch_get_registrations_for_dispatch_key("CUDA"), *MORE):
        skipped = not name.startswith("aten::") or name in NO_KERNEL or name.startswith("aten::set_.")
        operation = None if skipped else _overload(name)
        if operation is not None and not _views(operation):
            yield name, operation


@cache
def register() -> None:
    """Have the CPU's kernels in place of CUDA's, in this process."""
    made = torch.library.Library("aten", "IMPL")
    _library.append(made)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyTorch warns that kernels are exchanged
        for name, operation in operations():
            made.impl(name.removeprefix("aten::"), computed_on_host(operation), "CUDA")
    # What the CPU has no operation for: convolutions and attention are done by those that they consist of.
    torch.backends.cudnn.enabled = False
    torch.backends.cuda.enable_flash_sdp(False)
    torch.backends.cuda.enable_mem_efficient_sdp(False)
    torch.backends.cuda.enable_cudnn_sdp(False)
