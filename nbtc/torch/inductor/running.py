"""Generated wrappers on CPU tensors: kernels are launched as programs, library calls are nbtc's products.

A wrapper's module is changed once, when it is loaded: names that it took of CUDA are exchanged in its own globals, so
nothing of torch is exchanged while it runs.  What it does there belongs to the session of the running thread.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map

from nbtc.errors import UnsupportedInstructionError
from nbtc.interop.torch_device import Guard, nothing
from nbtc.torch.inductor.origins import origins
from nbtc.torch.inductor.philox import generator
from nbtc.torch.inductor.pooling import average_gradient
from nbtc.torch.inductor.private import CPU, memory_format, ready
from nbtc.torch.inductor.session import Compiling, Session, here
from nbtc.torch.ops import ROWS
from nbtc.torch.products import NoEmulation

# Bits that no device changes: memory, shapes, copies, conversions (which round to nearest even everywhere).
EXACT = {
    "aten::" + name
    for name in (
        "empty", "empty_strided", "empty_like", "new_empty", "new_empty_strided", "as_strided", "view", "_unsafe_view",
        "_reshape_alias", "alias", "detach", "permute", "transpose", "t", "expand", "slice", "select", "squeeze",
        "unsqueeze", "unfold", "split", "unbind", "copy_", "clone", "_to_copy", "fill_", "zero_", "zeros", "full",
        "resize_", "set_", "cat", "_local_scalar_dense", "scalar_tensor", "ones", "arange", "view_as_real",
        "lift_fresh", "nonzero", "index_select", "gather", "constant_pad_nd", "is_same_size", "sym_size", "sym_stride",
        "stack", "split_with_sizes", "repeat", "flip", "roll", "index", "masked_select", "masked_fill", "masked_fill_",
        "where", "neg", "abs", "relu", "relu_", "eq", "ne", "lt", "le", "gt", "ge", "isnan", "isinf", "equal",
        "new_zeros", "new_full", "zeros_like", "ones_like", "full_like",
    )
}  # fmt: skip
CONVOLUTIONS = {"aten::convolution", "aten::convolution_backward"}
CELLS = "aten::_thnn_fused_"  # operations that PyTorch has on CUDA alone
RANDOM = {"aten::randint"}
KERNELS = {"aten::_adaptive_avg_pool2d_backward": average_gradient}  # PyTorch's own on CUDA; None where they don't know
FALLBACK = "inductor has no kernel for it: PyTorch's CPU kernel ran, whose last bits may be others"


class _Cuda:
    """`torch.cuda` of a wrapper: one device, and launches that are synchronous."""

    _DeviceGuard = device = Guard
    set_device = synchronize = staticmethod(nothing)

    def __getattr__(self, name: str) -> Any:
        return getattr(torch.cuda, name)


class _Torch:
    """`torch` of a wrapper."""

    cuda = _Cuda()

    def __getattr__(self, name: str) -> Any:
        return getattr(torch, name)


_torch = _Torch()


class Launch:
    """A kernel of a wrapper: what `triton_...run(...)` is called on."""

    def __init__(self, name: str, tuner: Any, origin: str) -> None:
        self.name, self.tuner, self.origin = name, tuner, origin

    def __getattr__(self, name: str) -> Any:
        return getattr(self.tuner, name)

    def run(self, *args: Any, stream: Any = None, **options: Any) -> Any:
        """Launch it, and write that down."""
        (launcher,) = self.tuner.launchers
        session = here.session
        start = time.perf_counter()
        result = launcher(*args, **options, stream=0)
        seconds = time.perf_counter() - start
        if session is not None:
            kernel = session.kernels.of(self.name, self.tuner, self.origin)
            kernel.first = kernel.first or seconds
            kernel.launches += 1
            kernel.seconds += seconds
            for watch in session.watchers:
                watch(kernel.name, [x for x in args if isinstance(x, torch.Tensor)])
        return result


class Wrapper:
    """A module of generated code whose `call` runs in one session; the module itself may be several sessions'."""

    def __init__(self, module: Any, session: Session) -> None:
        self._module, self.call = module, on_cpu(module.call, session)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._module, name)


def adopt(module: Any) -> Any:
    """A freshly loaded module of generated code, with what it took of CUDA exchanged.

    Modules of single kernels have nothing to exchange.
    """
    what = here.compiling
    if not hasattr(module, "call") or what is None:
        return module
    if not isinstance(getattr(module, "torch", None), _Torch):
        _exchange(module, what)
    what.session.wrappers.append(module.__file__)
    return Wrapper(module, what.session)


def _exchange(module: Any, what: Compiling) -> None:
    from torch._inductor.runtime.triton_heuristics import CachingAutotuner

    places = origins(module.__file__, what.lines, what.graph)
    for name, value in list(vars(module).items()):
        if isinstance(value, CachingAutotuner):
            ready(value)
            setattr(module, name, Launch(name, value, places.get(name, "")))
    module.torch = _torch
    module.get_raw_stream = lambda device: 0
    module.empty_strided_cuda = _allocator(module.empty_strided_cpu)


def _allocator(empty: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """`empty_strided_cuda` of a wrapper; while launches are watched, what no kernel writes is zero."""

    def allocate(*args: Any) -> torch.Tensor:
        made = empty(*args)
        return made.zero_() if here.session is not None and here.session.watchers else made

    return allocate


class Running(TorchDispatchMode):
    """What a wrapper calls of PyTorch: products are nbtc's, seeds CUDA's, and all else is counted as left."""

    def __init__(self, session: Session) -> None:
        super().__init__()
        self._session = session

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        if "device" in kwargs and kwargs["device"] is not None:
            kwargs["device"] = CPU
        name = func._schema.name
        if name in ROWS:
            return self._product(func, name, args, kwargs)
        if name.startswith(CELLS):
            return self._cell(name, args)
        if name in RANDOM and func._overloadname in ("low", "low_out"):
            return self._seeds(args, kwargs)
        if name in KERNELS and (made := KERNELS[name](*args)) is not None:
            return made
        if not (func.is_view or name in EXACT or kwargs.get("stable")):  # a stable sort has one result
            self._note(name)
            self._session.recorder.leave(FALLBACK)
            return _as_on_cuda(func, args, kwargs, func(*_on_cpu(args), **kwargs))
        return func(*_on_cpu(args), **kwargs)

    def _note(self, name: str) -> None:
        recorder = self._session.recorder
        recorder.module, recorder.op, recorder.backward = "", name.removeprefix("aten::"), False

    def _cell(self, name: str, args: Any) -> Any:
        """A fused cell of a recurrent net."""
        from nbtc.torch.inductor.cells import ROWS as FUSED

        self._note(name)
        if name not in FUSED:
            raise UnsupportedInstructionError(f"{name}: PyTorch has it on CUDA alone, and its arithmetic is not known")
        return FUSED[name](self._session.settings, *args)

    def _seeds(self, args: Any, kwargs: Any) -> torch.Tensor:
        """`aten.randint` of inductor's seeds."""
        low, high, size = args[:3]
        out = kwargs.get("out")
        out = torch.empty(size, dtype=torch.int64) if out is None else out
        return generator.integers(low, high, out)

    def _product(self, func: Any, name: str, args: Any, kwargs: Any) -> Any:
        """An operation of ROWS; with out= it is the plain form and a copy."""
        self._note(name)
        plain = {k: v for k, v in kwargs.items() if k != "out"}
        out = kwargs.get("out")
        if name == "aten::addmm" and out is not None and not out.is_contiguous():
            args = (args[0].expand(out.shape).contiguous(), *args[1:])  # as PyTorch does: cuBLAS adds it as a matrix
        try:
            result = ROWS[name](self._session.settings, *args, **plain)
        except NoEmulation as why:
            self._session.recorder.leave(str(why))
            result = func(*args, **kwargs)
        else:
            if name in CONVOLUTIONS:
                result = _laid_out(result, args[:2] if name == "aten::convolution" else args[1:3])
            if out is not None:
                result = out.copy_(result)
        for watch in self._session.watchers:
            watch(self._session.recorder.op, list(result) if isinstance(result, tuple) else [result])
        return result


def _on_cpu(args: Any) -> Any:
    return tree_map(lambda x: CPU if isinstance(x, torch.device) else x, args)


def _as_on_cuda(func: Any, args: Any, kwargs: Any, result: Any) -> Any:
    """A library's results with the strides that they have on CUDA, which the generated code asserts.

    PyTorch's rules of shapes take tensors on "meta" for CUDA's.  Without a rule the results stay as they are.
    """
    if func._schema.is_mutable:
        return result
    shapes = tree_map(
        lambda x: torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, device="meta") if isinstance(x, torch.Tensor)
        else x, (args, {k: torch.device("meta") if k == "device" else v for k, v in kwargs.items()}),
    )  # fmt: skip
    try:
        form = func(*shapes[0], **shapes[1])
    except (NotImplementedError, RuntimeError):
        return result

    def laid(x: Any, like: Any) -> Any:
        if not isinstance(x, torch.Tensor) or x.shape != like.shape or x.stride() == like.stride():
            return x
        return torch.empty_strided(x.shape, like.stride(), dtype=x.dtype).copy_(x)

    return tree_map(laid, result, form)


def _laid_out(result: Any, operands: Any) -> Any:
    """A convolution's results in cuDNN's memory format, which the generated code asserts."""
    form = memory_format(*operands)

    def laid(x: Any) -> Any:
        return x.contiguous(memory_format=form) if isinstance(x, torch.Tensor) and x.ndim > 1 else x

    return tuple(map(laid, result)) if isinstance(result, tuple) else laid(result)


def on_cpu(call: Callable[..., Any], session: Session) -> Callable[..., Any]:
    """A wrapper's call in its session."""

    @functools.wraps(call)
    def running(*args: Any) -> Any:
        before = here.session
        here.session = session
        try:
            with Running(session):
                return call(*args)
        finally:
            here.session = before

    return running
